"""What is simulated: networks, methods and their schedules, and how a curve is read.

Two schedules feed the one engine of `repro.network.simulate`. The paper's own (Table 4: every fragment in turn, one
every floor(H / (P + 1)) + 1 steps, no embedding) exists here alone; every other question goes through the
trainer's `repro.spec.schedule` and, where a model's shapes are known, through the trainer's `repro.spec.payload`. No
JAX.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from repro.errors import UserError
from repro.network.methods import FP4_BITS, METHODS, Method, Network
from repro.network.simulate import Cycle, Link, Send, Times, finite_utilisation, utilisation
from repro.spec import schedule
from repro.spec.config import CodecConfig, FragmentConfig, OuterConfig, RunConfig, SyncConfig
from repro.spec.fragments import Fragment, cut
from repro.spec.payload import DATA_PARALLEL_CODEC, fragment_bytes
from repro.spec.shapes import fragment_shapes

Schedules = dict[str, tuple[Cycle, float]]  # by a row's label: what is sent, and the seconds of compute a step
PAPER_GRID = np.logspace(-1, 3, 50)  # Gbit/s: every number of Table 4 lies on it

# A run of this length that starts with this fragment prints all 75 cells. It was searched for, not derived:
# other lengths and orders do the same, so nothing follows from it (`--finite`).
FITTED_STEPS = 199
FITTED_FIRST_FRAGMENT = 10


@dataclass(frozen=True)
class Simulation:
    """The spec of one simulated table or figure: every network with every method over a grid of bandwidths.

    It has no rows to train, so that `repro.spec.experiment.expand` finds no runs in it.
    """

    name: str
    title: str
    place: str
    networks: tuple[Network, ...]
    methods: tuple[Method, ...] = METHODS
    targets: tuple[float, ...] = ()
    every: int = 100  # H
    fragment_layers: int = 3
    assumptions: tuple[str, ...] = ()
    rows: ClassVar[tuple[()]] = ()


@dataclass(frozen=True)
class Drawing:
    """The spec of a drawn schedule: labelled cycles of one network, `steps` steps at one bandwidth. No rows
    either.
    """

    name: str
    title: str
    place: str
    network: Network
    schedules: tuple[tuple[str, Cycle], ...]
    gbit_per_s: float
    steps: int
    assumptions: tuple[str, ...] = ()
    rows: ClassVar[tuple[()]] = ()


@dataclass(frozen=True)
class Illustration:
    """The spec of a picture of the trainer's own schedule: labelled ways to synchronise `layers` layers over the inner
    steps from `first_step` to `steps`. No rows either.
    """

    name: str
    title: str
    place: str
    layers: int
    replicas: int
    first_step: int
    steps: int
    schedules: tuple[tuple[str, SyncConfig], ...]
    assumptions: tuple[str, ...] = ()
    rows: ClassVar[tuple[()]] = ()


def paper_period(fragments: int, every: int = 100) -> int:
    """Steps between two sends in Table 4's runs: floor(H / (P + 1)) + 1; the text's 11, 5, 2 are one less."""
    return every // (fragments + 1) + 1


def paper_cycle(
    network: Network, how: Method, every: int = 100, fragment_layers: int = 3, first_fragment: int = 0
) -> Cycle:
    """The schedule behind Table 4 and Figures 4, 7, 9, 15, 16: N / L parameters a layer, round robin."""
    layers, bits = network.layers, network.params / network.layers * how.bits
    if how.sends != "fragments":
        whole = _send(0, Fragment(tuple(range(layers)), embed=False), bits, 0.0)
        return Cycle(layers, 1 if how.sends == "gradients" else every, (whole,), (how.delay,))
    _check_fragment(fragment_layers, layers)
    pieces = cut(FragmentConfig(how.pattern, fragment_layers, "merged"), layers)
    gap = paper_period(len(pieces), every)
    order = [pieces[(i + first_fragment) % len(pieces)] for i in range(len(pieces))]
    sends = tuple(_send(i * gap, replace(piece, embed=False), bits, 0.0) for i, piece in enumerate(order))
    return Cycle(layers, gap * len(pieces), sends, (how.delay,))


def trainer_cycle(
    layers: int, sync: SyncConfig | None, layer_bits: float, embed_bits: float, replicas: int = 2
) -> Cycle:
    """The trainer's own schedule: `repro.spec.schedule` over one period of H steps (every step if `sync` is None).

    `layer_bits` is what one layer takes on the link, `embed_bits` the embedding group.
    """
    if sync is None:
        everything = Fragment(tuple(range(layers)), embed=embed_bits > 0)
        return Cycle(layers, 1, (_send(0, everything, layer_bits, embed_bits),))
    if sync.fragments.pattern != "whole":
        _check_fragment(sync.fragments.layers, layers)
    pieces = cut(sync.fragments, layers)
    settled = 2 * sync.every  # every fragment is in its rhythm by then
    sends = tuple(
        _send(step, piece, layer_bits, embed_bits)
        for step in range(sync.every)
        for p, piece in enumerate(pieces)
        if schedule.is_due(sync, len(pieces), p, settled + step)
    )
    return Cycle(layers, sync.every, sends, schedule.replica_delays(sync, replicas))


def sync_of(
    how: Method, delays: tuple[int, ...], every: int, fragment_layers: int, embedding: str
) -> SyncConfig | None:
    """The trainer's configuration of a method, as far as its schedule goes (None: data-parallel)."""
    if how.sends == "gradients":
        if any(delays):
            raise UserError(f"tau = {max(delays)}: data-parallel needs its gradients at once, so tau must be 0.")
        return None
    whole = how.sends == "whole"
    fragments = (
        FragmentConfig("whole", 1, "merged") if whole else FragmentConfig(how.pattern, fragment_layers, embedding)
    )
    codec = CodecConfig("e3m0" if how.bits == FP4_BITS else "bfloat16")
    return SyncConfig(every, delays, 0.5, fragments, codec, OuterConfig("nesterov", 0.4, 0.9))


