"""Figures 3, 4, 6b, 7, 9, 14, 15 and 16 from the simulator, each as PNG and SVG.

Curves have the paper's axes: utilisation from 0 to 1 over bandwidth from 0.1 to 1000 Gbit/s, logarithmic.
Its figures have no published digits, so nothing of theirs is drawn but what a table prints.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter

from analysis.figures.style import COLOURS, COLUMN_IN, FORMS, STYLE, TEXT_IN, image, legend_below, save_drawn
from experiments.streaming import figure3, figure4, figure7, figure9, figure14, figure15, figure16
from experiments.streaming.base import model, streaming
from repro.files import write_bytes
from repro.network.account import send_bytes
from repro.network.forecast import Forecast, Question
from repro.network.scenario import PAPER_GRID, Drawing, Simulation, paper_curve
from repro.network.simulate import Cycle, Kind, Link, Node, trace, utilisation
from repro.spec.experiment import vary

DASHES = {"strided": "-", "sequential": "--"}
NODE_COLOURS: dict[Kind, str] = {
    "forward": "#4c8fd0",
    "backward_activations": "#a6d69b",
    "backward_parameters": "#2f8f46",
    "reduction": "#9166b8",
}
NODE_LABELS: dict[Kind, str] = {
    "forward": "forward",
    "backward_activations": "backward, activations",
    "backward_parameters": "backward, parameters",
    "reduction": "reduction",
}
CHOSEN_LAYERS = 3  # |p|, §3.3.1
FINE_GRID = np.logspace(-1, 3, 400)


DRAWN: dict[str, Callable[[], Figure]] = {
    "figure3": lambda: draw_schedules(figure3.EXPERIMENT),
    "figure4": lambda: draw_curves(figure4.EXPERIMENT, marks=True),
    "figure6b": lambda: draw_peak_bandwidth(),
    "figure7": lambda: draw_patterns(figure7.EXPERIMENT),
    "figure9": lambda: draw_delays(figure9.EXPERIMENT),
    "figure14": lambda: draw_schedules(figure14.EXPERIMENT),
    "figure15": lambda: draw_curves(figure15.EXPERIMENT),
    "figure16": lambda: draw_curves(figure16.EXPERIMENT),
}


def build_figures(out: Path, names: Iterable[str] = tuple(DRAWN), forms: Sequence[str] = FORMS) -> tuple[Path, ...]:
    """Draw them under `out`; the files written."""
    return tuple(path for name in names for path in save_drawn(DRAWN[name], out / name, forms))


def draw_curves(spec: Simulation, marks: bool = False) -> Figure:
    """Figures 4, 15, 16: one panel a network, one curve a method; `marks` puts dots on the table's 50
    bandwidths.
    """
    figure = Figure(figsize=(TEXT_IN, 2.75), layout="constrained")
    panels = figure.subplots(1, len(spec.networks), sharey=True, squeeze=False)[0]
    for letter, panel, network in zip("abc", panels, spec.networks, strict=False):
        for how in spec.methods:
            curve = paper_curve(spec, network, how, FINE_GRID)
            panel.plot(FINE_GRID, curve, color=COLOURS[how.key], label=how.label)
            if marks:
                panel.plot(PAPER_GRID, paper_curve(spec, network, how), ".", color=COLOURS[how.key], markersize=2.5)
        panel.set_title(f"({letter}) {network.name}", loc="left")
        _utilisation_axes(panel)
    panels[0].set_ylabel("Compute utilisation")
    legend_below(figure, panels[0], columns=3)
    return figure


def draw_patterns(spec: Simulation) -> Figure:
    """Figure 7: strided and sequential fragments, without and with overlap."""
    figure = Figure(figsize=(COLUMN_IN, 2.9), layout="constrained")
    panel = figure.subplots()
    network = spec.networks[0]
    for how in spec.methods:
        colour = COLOURS["streaming-overlap" if how.delay else "streaming"]
        panel.plot(
            FINE_GRID,
            paper_curve(spec, network, how, FINE_GRID),
            DASHES[how.pattern],
            color=colour,
            label=how.label,
        )
    _utilisation_axes(panel)
    panel.set_ylabel("Compute utilisation")
    legend_below(figure, panel, columns=2)
    return figure


def draw_delays(spec: Simulation) -> Figure:
    """Figure 9: one curve for each overlap; those that coincide are labelled together."""
    figure = Figure(figsize=(COLUMN_IN, 2.9), layout="constrained")
    panel = figure.subplots()
    network = spec.networks[0]
    curves = [paper_curve(spec, network, how, FINE_GRID) for how in spec.methods]
    shades = mpl.colormaps["viridis_r"](np.linspace(0.1, 0.9, len(curves)))
    for i, (how, curve) in enumerate(zip(spec.methods, curves, strict=True)):
        hidden = i > 0 and np.allclose(curve, curves[i - 1], rtol=0, atol=1e-3)
        label = f"{how.label} (on τ = {spec.methods[i - 1].delay})" if hidden else how.label
        panel.plot(FINE_GRID, curve, ":" if hidden else "-", color=shades[i], label=label)
    _utilisation_axes(panel)
    panel.set_ylabel("Compute utilisation")
    legend_below(figure, panel, columns=2)
    return figure


def draw_peak_bandwidth() -> Figure:
    """Figure 6b: the largest send over the fragment size, as a share of the whole model: the paper's |p| /
    L for the 18 layers of its ablation, and the trainer's payload, whose embedding is a fragment of its
    own.
    """
    shape = model("500M")
    sizes = [n for n in range(1, shape.layers + 1) if shape.layers % n == 0]
    payload = []
    for n in sizes:
        sent = send_bytes(shape, vary(streaming(100), fragments__layers=n))
        payload.append(max(sent) / sum(sent))
    figure = Figure(figsize=(COLUMN_IN, 2.7), layout="constrained")
    panel = figure.subplots()
    ticks = range(len(sizes))
    panel.plot(ticks, [n / shape.layers for n in sizes], "o-", color="tab:green", label="|p| / L, the paper's rule")
    panel.plot(ticks, payload, "s--", color="tab:gray", label="payload, embedding as its own fragment")
    panel.set_xticks(ticks, [str(n) for n in sizes])
    panel.set_xlabel(f"Layers a fragment ({shape.layers} layers)")
    panel.set_ylabel("Peak bandwidth / whole model")
    panel.set_ylim(0, 1.05)
    panel.axvline(sizes.index(CHOSEN_LAYERS), color="#bbbbbb", linewidth=0.8)
    panel.annotate("chosen", (sizes.index(CHOSEN_LAYERS), 1.0), xytext=(3, 0), textcoords="offset points", fontsize=7)
    legend_below(figure, panel, columns=1)
    return figure


def draw_schedules(spec: Drawing) -> Figure:
    """Figures 3 and 14: for each schedule the worker's row and the link's row; numbers are layers, grey is
    waiting.
    """
    times = (spec.network.step_time_s,)
    traces = [trace(cycle, times, spec.gbit_per_s, spec.steps) for _, cycle in spec.schedules]
    end = max(node.end for nodes in traces for node in nodes)
    figure = Figure(figsize=(TEXT_IN, 0.45 + 0.78 * len(traces)), layout="constrained")
    panels = figure.subplots(len(traces), 1, sharex=True, squeeze=False)[:, 0]
    for panel, (label, cycle), nodes in zip(panels, spec.schedules, traces, strict=True):
        _draw_schedule(panel, nodes)
        panel.set_title(f"{label} — compute utilisation {_steady(cycle, times, spec):.1%}", loc="left")
        panel.set_xlim(0, end)
    handles = [Patch(facecolor=NODE_COLOURS[kind], label=NODE_LABELS[kind]) for kind in NODE_COLOURS]
    handles.append(Patch(facecolor="#eeeeee", label="waiting"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return figure


def plot_forecast(question: Question, answer: Forecast, path: Path) -> None:
    """Utilisation over bandwidth for one question of the command line, with its own bandwidth marked."""
    grid = question.gbit_per_s * np.logspace(-2, 2, 200)
    curve = utilisation(question.cycle(), question.step_times_s, Link.of(grid, question.total_latency_s()))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(COLUMN_IN, 2.7), layout="constrained")
        panel = figure.subplots()
        panel.plot(grid, curve, color=COLOURS[question.method.key])
        panel.plot([question.gbit_per_s], [answer.compute_utilisation], "o", color=COLOURS[question.method.key])
        _utilisation_axes(panel)
        panel.set_xlim(grid[0], grid[-1])
        panel.set_ylabel("Compute utilisation")
        panel.set_title(f"{question.method.label}, {question.network.name}", loc="left")
        write_bytes(path, image(figure, path.suffix.lstrip(".") or "png"))


def _steady(cycle: Cycle, times: tuple[float, ...], spec: Drawing) -> float:
    return float(utilisation(cycle, times, Link.of(spec.gbit_per_s)))


def _draw_schedule(panel: Axes, nodes: Sequence[Node]) -> None:
    compute = [node for node in nodes if node.kind != "reduction"]
    panel.add_patch(Rectangle((0, 1.05), compute[-1].end, 0.9, facecolor="#eeeeee", edgecolor="none"))
    for node in nodes:
        bottom = 0.05 if node.kind == "reduction" else 1.05
        box = Rectangle((node.start, bottom), node.end - node.start, 0.9, edgecolor="white", linewidth=0.6)
        box.set_facecolor(NODE_COLOURS[node.kind])
        panel.add_patch(box)
        dark = "black" if node.kind == "backward_activations" else "white"
        panel.text(
            (node.start + node.end) / 2,
            bottom + 0.43,
            str(node.layer),
            ha="center",
            va="center",
            fontsize=6,
            color=dark,
        )
    for step in {node.step for node in compute} - {0}:
        start = next(node.start for node in compute if node.step == step)
        panel.plot([start, start], [1, 2.05], color="black", linewidth=0.7)
    panel.set_ylim(0, 2.05)
    panel.set_yticks([1.5, 0.5], ["worker", "link"])
    panel.set_xticks([])
    panel.grid(visible=False)
    panel.spines["left"].set_visible(False)
    panel.tick_params(left=False)


def _utilisation_axes(panel: Axes) -> None:
    panel.set_xscale("log")
    panel.set_xlim(PAPER_GRID[0], PAPER_GRID[-1])
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.set_ylim(0, 1.02)
    panel.set_xlabel("Bandwidth (Gbit/s)")
