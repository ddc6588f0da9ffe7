"""Figure 5: scaling, the paper's printed points beside ours."""

import math
from collections.abc import Iterable, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from analysis.figures.series import Value, hellaswag, loss, scale_words
from analysis.figures.style import MARKS, SCALING, STYLE, not_run, page_wide
from analysis.paper.fits import Line, published_points
from analysis.paper.published import by_place
from analysis.tables.contents import Slope, Table
from analysis.tables.rows import SCORES, TableRow
from repro.evaluation.tasks import TABLE_METRIC


@mpl.rc_context(STYLE)
def figure5(table: Table) -> Figure:
    """Loss and HellaSwag on FLOPs: the paper's printed points to the left, ours to the right, never on one axis.

    Solid lines are least squares of the loss on ln(FLOPs) (what the paper calls the scaling law slope),
    dashed ones power laws; both for the two methods whose slope the paper prints.
    """
    figure = page_wide(6.4)
    axes = figure.subplots(3, 2, height_ratios=(1, 1, 0.55))
    _paper_losses(axes[0, 0], table)
    _own_losses(axes[0, 1], table)
    _paper_scores(axes[1, 0], table)
    _own_scores(axes[1, 1], table)
    _key(axes[2, 0], table)
    _slopes(axes[2, 1], table)
    return figure


def _paper_losses(axes: Axes, table: Table) -> None:
    axes.set_title("(a) The paper, printed cells of Table 5", loc="left")
    for index, slope in enumerate(table.slopes):
        points = published_points(table.cells, slope.method)
        if points:
            axes.plot(*zip(*points, strict=True), MARKS[index], color=SCALING[index], mfc="none", zorder=3)
        if slope.printed:
            _lines(axes, [flops for flops, _ in points], slope.paper, slope.paper_power, SCALING[index])
    _label(axes, "Eval loss (nats a token)")


def _own_losses(axes: Axes, table: Table) -> None:
    axes.set_title(f"(a) Ours, {scale_words(table)}", loc="left")
    for index, slope in enumerate(table.slopes):
        rows = [row for row in table.rows if row.method == slope.method and row.losses]
        _bars(axes, rows, index, loss)
        if slope.printed:
            flops = [row.flops for row in rows if row.flops is not None]
            _lines(axes, flops, slope.ours, slope.ours_power, SCALING[index])
    if not any(row.losses for row in table.rows):
        not_run(axes)
    _label(axes, "Eval loss (nats a token)")


def _own_scores(axes: Axes, table: Table) -> None:
    axes.set_title(f"(b) Ours, {scale_words(table, 'HellaSwag')}, ± standard error", loc="left")
    for index, slope in enumerate(table.slopes):
        _bars(axes, [row for row in table.rows if row.method == slope.method], index, hellaswag)
    if not axes.containers:
        not_run(axes, "not evaluated" if any(row.losses for row in table.rows) else "not run")
    _label(axes, f"HellaSwag {TABLE_METRIC} (%)")


def _bars(axes: Axes, rows: Sequence[TableRow], index: int, value: Value) -> None:
    """Means with their errors; no bar where one seed has none."""
    drawn = [(row.flops, *point) for row in rows if row.flops and (point := value(row)) is not None]
    if not drawn:
        return
    flops, means, errors = zip(*drawn, strict=True)
    bars = [math.nan if error is None else error for error in errors]
    axes.errorbar(
        flops, means, bars, fmt=MARKS[index], color=SCALING[index], mfc="none", capsize=2, elinewidth=0.9, zorder=3
    )


def _paper_scores(axes: Axes, table: Table) -> None:
    axes.set_title("(b) The paper, printed cells of Table 5", loc="left")
    place = by_place(table.cells)
    flops = {row: cell.value for (row, column), cell in place.items() if column == "Flops"}
    for index, slope in enumerate(table.slopes):
        scores = [(x, place.get((f"{size} | {slope.method}", SCORES[0]))) for size, x in flops.items()]
        points = [(x, cell.value) for x, cell in scores if cell is not None and cell.value is not None]
        if points:
            axes.plot(*zip(*points, strict=True), f"{MARKS[index]}-", color=SCALING[index], mfc="none", lw=0.7)
    _label(axes, "HellaSwag accuracy (%)")


def _lines(axes: Axes, flops: Iterable[float], line: Line | None, power: Line | None, colour: str) -> None:
    if line is None or power is None:
        return
    xs = list(flops)
    grid = np.geomspace(min(xs) / 1.4, max(xs) * 1.4, 100)
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
    axes.set_axis_off()
    keys = [
        Line2D([], [], color=SCALING[i], marker=MARKS[i], mfc="none", ls="", label=_name(slope.method_run))
        for i, slope in enumerate(table.slopes)
    ]
    keys.append(Line2D([], [], color="0.3", ls="-", label="loss = a + b ln FLOPs"))
    keys.append(Line2D([], [], color="0.3", ls="--", label="power law"))
    axes.legend(handles=keys, loc="upper left", borderaxespad=0)


def _slopes(axes: Axes, table: Table) -> None:
    """The slopes: from the paper's cells, as it prints them, and ours."""
    axes.set_axis_off()
    lines = [_slope_words(slope, i, table) for i, slope in enumerate(table.slopes) if slope.printed]
    axes.text(0, 1, "\n".join(["Slopes b", *lines]), transform=axes.transAxes, va="top", fontsize=7.5)


def _name(method: str) -> str:
    """On two lines where it is long."""
    return method.replace(" with ", "\nwith ")


def _slope_words(slope: Slope, index: int, table: Table) -> str:
    ours = f"{slope.ours.slope:.3f}" if slope.ours else "not run"
    cells = f"{slope.paper.slope:.5f}" if slope.paper else "–"
    name = SCALING[index].removeprefix("tab:")
    printed = slope.printed.text if slope.printed else "–"
    return f"{name}: {cells} from the paper's cells\n({printed} printed); ours, {table.scale}: {ours}"
