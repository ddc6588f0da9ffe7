"""Items that are calculated: from a paper's own numbers, the simulator, or the results of trained experiments.

A spec (`repro.spec.experiment.Calculation`) names its function; nothing here or in the pages knows one by its name.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from analysis.paper.published import Published, verdict
from analysis.render import Document
from repro.results.read import Result
from repro.spec.experiment import Calculation

COLUMNS = ("row", "column", "ours", "spread", "n", "paper", "tolerance", "verdict", "runs")
Line = tuple[str, ...]


class Results(Protocol):
    """Reads the results of an experiment by its name, at the scale that is shown or another."""

    def __call__(self, name: str, at: str = "") -> Sequence[Result]:
        """All of its runs, finished or not."""
        ...


@dataclass(frozen=True)
class Calculated:
    """What a calculation came to: `lines` stand under `COLUMNS`, `figure` draws its matplotlib figure."""

    document: Document
    lines: tuple[Line, ...]
    figure: Callable[[], Any] | None = None


def calculate(spec: Calculation, results: Results) -> Calculated:
    """By the function that the spec names."""
    module, _, function = spec.by.partition(":")
    return getattr(importlib.import_module(module), function)(spec, results)


def cell_line(cell: Published, ours: str, tolerance: float = 0.0, word: str = "") -> Line:
    """A published cell beside ours as it prints; the verdict is that of `verdict` unless `word` says another."""
    if not word:
        number = float(ours.replace(",", "").rstrip("+%")) if ours else None
        word = verdict(cell, number, tolerance, "paper")
    return (cell.row, cell.column, ours, "", "", cell.text, f"{tolerance:g}", word, "")
