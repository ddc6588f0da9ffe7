"""Figure 6 of the scaling-law paper (arXiv 2503.09799): idealised wall-clock, and where our simulator disagrees."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.calculated import Calculated, Results
from analysis.laws.published import DP, diloco_label, law_parameters, printed_cell, printed_loss
from analysis.render import Document, Grid, Notes
from experiments.scaling_laws.figure6 import EVERY, REPLICAS, SIZES
from repro.network.idealised import BITS, IdealisedRun, Wire, all_reduce_s, wall_clock_s
from repro.network.simulate import Cycle, Link, Send, compute_seconds, cycle_time
from repro.spec.experiment import Calculation

SEQUENCE = 2_048  # tokens, and those of a chip
TOKENS_PER_PARAMETER = 20
NETWORKS = ("low", "medium", "high")  # as the figure has them
SECONDS_AN_HOUR = 3_600


@dataclass(frozen=True)
class Timed:
    """One point of the figure on one network: seconds by the closed form and by the simulator."""

    size: str
    replicas: int  # 0: Data-Parallel
    network: str
    loss: float
    closed_s: float
    simulated_s: float

    @property
    def method(self) -> str:
        """Its label."""
        return method_of(self.replicas)

    @property
    def ratio(self) -> float:
        """The closed form over the simulator."""
        return self.closed_s / self.simulated_s


def wall_clock(spec: Calculation, results: Results) -> Calculated:
    """The figure, its numbers, and the simulator's beside them."""
    points = timed_points()
    head = ("Size", "Method", *(f"{name}: {what}" for name in NETWORKS for what in ("closed", "simulated", "ratio")))
    rows = []
    for size in SIZES:
        for replicas in REPLICAS:
            of_row = [p for p in points if (p.size, p.replicas) == (size, replicas)]
            cells = [(f"{_hours(p.closed_s)}", f"{_hours(p.simulated_s)}", f"{p.ratio:.2f}") for p in of_row]
            rows.append((size, method_of(replicas), *(cell for three in cells for cell in three)))
    lines = tuple(
        (f"{p.size} | {p.method} | {p.network}", column, f"{value:.6g}", "", "", "", "", "not printed", "")
        for p in points
        for column, value in (("Idealised (s)", p.closed_s), ("Simulated (s)", p.simulated_s))
    )
    sections = (
        Grid("Hours, by network (in the figure solid: closed, dashed: simulated)", head, tuple(rows), left=2),
        Notes("Where they disagree", disagreement(points)),
        Notes("What the paper leaves open", spec.assumptions),
    )
    return Calculated(Document(f"{spec.title} ({spec.place})", (), sections), lines, lambda: _figure(points))


def timed_points() -> tuple[Timed, ...]:
    """Every size and method whose loss is printed, on each network."""
    points = []
    for size in SIZES:
        for replicas in REPLICAS:
            job = job_of(size, replicas)
            for name in NETWORKS:
                closed = wall_clock_s(job, wire("high"), wire(name))
                simulated = simulated_s(job, _layers(size), wire("high"), wire(name))
                points.append(Timed(size, replicas, name, printed_loss(size, method_of(replicas)), closed, simulated))
    return tuple(points)


def job_of(size: str, replicas: int) -> IdealisedRun:
    """The run of a size, at the batch of Table 9's law."""
    n = law_parameters(size)
    factor, power = (printed_cell("table9", method_of(replicas), column).value for column in ("A", "α"))
    assert factor is not None and power is not None
    sequences = factor * n**power
    rate = 1e12 * _value("idealised", "TFLOP/s a chip")
    return IdealisedRun(n, TOKENS_PER_PARAMETER * n, SEQUENCE * sequences, sequences, rate, replicas, EVERY)


def wire(name: str) -> Wire:
    """One of the three networks."""
    return Wire(name, _value(f"network | {name}", "Gbit/s"), _value(f"network | {name}", "Latency (s)"))


