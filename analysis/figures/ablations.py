"""Figures 6, 8, 10, 11, 12 and 13 and the FedPart comparison: one function each, from a table of runs.

Losses of a miniature never share an axis with a number of the paper; relative changes may, and the scale is named.
"""

import statistics
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.series import (
    Look,
    Value,
    by_x,
    draw_series,
    hellaswag,
    log_ticks,
    loss,
    marks_key,
    rows_of,
    scale_words,
)
from analysis.figures.style import GREEN, GREY, ORANGE, PURPLE, RED, STYLE, column, legend_below, not_run
from analysis.paper.published import Published, by_place
from analysis.tables.contents import Table
from analysis.tables.rows import TableRow
from experiments.streaming.figure11 import DROPS, PRECISION
from experiments.streaming.figure12 import GLOBAL, LOCAL
from repro.evaluation.tasks import TABLE_METRIC

LOSS_LABEL = "Eval loss (nats a token)"
DROP_LOOKS = {"feddropout": (ORANGE, "s"), "dare": (PURPLE, "^"), "topk": (GREEN, "D"), "ties": (GREY, "v")}


@mpl.rc_context(STYLE)
def figure6(table: Table) -> Figure:
    """(a): loss over the layers in a fragment, both patterns; (b), the peak bandwidth, is simulated."""
    looks = {"Strided": (Look(GREEN), "strided"), "Sequential": (Look(PURPLE, "s", "--"), "sequential")}
    note = "" if table.scale == "paper" else "; ours have a third of the layers"
    figure, panel = _one(table, looks, f"layers in a fragment{note}")
    log_ticks(panel, _xs(table))
    return figure


@mpl.rc_context(STYLE)
def figure8(table: Table) -> Figure:
    """Loss over τ for α = 0 and 0.5; the band is the degradation that the paper calls negligible."""
    looks = {"α = 0": (Look(ORANGE, "s", "--"), "α = 0"), "α = 0.5": (Look(GREEN), "α = 0.5")}
    figure, panel = _one(table, looks, table.experiment.axis, _negligible(table.statements))
    panel.set_xticks(_xs(table))
    return figure


@mpl.rc_context(STYLE)
def figure10(table: Table) -> Figure:
    """Loss over τ₂ of the second worker; the first has τ₁ = 1."""
    figure, panel = _one(table, {"τ₁ = 1": (Look(GREEN), "τ₁ = 1, α = 0.5")}, "overlapped inner steps τ₂")
    panel.set_xticks(_xs(table))
    return figure


@mpl.rc_context(STYLE)
def figure11(table: Table) -> Figure:
    """Loss and, where evaluated, HellaSwag: formats as one group, schemes that drop values as another."""
    scored = any(hellaswag(row) for row in table.rows)
    figure = column(4.6 if scored else 3.1)
    panels = figure.subplots(2 if scored else 1, 1, sharex=True, squeeze=False)[:, 0]
    for panel, value, name in zip(
        panels, (loss, hellaswag), (LOSS_LABEL, f"HellaSwag {TABLE_METRIC} (%)"), strict=False
    ):
        _compressions(panel, table, value)
        panel.set_ylabel(name)
    panels[0].set_title(f"Ours, {scale_words(table)}", loc="left")
    if scored:
        panels[1].set_title(f"Ours, {scale_words(table, 'HellaSwag')}", loc="left")
    marks_key(panels[0], table)
    legend_below(figure, panels[0], columns=2)
    return figure


@mpl.rc_context(STYLE)
def figure12(table: Table) -> Figure:
    """(a) constant global batch, (b) constant local batch: loss over the number of replicas."""
    figure = column(2.9)
    panels = figure.subplots(1, 2, sharey=True)
    for letter, panel, kind in zip("ab", panels, (GLOBAL, LOCAL), strict=True):
        by_x(panel, table, {f"{m}, {kind}": (look, m) for m, look in _METHODS.items()})
        log_ticks(panel, _xs(table))
        panel.set_title(f"({letter}) {kind}", loc="left", fontsize=7)
        panel.set_xlabel(table.experiment.axis)
    panels[0].set_ylabel(LOSS_LABEL)
    figure.suptitle(f"Ours, {scale_words(table)}", fontsize=8, x=0.01, ha="left")
    marks_key(panels[0], table)
    legend_below(figure, panels[0], columns=2)
    return figure


@mpl.rc_context(STYLE)
def figure13(table: Table) -> Figure:
    """Loss over H for DiLoCo and Streaming DiLoCo."""
    figure, panel = _one(table, {m: (look, m) for m, look in _METHODS.items()}, table.experiment.axis)
    log_ticks(panel, _xs(table))
    return figure


