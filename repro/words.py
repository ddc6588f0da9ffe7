"""Words on a screen: numbers in sentences, plain tables, and what a terminal has no sign for."""

import io
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def counted(count: int | str, noun: str) -> str:
    """`1 run`, `3 runs`, `? runs`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def span(numbers: Iterable[int]) -> str:
    """`43`, or `29 to 1,421`: from the least to the greatest. IndexError for none."""
    ascending = sorted(numbers)
    few, many = ascending[0], ascending[-1]
    return f"{few:,}" if few == many else f"{few:,} to {many:,}"


def last_line(text: str) -> str:
    """The sentence at the end of a reason, which may be a whole trace. IndexError for none."""
    return text.strip().splitlines()[-1]


UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


BYTE_UNITS = ((1e15, " PB"), (1e12, " TB"), (1e9, " GB"), (1e6, " MB"), (1e3, " kB"))


def aligned(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a plain table: the first `left` columns to the left, the others to the right."""
    table = [tuple(head), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def short(value: float, units: tuple[tuple[float, str], ...] = UNITS) -> str:
    """Three digits and a unit: 35.3M, 1.27B."""
    for unit, name in units:
        if value >= 0.9995 * unit:  # what rounds to 1,000 of a unit is 1 of the next
            return f"{value / unit:#.3g}".rstrip(".") + name
    return f"{value:.0f}"


def print_line(console: Any, text: str) -> None:
    """Onto a console of rich, beside its bars: the text as it is on one line, which only a screen may wrap."""
    console.print(text, soft_wrap=True, highlight=False, markup=False)


def show_what_can_be() -> None:
    """Replace, from now on, each character that standard output has no sign for; standard error does so by itself."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
