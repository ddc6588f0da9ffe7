"""Figures of trained runs. matplotlib lives here alone, apart from the simulated ones."""

import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from analysis.fits import Line, published_points
from analysis.tables import SCORES, Row, Slope, Table
from repro.paper import by_place

# §3.2.1 names them: blue, orange, green, red, in the order of Table 5's rows.
COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red")
MARKS = ("o", "s", "^", "D")
TEXT_IN = 7.0
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 4,
    "svg.hashsalt": "figure5",  # the same file from the same numbers
}


def figure5(table: Table) -> Figure:
    """Loss on FLOPs: the paper's printed points and ours in panels of their own, and its HellaSwag.

    Solid lines are least squares of the loss on ln(FLOPs) (what the paper calls the scaling law slope),
    dashed ones power laws; both for the two methods whose slope the paper prints.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(TEXT_IN, 5.2), layout="constrained")
        axes = figure.subplots(2, 2)
        _paper_losses(axes[0, 0], table)
        _own_losses(axes[0, 1], table)
        _paper_scores(axes[1, 0], table)
        _key(axes[1, 1], table)
    return figure


def image(figure: Figure, form: str) -> bytes:
    """The figure as png (200 dots an inch) or svg, without a date so that equal figures are equal files."""
    out = io.BytesIO()
    with mpl.rc_context(STYLE):
        metadata = {"Date": None} if form == "svg" else {}
        figure.savefig(out, format=form, dpi=200, metadata=metadata)
    return out.getvalue()


def _paper_losses(axes: Axes, table: Table) -> None:
    axes.set_title("The paper: printed cells of Table 5", loc="left")
    for index, slope in enumerate(table.slopes):
        points = published_points(table.cells, slope.method)
        if points:
            axes.plot(*zip(*points, strict=True), MARKS[index], color=COLOURS[index], mfc="none", zorder=3)
        if slope.printed:
            _lines(axes, [flops for flops, _ in points], slope.paper, slope.paper_power, COLOURS[index])
    _label(axes, "Eval loss (nats a token)")


def _own_losses(axes: Axes, table: Table) -> None:
    n = f"n = {table.seeds} seed{'' if table.seeds == 1 else 's'}"
    axes.set_title(f"Ours, scale {table.scale} ({n})", loc="left")
    for index, slope in enumerate(table.slopes):
        rows = [row for row in table.rows if row.method == slope.method and row.losses]
        _bars(axes, rows, index)
        if slope.printed:
            flops = [row.flops for row in rows if row.flops is not None]
            _lines(axes, flops, slope.ours, slope.ours_power, COLOURS[index])
    if not any(row.losses for row in table.rows):
        axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center")
    _label(axes, "Eval loss (nats a token)")


def _bars(axes: Axes, rows: Sequence[Row], index: int) -> None:
    """Means with the standard deviation over seeds; no bar where one seed has none."""
    drawn = [
        (row.flops, row.mean, math.nan if row.spread is None else row.spread) for row in rows if row.flops and row.mean
    ]
    if not drawn:
        return
    flops, means, spreads = zip(*drawn, strict=True)
    axes.errorbar(
        flops, means, spreads, fmt=MARKS[index], color=COLOURS[index], mfc="none", capsize=2, elinewidth=0.9, zorder=3
    )


def _paper_scores(axes: Axes, table: Table) -> None:
    axes.set_title("The paper: HellaSwag (ours: see the table)", loc="left")
    place = by_place(table.cells)
    flops = {row: cell.value for (row, column), cell in place.items() if column == "Flops"}
    for index, slope in enumerate(table.slopes):
        scores = [(x, place.get((f"{size} | {slope.method}", SCORES[0]))) for size, x in flops.items()]
        points = [(x, cell.value) for x, cell in scores if cell is not None and cell.value is not None]
        if points:
            axes.plot(*zip(*points, strict=True), f"{MARKS[index]}-", color=COLOURS[index], mfc="none", lw=0.7)
    _label(axes, "HellaSwag accuracy (%)")


def _lines(axes: Axes, flops: Iterable[float], line: Line | None, power: Line | None, colour: str) -> None:
    if line is None or power is None:
        return
    found = list(flops)
    grid = np.geomspace(min(found) / 1.4, max(found) * 1.4, 100)
    axes.plot(grid, [line.at(x) for x in grid], "-", color=colour)
    axes.plot(grid, [float(np.exp(power.at(x))) for x in grid], "--", color=colour)


def _label(axes: Axes, what: str) -> None:
    axes.set_xscale("log")
    # Labels of every minor tick run into each other on a range of one decade; 1 and 3 of each are enough.
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3) if _decades(axes) < 2 else (1,)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("FLOPs")
    axes.set_ylabel(what)


def _decades(axes: Axes) -> float:
    low, high = axes.get_xlim()
    return math.log10(high / low)


def _key(axes: Axes, table: Table) -> None:
    """Methods, then the slopes: ours, the paper's cells and what it prints."""
    axes.set_axis_off()
    keys = [
        Line2D([], [], color=COLOURS[i], marker=MARKS[i], mfc="none", ls="", label=_name(slope.method))
        for i, slope in enumerate(table.slopes)
    ]
    keys.append(Line2D([], [], color="0.3", ls="-", label="loss = a + b ln FLOPs"))
    keys.append(Line2D([], [], color="0.3", ls="--", label="power law"))
    axes.legend(handles=keys, loc="upper left", borderaxespad=0)
    told = [_told(slope, i, table) for i, slope in enumerate(table.slopes) if slope.printed]
    axes.text(0, 0, "\n".join(["Slopes b", *told]), transform=axes.transAxes, va="bottom", fontsize=7.5)


def _name(method: str) -> str:
    """On two lines where it is long."""
    return method.replace(" with ", "\nwith ")


def _told(slope: Slope, index: int, table: Table) -> str:
    ours = f"{slope.ours.slope:.3f}" if slope.ours else "not run"
    cells = f"{slope.paper.slope:.5f}" if slope.paper else "–"
    name = COLOURS[index].removeprefix("tab:")
    printed = slope.printed.text if slope.printed else "–"
    return f"{name}: {cells} from the paper's cells\n({printed} printed); ours, {table.scale}: {ours}"