def method_of(replicas: int) -> str:
    """The label of M replicas; 0 is Data-Parallel."""
    return diloco_label(replicas) if replicas else DP


def simulated_s(job: IdealisedRun, layers: int, within: Wire, across: Wire) -> float:
    """A run's seconds by the simulator's steady state, plus what a replica reduces within its datacenter."""
    step = job.compute_s / job.steps * 3 * layers / (3 * layers - 1)  # of which `compute_seconds` is the compute
    bits = 2 * BITS * (1 - 1 / job.chips) * job.params / layers
    link = Link.of(across.gbit_per_s, across.latency_s)
    whole = Send(0, tuple(range(1, layers + 1)), (bits,) * layers)
    every_step = float(cycle_time(Cycle(layers, 1, (whole,)), (step,), link))
    if job.replicas == 0:
        return every_step * job.steps
    round_s = float(cycle_time(Cycle(layers, job.every, (whole,)), (step,), link))
    if job.replicas == 1:  # gradients every step, and the outer exchange as much again every H steps
        waiting = round_s - job.every * compute_seconds(layers, step)
        return (every_step + waiting / job.every) * job.steps
    inner = all_reduce_s(job.params, job.chips / job.replicas, within)
    return (round_s / job.every + inner) * job.steps


def disagreement(points: Sequence[Timed]) -> tuple[str, ...]:
    """How far the two lie apart: at most, and where least."""
    most, least = max(points, key=lambda p: p.ratio), min(points, key=lambda p: p.ratio)
    by_method = []
    for replicas in REPLICAS:
        ratios = [p.ratio for p in points if p.replicas == replicas]
        by_method.append(f"{method_of(replicas)} {min(ratios):.2f} to {max(ratios):.2f}")
    return (
        "The closed form adds what the simulator overlaps, so it is never the shorter one. Times the simulator's: "
        f"{'; '.join(by_method)}.",
        f"They differ most where compute and exchange take about as long, {_at(most)}, and least where one of them is "
        f"nearly all there is, {_at(least)}.",
    )


def _at(point: Timed) -> str:
    return f"{point.ratio:.2f} at {point.size}, {point.method}, {point.network} bandwidth"


def _hours(seconds: float) -> str:
    return f"{seconds / SECONDS_AN_HOUR:.3g}"


def _layers(size: str) -> int:
    name = {"335M": "330M"}.get(size, size)
    return int(printed_cell("table3", name, "Transformer Layers").value or 0)


def _value(row: str, column: str) -> float:
    value = printed_cell("statements", row, column).value
    assert value is not None
    return value


def _figure(points: Sequence[Timed]) -> Any:
    """A panel a network: loss over seconds, solid by the closed form and dashed by the simulator."""
    from matplotlib import rc_context

    from analysis.figures.style import STYLE, legend_below, page_wide

    with rc_context(STYLE):
        figure = page_wide()
        _panels(figure, points)
        legend_below(figure, figure.axes[0], len(REPLICAS))
    return figure


def _panels(figure: Any, points: Sequence[Timed]) -> None:
    from analysis.figures.style import SCALING

    panels = figure.subplots(1, len(NETWORKS), sharey=True)
    for panel, name in zip(panels, NETWORKS, strict=True):
        for colour, replicas in zip(SCALING, REPLICAS, strict=False):
            of_line = [p for p in points if (p.network, p.replicas) == (name, replicas)]
            losses = [p.loss for p in of_line]
            panel.plot([p.closed_s for p in of_line], losses, "o-", color=colour, label=method_of(replicas))
            panel.plot([p.simulated_s for p in of_line], losses, "--", color=colour)
        network = wire(name)
        panel.set(xscale="log", xlabel="idealised wall-clock time (s)")
        panel.set_title(f"{network.gbit_per_s:g} Gbit/s, {network.latency_s:g} s")
    panels[0].set_ylabel("Eval loss, as printed")
