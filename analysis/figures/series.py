"""Drawing rows of runs as series of points: means with error bars, hollow where the point is not the paper's."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator

from analysis.figures.style import not_run
from analysis.tables.contents import Table
from analysis.tables.rows import LOSS, TableRow
from repro.evaluation.tasks import TABLE_METRIC

Value = Callable[[TableRow], tuple[float, float | None] | None]  # (mean, error) of a row; None where there is nothing
HOLLOW = "hollow: not in the paper's text"
CROSS = "printed in a table of the paper"


@dataclass(frozen=True)
class Look:
    """How the series of one method is drawn."""

    colour: str
    mark: str = "o"
    line: str = "-"


def loss(row: TableRow) -> tuple[float, float | None] | None:
    """Mean validation loss and its standard deviation over seeds."""
    return None if row.mean is None else (row.mean, row.spread)


def hellaswag(row: TableRow) -> tuple[float, float | None] | None:
    """HellaSwag in percent and its standard error over the questions."""
    score = row.score("HellaSwag", TABLE_METRIC)
    if score is None:
        return None
    return 100 * score.mean, None if score.standard_error is None else 100 * score.standard_error


def scale_words(table: Table, scored: str = "") -> str:
    """`mini (66k), n = 1 seed`: what stands in every title; `scored` is the column of a panel of scores."""
    sizes = tuple(dict.fromkeys(result.run.config.model.size for result in table.results))
    model = f" ({sizes[0]})" if len(sizes) == 1 else ""
    return f"{table.scale}{model}, {table.seeds_in_words(scored)}"


def rows_of(table: Table, method: str) -> tuple[TableRow, ...]:
    """The rows of one method, in the order of the spec."""
    return tuple(row for row in table.rows if row.method == method)


def draw_series(
    panel: Axes, rows: Sequence[TableRow], xs: Sequence[float], look: Look, label: str, value: Value = loss
) -> None:
    """One series: a line through its points, error bars, hollow marks for points that are not the paper's."""
    points = []
    for x, row in zip(xs, rows, strict=True):
        if (point := value(row)) is None:
            continue
        if value is loss and point[0] > row.results[0].guessing:
            _off_the_scale(panel, x, point[0], look)
        else:
            points.append((x, *point, row.ours))
    panel.plot([], [], look.line, marker=look.mark, color=look.colour, label=label)
    if value is loss:
        _printed(panel, rows, xs, look)
    if not points:
        return
    x, y, errors, _ = zip(*points, strict=True)
    bars = [math.nan if error is None else error for error in errors]
    panel.errorbar(x, y, bars, fmt=look.line, color=look.colour, capsize=2, elinewidth=0.9, zorder=2)
    for hollow in (False, True):
        chosen = [(a, b) for a, b, _, ours in points if ours is hollow]
        if chosen:
            face = "white" if hollow else look.colour
            panel.plot(*zip(*chosen, strict=True), look.mark, color=look.colour, mfc=face, zorder=3)


def _printed(panel: Axes, rows: Sequence[TableRow], xs: Sequence[float], look: Look) -> None:
    """The loss that a table of the paper prints of the same run, as a cross: at paper scale alone."""
    cells = [(x, row.printed.get(LOSS)) for x, row in zip(xs, rows, strict=True) if row.at_paper_scale]
    points = [(x, cell.value) for x, cell in cells if cell is not None and cell.value is not None]
    if points:
        panel.plot(*zip(*points, strict=True), "x", color=look.colour, ms=7, mew=1.4, zorder=4)


def _off_the_scale(panel: Axes, x: float, value: float, look: Look) -> None:
    """A diverged run is told at the upper edge, so that it doesn't press all others into one line."""
    text = f"{value:,.0f} ↑"
    panel.annotate(text, (x, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom", color=look.colour)


def by_x(panel: Axes, table: Table, looks: dict[str, tuple[Look, str]], value: Value = loss) -> None:
    """Each method's series over the x of its rows; says so where nothing is run."""
    for method, (look, label) in looks.items():
        rows = rows_of(table, method)
        draw_series(panel, rows, [row.x or 0.0 for row in rows], look, label, value)
    if not panel.containers:
        done = any(row.losses for row in table.rows)
        not_run(panel, "not evaluated" if done and value is hellaswag else "not run")


def log_ticks(panel: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis with a label at each value and nowhere else."""
    panel.set_xscale("log")
    panel.set_xticks(values, [f"{value:g}" for value in values])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_minor_formatter(NullFormatter())


def marks_key(panel: Axes, table: Table) -> None:
    """Say in the legend what hollow marks and crosses are, where there are any."""
    if any(row.ours for row in table.rows):
        panel.add_line(Line2D([], [], color="0.4", marker="o", mfc="white", ls="", label=HOLLOW))
    if table.scale == "paper" and any(LOSS in row.printed for row in table.rows):
        panel.add_line(Line2D([], [], color="0.4", marker="x", ls="", label=CROSS))