@mpl.rc_context(STYLE)
def fedpart(table: Table) -> Figure:
    """How much the loss rises when the other layers are frozen, in percent: the paper's two losses and ours."""
    figure = column(1.7)
    panel = figure.subplots()
    place = by_place(table.statements)
    cells = [place.get((f"FedPart | {kind}", "Eval Loss")) for kind in ("frozen", "not frozen")]
    values = [cell.value for cell in cells if cell is not None and cell.value is not None]
    names = [f"ours, {scale_words(table)}"]
    rise, error = _rise(table.rows)
    if rise is None:
        panel.annotate("not run", (0, 0), xytext=(6, 0), textcoords="offset points", va="center")
    else:
        panel.barh([0], [rise], xerr=error, color=RED, height=0.5, capsize=2)
        panel.annotate(f"{rise:+.1f} %", (max(rise, 0), 0), xytext=(6, 0), textcoords="offset points", va="center")
    if len(values) == 2:
        names.append("the paper, 500M")
        theirs = 100 * (values[0] / values[1] - 1)
        panel.barh([1], [theirs], color="none", edgecolor="0.3", height=0.5)
        panel.annotate(f"{theirs:+.1f} %", (theirs, 1), xytext=(6, 0), textcoords="offset points", va="center")
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(-0.6, len(names) - 0.4)
    panel.margins(x=0.25)
    panel.set_xlabel("Rise of the eval loss when frozen (%)")
    panel.grid(visible=False, axis="y")
    return figure


_METHODS = {"DiLoCo": Look(ORANGE, "s"), "Streaming DiLoCo": Look(GREEN, "^")}


def _one(
    table: Table,
    looks: dict[str, tuple[Look, str]],
    axis: str,
    degradation: tuple[float, float] | None = None,
) -> tuple[Figure, Axes]:
    """One panel of losses; `degradation` is (percent, up to which x)."""
    figure = column(2.9)
    panel = figure.subplots()
    by_x(panel, table, looks)
    if degradation is not None:
        _band(panel, table, next(reversed(looks)), degradation)
    panel.set_title(f"Ours, {scale_words(table)}", loc="left")
    panel.set_xlabel(axis)
    panel.set_ylabel(LOSS_LABEL)
    marks_key(panel, table)
    legend_below(figure, panel, columns=2)
    return figure, panel


def _band(panel: Axes, table: Table, method: str, degradation: tuple[float, float]) -> None:
    percent, until = degradation
    rows = [row for row in rows_of(table, method) if row.mean is not None]
    if rows:
        first = rows[0].mean or 0.0
        panel.fill_between(
            [rows[0].x or 0.0, until],
            first,
            first * (1 + percent / 100),
            color="0.88",
            zorder=0,
            label=f"less than {percent:g} % above the first point, which\nthe paper says of its own up to {until:g}",
        )


def _negligible(statements: Sequence[Published]) -> tuple[float, float] | None:
    place = by_place(statements)
    below, until = place.get(("overlap", "Degradation below (%)")), place.get(("overlap", "Up to τ"))
    if below is None or until is None or below.value is None or until.value is None:
        return None
    return below.value, until.value


def _compressions(panel: Axes, table: Table, value: Value) -> None:
    formats = rows_of(table, PRECISION)
    draw_series(panel, formats, range(len(formats)), Look(RED), "lower precision", value)
    dropped = [point for point in dict.fromkeys(row.point for row in table.rows) if point.endswith("kept")]
    start = len(formats) + 0.5
    for i, (key, name) in enumerate(DROPS.items()):
        rows, (colour, mark) = rows_of(table, name), DROP_LOOKS[key]
        xs = [start + dropped.index(row.point) + 0.14 * (i - 1.5) for row in rows]
        draw_series(panel, rows, xs, Look(colour, mark, ":"), name, value)
    if not panel.containers:
        not_run(panel)
    panel.axvline(len(formats) - 0.25, color="0.8", linewidth=0.8)
    ticks = [*range(len(formats)), *(start + i for i in range(len(dropped)))]
    names = [_bits(row) for row in formats] + [point.replace(" kept", "\nkept") for point in dropped]
    panel.set_xticks(ticks, names, rotation=60, ha="right", rotation_mode="anchor")
    panel.set_xlim(-0.5, start + len(dropped) - 0.4)


def _bits(row: TableRow) -> str:
    return f"{row.point.removesuffix('_e4m3')}, {row.x:g} bit"


def _rise(rows: Sequence[TableRow]) -> tuple[float | None, float | None]:
    """(mean, standard deviation) over the seeds of frozen / not frozen − 1, in percent, paired by seed."""
    plain, frozen = rows[0].losses, rows[1].losses
    percents = [100 * (frozen[seed] / plain[seed] - 1) for seed in sorted(plain.keys() & frozen.keys())]
    if not percents:
        return None, None
    return statistics.fmean(percents), statistics.stdev(percents) if len(percents) > 1 else None


def _xs(table: Table) -> list[float]:
    return sorted({row.x for row in table.rows if row.x is not None})
