"""Numbers in sentences."""

from collections.abc import Iterable


def counted(count: int | str, noun: str) -> str:
    """`1 run`, `3 runs`, `? runs`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def span(numbers: Iterable[int]) -> str:
    """`43`, or `29 to 1,421`: from the least to the greatest. IndexError for none."""
    found = sorted(numbers)
    few, many = found[0], found[-1]
    return f"{few:,}" if few == many else f"{few:,} to {many:,}"
