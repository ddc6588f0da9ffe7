"""The statements of a paper's text and captions: `data/papers/<paper>/claims.csv`, one a line.

A statement is written in the suite's own words. A number in it is never written out but stands as
`{item:row:column}`, the place of a cell of the same folder, so that each published number lives once.
"""

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from analysis.paper.published import CLAIMS, Published, by_place, load_cells
from experiments.papers import DEFAULT, paper
from repro.errors import UserError

FIELDS = ("id", "statement", "place", "by", "tolerance")
Source = Literal["runs", "simulator", "accounts", "cells", "nothing"]

_REFERENCE = re.compile(r"\{([^:{}]+):([^:{}]+):([^:{}]+)\}")


@dataclass(frozen=True)
class Statement:
    """One line: `by` is what decides it (runs of `experiments`, a calculation), `tolerance` the paper's own words."""

    id: str
    template: str
    place: str
    by: Source
    experiments: tuple[str, ...]
    tolerance: str
    paper: str = DEFAULT

    @property
    def text(self) -> str:
        """With the printed numbers filled in."""
        return _filled(self.template, self.paper)

    @property
    def allowed(self) -> str:
        """What the paper says of its tolerance, numbers filled in."""
        return _filled(self.tolerance, self.paper)


@cache
def statements(of: str = DEFAULT) -> tuple[Statement, ...]:
    """All of a paper, in its order; none where it has no such file."""
    path = paper(of).folder / f"{CLAIMS}.csv"
    return read_statements(path, of) if path.exists() else ()


def read_statements(path: Path, of: str = DEFAULT) -> tuple[Statement, ...]:
    """The statements of a file of a paper; UserError names the line that is wrong."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        if tuple(next(reader, ())) != FIELDS:
            raise UserError(f"{path} must have the columns {', '.join(FIELDS)}.")
        rows = tuple(_statement(fields, of, f"{path}, line {reader.line_num}") for fields in reader)
    ids = [statement.id for statement in rows]
    if twice := sorted({i for i in ids if ids.count(i) > 1}):
        raise UserError(f"{path} has {', '.join(twice)} twice: keep one line for each statement.")
    return rows


def cell(item: str, row: str, column: str, of: str = DEFAULT) -> Published:
    """A published cell; UserError when there is none at that place."""
    printed = _places(item, of).get((row, column))
    if printed is None:
        path = f"data/papers/{paper(of).id}/{item}.csv"
        raise UserError(f"{path} has no cell {row!r}, {column!r}: mend the reference in claims.csv.")
    return printed


def value(item: str, row: str, column: str, of: str = DEFAULT) -> float:
    """Its number. ValueError where the paper prints none."""
    number = cell(item, row, column, of).value
    if number is None:
        raise ValueError(f"{item}, {row}, {column}: the paper prints no number here.")
    return number


def quoted(reference: str, of: str = DEFAULT) -> Published:
    """The cell of a paper at a place written as `{item:row:column}`. ValueError for anything else."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise ValueError(f"{reference!r} is no place of a published cell: write {{item:row:column}}")
    item, row, column = match.groups()
    return cell(item, row, column, of)


@cache
def _places(item: str, of: str) -> dict[tuple[str, str], Published]:
    return by_place(load_cells(item, of))


def _statement(fields: list[str], of: str, place: str) -> Statement:
    if len(fields) != len(FIELDS):
        raise UserError(f"{place} has {len(fields)} fields: it needs {len(FIELDS)} ({', '.join(FIELDS)}).")
    name, template, where, by, tolerance = fields
    source, *experiments = by.split()
    if source not in get_args(Source) or bool(experiments) != (source == "runs"):
        raise UserError(f"{place} is decided by {by!r}: write {', '.join(get_args(Source))}; runs with experiments.")
    return Statement(name, template, where, source, tuple(experiments), tolerance, of)  # type: ignore[arg-type]


def _filled(template: str, of: str) -> str:
    return _REFERENCE.sub(lambda match: quoted(match.group(), of).text, template)