def run_cycle(config: RunConfig) -> Cycle:
    """The schedule and the exact payload of a training run, one replica's sends (no collective factor)."""
    codec = config.sync.codec if config.sync else DATA_PARALLEL_CODEC
    layer_bits = 8.0 * fragment_bytes(codec, fragment_shapes(config.model, 1, False))
    embed_bits = 8.0 * fragment_bytes(codec, fragment_shapes(config.model, 0, True))
    return trainer_cycle(config.model.layers, config.sync, layer_bits, embed_bits, config.replicas)


def paper_curve(spec: Simulation, network: Network, how: Method, grid: Times = PAPER_GRID) -> Times:
    """Compute utilisation over a grid of Gbit/s in the steady state of the paper's schedule."""
    cycle = paper_cycle(network, how, spec.every, spec.fragment_layers)
    return utilisation(cycle, (network.step_time_s,), Link.of(grid))


def fitted_curve(spec: Simulation, network: Network, how: Method, grid: Times = PAPER_GRID) -> Times:
    """Compute utilisation from a finite run whose length and fragment order were fitted to the published cells."""
    cycle = paper_cycle(network, how, spec.every, spec.fragment_layers, FITTED_FIRST_FRAGMENT)
    return finite_utilisation(cycle, network.step_time_s, Link.of(grid), FITTED_STEPS)


def grid_reading(curve: Times, target: float, grid: Times = PAPER_GRID) -> float | None:
    """Table 4's reading: the last grid point whose utilisation is still below the target; None if there is no
    such point, or if the target isn't reached on the grid."""
    index = int(np.searchsorted(curve, target)) - 1
    return float(grid[index]) if 0 <= index < len(grid) - 1 else None


def printed_reading(gbit_per_s: float | None) -> str:
    """How Table 4 prints a reading: two decimals, then one."""
    return "-" if gbit_per_s is None else f"{round(gbit_per_s, 2):.1f}"


def least_bandwidth(
    cycle: Cycle, step_times_s: tuple[float, ...], targets: tuple[float, ...], latency_s: float = 0.0
) -> tuple[float, ...]:
    """The Gbit/s at which each target is first reached, to 1 in 10^6; infinite if no bandwidth reaches it.

    Utilisation never falls with bandwidth, so each round narrows every target's bracket by the number of
    its points.
    """
    for target in targets:
        if not 0 < target < 1:
            raise UserError(f"target utilisation {target}: give one between 0 and 1.")
    points, span = 40, (-9.0, 9.0)
    low, high = np.full(len(targets), span[0]), np.full(len(targets), span[1])
    wanted = np.array(targets)
    for _ in range(5):
        exponents = np.linspace(low, high, points)
        reached = utilisation(cycle, step_times_s, Link.of(10**exponents, latency_s)) >= wanted
        first = np.where(reached.any(axis=0), reached.argmax(axis=0), points - 1)
        rows = np.arange(len(targets))
        low, high = exponents[np.maximum(first - 1, 0), rows], exponents[first, rows]
    never = utilisation(cycle, step_times_s, Link.of(10.0 ** span[1], latency_s)) < wanted
    return tuple(float("inf") if lost else float(10**x) for lost, x in zip(never, high, strict=True))


def least_delay(cycle: Cycle, step_times_s: tuple[float, ...], target: float, link: Link) -> int | None:
    """The least tau (the same for all workers) that reaches the target on a link of one bandwidth; None if
    no tau shorter than the period does.
    """
    low, high = -1, cycle.shortest_period - 1
    if utilisation(cycle.delayed((high,)), step_times_s, link) < target:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if utilisation(cycle.delayed((middle,)), step_times_s, link) < target:
            low = middle
        else:
            high = middle
    return high


def _send(step: int, piece: Fragment, layer_bits: float, embed_bits: float) -> Send:
    layers = tuple(layer + 1 for layer in piece.layers)
    if not (piece.embed and embed_bits):
        return Send(step, layers, (layer_bits,) * len(layers))
    return Send(step, (0, *layers), (embed_bits, *(layer_bits for _ in layers)))


def _check_fragment(fragment_layers: int, layers: int) -> None:
    if not 1 <= fragment_layers <= layers:
        raise UserError(
            f"fragments of {fragment_layers} layers in a model of {layers}: give a size from 1 to {layers}."
        )
