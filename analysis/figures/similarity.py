"""Figures 17 and 18: how alike the replicas' outer gradients are over training, from the log of each send."""

import math
from collections.abc import Callable

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.series import scale_words
from analysis.figures.style import STYLE, TEXT_IN, column, legend_below, not_run
from analysis.tables.contents import Table
from analysis.tables.rows import TableRow
from analysis.tables.similarity import Series, fragments, layer
from repro.results.read import Result

BINS = 40  # of training: each point is the mean over the sends in one


@mpl.rc_context(STYLE)
def figure17(table: Table) -> Figure:
    """(a) all fragments but the embedding, (b) the embedding: one line a size, over the share of training."""
    figure = column(4.2)
    panels = figure.subplots(2, 1, sharex=True)
    shades = mpl.colormaps["viridis_r"](np.linspace(0.15, 0.95, len(table.rows)))
    for letter, panel, embedding in zip("ab", panels, (False, True), strict=True):
        for row, shade in zip(table.rows, shades, strict=True):
            points = binned(row, lambda result, e=embedding: fragments(result, e))
            if points:
                panel.plot(*zip(*points, strict=True), ".-", color=shade, label=row.point, markersize=3)
        what = "embedding" if embedding else "all but the embedding"
        _axes(panel, f"({letter}) {what}: ours, {scale_words(table)}")
    panels[1].set_xlabel("Share of training")
    legend_below(figure, panels[0], columns=6)
    return figure


@mpl.rc_context(STYLE)
def figure18(table: Table) -> Figure:
    """One panel a size, one line a layer: darker is earlier."""
    across = min(3, len(table.rows))
    down = math.ceil(len(table.rows) / across)
    figure = Figure(figsize=(TEXT_IN, 0.4 + 1.9 * down), layout="constrained")
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    for panel, row in zip(panels, table.rows, strict=False):
        layers = row.results[0].run.config.model.layers
        shades = mpl.colormaps["Blues_r"](np.linspace(0.0, 0.75, layers))
        for number in range(layers):
            points = binned(row, lambda result, n=number: layer(result, n))
            if points:
                name = f"layer {number + 1}" if number in (0, layers - 1) else None
                panel.plot(*zip(*points, strict=True), "-", color=shades[number], label=name)
        _axes(panel, f"{row.point}: ours, {table.scale}")
        if panel.lines[1:]:
            panel.legend(loc="best")
    for panel in panels[len(table.rows) :]:
        panel.set_axis_off()
    for panel in panels[max(0, len(table.rows) - across) : len(table.rows)]:
        panel.set_xlabel("Share of training")
        panel.tick_params(labelbottom=True)
    return figure


def binned(row: TableRow, of: Callable[[Result], Series]) -> list[tuple[float, float]]:
    """(share of training, mean cosine) in `BINS` equal parts of a row's training, over its seeds."""
    import pandas as pd

    points = pd.DataFrame([point for result in row.results for point in of(result)], columns=["share", "cosine"])
    part = (points["share"].astype(float) * BINS).astype(int).clip(upper=BINS - 1)
    means = points["cosine"].groupby(part).agg("mean").to_dict()
    return [((number + 0.5) / BINS, mean) for number, mean in means.items()]


def _axes(panel: Axes, title: str) -> None:
    if not panel.lines:
        not_run(panel)
    panel.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    panel.set_xlim(0, 1)
    panel.set_ylabel("Cosine similarity")
    panel.set_title(title, loc="left")
