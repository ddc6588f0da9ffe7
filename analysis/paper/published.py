"""The published numbers, and what may be said of ours beside them.

A published number lives once, as a cell of `data/papers/<paper>/<item>.csv`; nothing in the code repeats one. Two
kinds of comparison are made here and never mixed: a *verdict* compares one paper-scale result with one
published cell, both ways (better than the tolerance is a deviation too); a *judgement* (`analysis.paper.deciding`)
compares our own runs with each other over seeds, at any scale. Standard library only, so that plans answer at once.
"""

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Literal

from experiments.papers import DEFAULT, paper
from experiments.registry import item, paper_of
from repro.errors import UserError
from repro.spec.experiment import Experiment

FIELDS = ("row", "column", "text", "value", "rule", "where")
RULES = ("rounded", "truncated", "at least")  # the last: printed with a plus, where a grid ends
CLAIMS = "claims"  # a file of statements, not of cells: `analysis.claims`
MISSING = "-"  # how the paper prints a cell without a number

# The arrows in the heads of Tables 1, 5, 6 and 7. Other columns have no good direction.
BETTER: Mapping[str, Literal["lower", "higher"]] = {
    "Terabytes exchanged": "lower",
    "Eval Loss": "lower",
    "HellaSwag": "higher",
    "Piqa": "higher",
    "Arc Easy": "higher",
}

_SUFFIX_EXPONENT = {"M": 6, "B": 9}


@dataclass(frozen=True)
class Published:
    """One printed cell: `text` as printed, `value` in plain units (25B is 25e9) or None where it has '-'."""

    row: str
    column: str
    text: str
    value: float | None
    rule: str
    where: str


def items(of: str = DEFAULT) -> tuple[str, ...]:
    """The tables and figures of a paper with published numbers."""
    return tuple(sorted(path.stem for path in paper(of).folder.glob("*.csv") if path.stem != CLAIMS))


def load_cells(name: str, of: str = DEFAULT) -> tuple[Published, ...]:
    """The published cells of a paper's table or figure, in printed order; UserError if unknown or malformed."""
    known = items(of)
    if name not in known:
        raise UserError(f"no published numbers for {name!r}: choose one of {', '.join(known)}.")
    return read_cells(paper(of).folder / f"{name}.csv")


def cells_of(experiment: Experiment) -> tuple[Published, ...]:
    """The cells that its paper prints of an experiment; none where it prints no such table."""
    of, name = paper_of(experiment.name).name, experiment.printed or item(experiment.name)
    return load_cells(name, of) if name in items(of) else ()


def read_cells(path: Path) -> tuple[Published, ...]:
    """The cells of one file of published numbers; UserError names the file and the line that is wrong."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        if tuple(header) != FIELDS:
            raise UserError(f"{path} has the columns {header}: it must have {', '.join(FIELDS)}.")
        cells = tuple(_cell(fields, f"{path}, line {reader.line_num}") for fields in reader)
    seen: set[tuple[str, str]] = set()
    for cell in cells:
        if (cell.row, cell.column) in seen:
            raise UserError(f"{path} has {cell.row!r}, {cell.column!r} twice: keep one line for each cell.")
        seen.add((cell.row, cell.column))
    return cells


def by_place(cells: Iterable[Published]) -> dict[tuple[str, str], Published]:
    """Cells by (row, column)."""
    return {(cell.row, cell.column): cell for cell in cells}


def printed_interval(published: Published) -> tuple[float, float]:
    """The least and greatest value that would be printed as this cell's text under its rule.

    Rounding is to the nearest, with both ties included; truncation is towards zero, so the far end is
    excluded; what is printed as "at least" has no greatest value. ValueError for a cell without a number.
    """
    if published.value is None:
        raise ValueError(f"{published.row}, {published.column}: the paper prints no number here.")
    number = _number(published.text)
    unit = Decimal(1).scaleb(int(number.as_tuple().exponent))
    if published.rule == "at least":
        return float(number), math.inf
    if published.rule == "rounded":
        return float(number - unit / 2), float(number + unit / 2)
    far = number + unit.copy_sign(number)
    inside = math.nextafter(float(far), float(number))
    return min(float(number), inside), max(float(number), inside)


def verdict(published: Published, ours: float | None, tolerance: float, scale: str) -> str:
    """Our result beside one published cell: two-sided, and for runs at paper scale only.

    "reproduced" if `ours` is within `tolerance` (in the cell's units) of some value that prints as the
    cell's text; otherwise "deviates better" or "deviates worse" ("above" or "below" where the column has
    no direction). "not run" without a result; any scale but "paper" gets no verdict.
    """
    if tolerance < 0:
        raise ValueError(f"tolerance={tolerance}: it can't be negative.")
    if ours is None:
        return "not run"
    if scale != "paper":
        return f"no verdict ({scale})"
    if published.value is None:
        return "not published"
    if not math.isfinite(ours):
        return "not finite"
    low, high = printed_interval(published)
    if low - tolerance <= ours <= high + tolerance:
        return "reproduced"
    side = "below" if ours < low else "above"
    better = BETTER.get(published.column)
    if better is None:
        return f"deviates {side}"
    return "deviates better" if (side == "below") == (better == "lower") else "deviates worse"


def paired_differences(higher: Mapping[int, float], lower: Mapping[int, float]) -> tuple[float, ...]:
    """higher − lower for each seed that both have, by ascending seed."""
    return tuple(higher[seed] - lower[seed] for seed in sorted(higher.keys() & lower.keys()))


def _cell(fields: list[str], place: str) -> Published:
    if len(fields) != len(FIELDS):
        raise UserError(f"{place} has {len(fields)} fields: it needs {len(FIELDS)} ({', '.join(FIELDS)}).")
    row, column, text, value, rule, where = fields
    if rule not in RULES:
        raise UserError(f"{place} has the rule {rule!r}: choose {', '.join(RULES[:-1])} or {RULES[-1]}.")
    if text == MISSING:
        if value:
            raise UserError(f"{place} has the value {value!r} for a cell printed as '-': leave it empty.")
        return Published(row, column, text, None, rule, where)
    try:
        same = _number(text) == Decimal(value)
    except InvalidOperation:
        raise UserError(f"{place}: {text!r} with the value {value!r} is not a number that can be read.") from None
    if not same:
        raise UserError(f"{place} prints {text!r} but has the value {value!r}: they must be the same number.")
    return Published(row, column, text, float(value), rule, where)


def _number(text: str) -> Decimal:
    """The printed number; its exponent is the place of its last printed digit."""
    exponent = _SUFFIX_EXPONENT.get(text[-1:], 0)
    digits = text[:-1] if exponent else text.removesuffix("+")
    return Decimal(digits.replace(",", "")).scaleb(exponent)
