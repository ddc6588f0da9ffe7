"""The statements of the paper's text and captions: `data/papers/2501.18512/claims.csv`, one a line.

A statement is written in the suite's own words. A number in it is never written out but stands as
`{item:row:column}`, the place of a cell of data/papers/2501.18512, so that each published number lives once.
"""

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from analysis.paper.published import CLAIMS, PAPER_DATA, Published, by_place, load
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

    @property
    def text(self) -> str:
        """With the printed numbers filled in."""
        return _filled(self.template, lambda cell: cell.text)

    @property
    def allowed(self) -> str:
        """What the paper says of its tolerance, numbers filled in."""
        return _filled(self.tolerance, lambda cell: cell.text)


@cache
def statements() -> tuple[Statement, ...]:
    """All of them, in the order of the paper."""
    return read(PAPER_DATA / f"{CLAIMS}.csv")


def read(path: Path) -> tuple[Statement, ...]:
    """The statements of a file; UserError names the line that is wrong."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        if tuple(next(reader, ())) != FIELDS:
            raise UserError(f"{path} must have the columns {', '.join(FIELDS)}.")
        rows = tuple(_statement(fields, f"{path}, line {reader.line_num}") for fields in reader)
    ids = [statement.id for statement in rows]
    if twice := sorted({i for i in ids if ids.count(i) > 1}):
        raise UserError(f"{path} has {', '.join(twice)} twice: keep one line for each statement.")
    return rows


def cell(item: str, row: str, column: str) -> Published:
    """A published cell; UserError when there is none at that place."""
    printed = _places(item).get((row, column))
    if printed is None:
        raise UserError(
            f"data/papers/2501.18512/{item}.csv has no cell {row!r}, {column!r}: mend the reference in claims.csv."
        )
    return printed


def value(item: str, row: str, column: str) -> float:
    """Its number. ValueError where the paper prints none."""
    number = cell(item, row, column).value
    if number is None:
        raise ValueError(f"{item}, {row}, {column}: the paper prints no number here.")
    return number


def quoted(reference: str) -> Published:
    """The cell at a place written as `{item:row:column}`. ValueError for anything else."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise ValueError(f"{reference!r} is no place of a published cell: write {{item:row:column}}")
    return cell(*match.groups())


@cache
def _places(item: str) -> dict[tuple[str, str], Published]:
    return by_place(load(item))


def _statement(fields: list[str], place: str) -> Statement:
    if len(fields) != len(FIELDS):
        raise UserError(f"{place} has {len(fields)} fields: it needs {len(FIELDS)} ({', '.join(FIELDS)}).")
    name, template, where, by, tolerance = fields
    source, *experiments = by.split()
    if source not in get_args(Source) or bool(experiments) != (source == "runs"):
        raise UserError(f"{place} is decided by {by!r}: write {', '.join(get_args(Source))}; runs with experiments.")
    return Statement(name, template, where, source, tuple(experiments), tolerance)  # type: ignore[arg-type]


def _filled(template: str, show: Callable[[Published], str]) -> str:
    return _REFERENCE.sub(lambda match: show(cell(*match.groups())), template)
