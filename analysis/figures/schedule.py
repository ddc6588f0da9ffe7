"""Figures 1 and 2, drawn from the code that the trainer follows: its fragments and its schedule."""

from collections.abc import Callable

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from analysis.figures.style import COLUMN_IN, GREEN, ORANGE, PURPLE, STYLE
from experiments.streaming import figure1 as spec1
from experiments.streaming import figure2 as spec2
from repro.network.scenario import Illustration
from repro.spec.config import SyncConfig
from repro.spec.fragments import Fragment, cut
from repro.spec.schedule import events

COLOURS = (GREEN, ORANGE, PURPLE)
IDLE = "#e6e6e6"


@mpl.rc_context(STYLE)
def figure1(spec: Illustration = spec1.EXPERIMENT) -> Figure:
    """A row a replica, a box an inner step; a bar across the replicas where they synchronise a fragment."""
    ((_, sync),) = spec.schedules
    pieces = cut(sync.fragments, spec.layers)
    figure = Figure(figsize=(COLUMN_IN, 1.9), layout="constrained")
    panel = figure.subplots()
    for replica in range(spec.replicas):
        for step in range(spec.first_step, spec.steps + 1):
            panel.add_patch(Rectangle((step - 1 + 0.08, spec.replicas - 1 - replica + 0.3), 0.84, 0.4, facecolor=IDLE))
    syncs = _synchronised(spec, sync, pieces)
    for step, fragment in syncs:
        panel.add_patch(Rectangle((step - 0.18, 0.12), 0.36, spec.replicas - 0.24, facecolor=COLOURS[fragment]))
    panel.set_xlim(spec.first_step - 1.3, spec.steps + 0.6)
    panel.set_ylim(0, spec.replicas)
    names = [f"replica {m + 1}" for m in reversed(range(spec.replicas))]
    panel.set_yticks([m + 0.5 for m in range(spec.replicas)], names)
    panel.set_xticks([step for step, _ in syncs])
    panel.set_xlabel(f"Inner step (H = {sync.every})")
    _bare(panel)
    _legend(figure, pieces)
    return figure


@mpl.rc_context(STYLE)
def figure2(spec: Illustration = spec2.EXPERIMENT) -> Figure:
    """For each pattern the layers, bottom to top, at each synchronisation: filled where they take part."""
    figure = Figure(figsize=(COLUMN_IN, 2.3), layout="constrained")
    panels = figure.subplots(1, len(spec.schedules), sharey=True)
    for panel, (label, sync) in zip(panels, spec.schedules, strict=True):
        pieces = cut(sync.fragments, spec.layers)
        syncs = _synchronised(spec, sync, pieces)
        for column, (_, fragment) in enumerate(syncs):
            for layer in range(spec.layers):
                taken = layer in pieces[fragment].layers
                box = Rectangle((column + 0.1, layer + 0.1), 0.8, 0.8, facecolor=COLOURS[fragment] if taken else IDLE)
                panel.add_patch(box)
        panel.set_title(label, loc="left")
        panel.set_xlim(0, len(syncs))
        panel.set_ylim(0, spec.layers)
        panel.set_xticks([i + 0.5 for i in range(len(syncs))], [str(step) for step, _ in syncs])
        panel.set_yticks([i + 0.5 for i in range(spec.layers)], [str(i + 1) for i in range(spec.layers)])
        panel.set_xlabel("Synchronised after step")
        _bare(panel)
    panels[0].set_ylabel("Layer")
    _legend(figure, pieces)
    return figure


DRAWN: dict[str, Callable[[], Figure]] = {"figure1": figure1, "figure2": figure2}


def _synchronised(spec: Illustration, sync: SyncConfig, pieces: tuple[Fragment, ...]) -> tuple[tuple[int, int], ...]:
    """(inner step, fragment) of each synchronisation shown."""
    steps = range(spec.first_step, spec.steps + 1)
    return tuple((step, p) for step in steps for p in events(sync, len(pieces), spec.replicas, step).syncs)


def _bare(panel: Axes) -> None:
    panel.grid(visible=False)
    for side in ("left", "bottom"):
        panel.spines[side].set_visible(False)
    panel.tick_params(length=0)


def _legend(figure: Figure, pieces: tuple[Fragment, ...]) -> None:
    handles = [Patch(facecolor=COLOURS[p], label=f"fragment {p + 1}") for p in range(len(pieces))]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
