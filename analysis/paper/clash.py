"""What two statements of the paper that can't both hold are, and how either is read from the published cells."""

from dataclasses import dataclass

from analysis.paper.published import by_place, load_cells


@dataclass(frozen=True)
class Inconsistency:
    """Two statements that can't both hold, where they stand, and the calculation."""

    title: str
    where: str
    one: str
    other: str
    calculation: str


def printed_text(row: str, column: str) -> str:
    """The characters printed for a number of the text."""
    return by_place(load_cells("statements"))[row, column].text


def printed_number(row: str, column: str, item: str = "statements") -> float:
    """The printed number of a cell, of the text unless an item is named; ValueError where none is printed."""
    number = by_place(load_cells(item))[row, column].value
    if number is None:
        raise ValueError(f"{item}, {row}, {column}: the paper prints no number here.")
    return number
