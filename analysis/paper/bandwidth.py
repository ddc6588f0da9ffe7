"""Simulated tables of bandwidth beside the published cells: Table 6 of 2503.09799 and Table 5 of 2502.12996.

Each cell is read from a curve of the steady state as Table 4 of 2501.18512 is (`repro.network.scenario.PAPER_GRID`).
Nothing is fitted here; what was found by trying is an assumption of its spec.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.calculated import Calculated, Results
from analysis.paper.published import Published, load_cells
from analysis.render import Document, Grid, Notes
from experiments.eager.table5 import kind_of, overlap_schedules
from experiments.scaling_laws.table6 import EVERY_STEP, h_schedules
from repro.network.scenario import PAPER_GRID, Schedules, least_bandwidth, printed_reading
from repro.network.simulate import Link, Times, utilisation
from repro.spec.experiment import Calculation

EXACT, NEAR, OFF = "reproduced", "within one bin", "off by more than a bin"
WITH = "Streaming DiLoCo with "  # which a row of a terminal has no room for
STEP_TIME, LAYERS = "Step time (s)", "# layers"  # columns that are given, not simulated


@dataclass(frozen=True)
class Reading:
    """A simulated cell: as it prints, and how many bins above the paper's it lies."""

    cell: Published
    text: str
    bins: int

    @property
    def verdict(self) -> str:
        """Printed text against printed text, then bins."""
        return EXACT if self.text == self.cell.text else NEAR if abs(self.bins) <= 1 else OFF


def h_table(spec: Calculation, results: Results) -> Calculated:
    """Table 6 of the scaling-law paper; H = 1 is shown and not counted."""
    schedules = h_schedules()
    readings = bandwidth_readings(schedules, load_cells("table6", "scaling-laws"))
    counted = [reading for reading in readings if not reading.cell.row.endswith(EVERY_STEP)]
    below = sum(reading.bins < 0 for reading in counted)
    counts = (_count("All cells", counted), f"Below the paper's: {below or 'none'}.")
    return _calculated(spec, schedules, readings, counts)


def overlap_table(spec: Calculation, results: Results) -> Calculated:
    """Table 5 of Eager Updates, with a count for each rule."""
    schedules = overlap_schedules()
    readings = bandwidth_readings(schedules, load_cells("table5", "eager"))
    by_kind: dict[str, list[Reading]] = {}
    for reading in readings:
        by_kind.setdefault(kind_of(reading.cell.row), []).append(reading)
    counts = [_count(kind[0].upper() + kind[1:], group) for kind, group in by_kind.items()]
    return _calculated(spec, schedules, readings, (*counts, _count("All cells", readings)))


def bandwidth_readings(schedules: Schedules, cells: Sequence[Published]) -> tuple[Reading, ...]:
    """Every simulated cell, in printed order."""
    readings = []
    curves = {row: utilisation(cycle, (step,), Link.of(PAPER_GRID)) for row, (cycle, step) in schedules.items()}
    for cell in cells:
        if cell.column in (STEP_TIME, LAYERS):
            continue
        index = int(np.searchsorted(curves[cell.row], _target(cell))) - 1
        readings.append(Reading(cell, grid_text(index), _bins(index, cell.text)))
    return tuple(readings)


def _target(cell: Published) -> float:
    return float(cell.column.removesuffix("%")) / 100


def grid_text(index: int, grid: Times = PAPER_GRID) -> str:
    """How the last grid point below a target prints: 1000.0+ where the grid ends below it, - where none is below."""
    if index < 0:
        return "-"
    return printed_reading(float(grid[index])) + ("+" if index == len(grid) - 1 else "")


def _bins(index: int, text: str) -> int:
    """How far above the nearest grid point that prints as this text."""
    same = [i for i in range(len(PAPER_GRID)) if grid_text(i) == text]
    return index - min(same, key=lambda i: abs(i - index))


def _count(what: str, readings: Sequence[Reading]) -> str:
    tally: Callable[[str], int] = [reading.verdict for reading in readings].count
    exact, near, off = map(tally, (EXACT, NEAR, OFF))
    return f"{what}: {exact} of {len(readings)} print as published, {exact + near} lie within one bin, {off} are off."


def _calculated(
    spec: Calculation, schedules: Schedules, readings: Sequence[Reading], counts: Sequence[str]
) -> Calculated:
    by_row: dict[str, list[Reading]] = {}
    for reading in readings:
        by_row.setdefault(reading.cell.row, []).append(reading)
    columns = tuple(dict.fromkeys(reading.cell.column for reading in readings))
    rows = tuple((*row.replace(WITH, "… ").split(" | ", 1), *map(_signed, group)) for row, group in by_row.items())
    head = ("Model", "Method", *columns)
    lines = tuple((r.cell.row, r.cell.column, r.text, "", "", r.cell.text, "one bin", r.verdict, "") for r in readings)
    far = tuple(
        f"{r.cell.row}, {r.cell.column}: {r.text} where the paper has {r.cell.text}; the target is reached at "
        f"{_crossing(r.cell, schedules):.4g} Gbit/s."
        for r in readings
        if r.verdict == OFF
    )
    sections = (
        Grid("Ours = the paper's; ≈: within a bin; ≠: off by more", head, rows, left=2),
        Notes("", tuple(counts)),
        *((Notes("Off", far),) if far else ()),
        Notes("What the paper leaves open", spec.assumptions),
    )
    return Calculated(Document(f"{spec.title} ({spec.place})", (), sections), lines)


def _crossing(cell: Published, schedules: Schedules) -> float:
    """The Gbit/s at which the steady state truly reaches a cell's target."""
    cycle, step = schedules[cell.row]
    return least_bandwidth(cycle, (step,), (_target(cell),))[0]


def _signed(reading: Reading) -> str:
    sign = {EXACT: "=", NEAR: "≈", OFF: "≠"}[reading.verdict]
    return f"{reading.text} {sign} {reading.cell.text}"
