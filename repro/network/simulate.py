"""The compute-utilisation simulator of §3.1: exact times of a per-layer DAG beside one serial link.

A step of L layers that lasts T seconds is 3L - 1 compute nodes of T / 3L each: forward 1..L, then for l =
L..1 the backward for activations (left out for layer 1) and the backward for parameters. A layer that is
sent in step s is ready when its parameter node ends, travels on one first-in-first-out link, and holds up
forward(l) of step s + 1 + tau only. Layer 0 stands for the embedding group: no compute of its own, ready
when the backward ends, needed before forward(1).

Such a system is linear in the (max, +) algebra, so its steady state is not sampled but solved: the time of
one cycle is the largest cycle mean of the map "state before the cycle -> state after it" (Karp's formula,
`cycle_time`). No JAX here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from repro.errors import UserError

Times = NDArray[np.float64]
Kind = Literal["forward", "backward_activations", "backward_parameters", "reduction"]


@dataclass(frozen=True)
class Send:
    """What leaves in one step: `bits[i]` of layer `layers[i]` (0 = the embedding group)."""

    step: int
    layers: tuple[int, ...]
    bits: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.layers) != len(self.bits) or len(set(self.layers)) != len(self.layers):
            raise UserError(f"a send needs distinct layers with one size each, got {self.layers} and {self.bits}")
        if any(not size >= 0 for size in self.bits):
            raise UserError(f"a layer can't send {min(self.bits)} bits; give sizes of 0 or more")


@dataclass(frozen=True)
class Cycle:
    """One period of a synchronisation schedule, repeated for ever.

    `steps` is its length; a send of step s (0 <= s < steps) recurs at s + steps, s + 2 steps, ...
    `delays` is tau for every worker (one entry: the same for all).
    """

    layers: int
    steps: int
    sends: tuple[Send, ...]
    delays: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise UserError(f"a model needs at least one layer, got {self.layers}")
        if self.steps < 1:
            raise UserError(f"a schedule needs at least one step in its period, got {self.steps}")
        for send in self.sends:
            if not 0 <= send.step < self.steps:
                raise UserError(f"a send at step {send.step} is outside the period of {self.steps} steps")
            if any(not 0 <= layer <= self.layers for layer in send.layers):
                raise UserError(f"a send names layers {send.layers}, but the model has {self.layers}")
        if not self.delays or min(self.delays) < 0:
            raise UserError(f"tau must be 0 or more for every worker, got {self.delays}")
        if max(self.delays) >= self.shortest_period:
            raise UserError(
                f"tau = {max(self.delays)} must be less than the {self.shortest_period} steps after which "
                "the same layer is sent again; lower tau or send less often"
            )

    @property
    def bits(self) -> float:
        """Bits of one cycle by the schedule's own sizes; no collective factor is added here."""
        return sum(sum(send.bits) for send in self.sends)

    @property
    def largest_send_bits(self) -> float:
        """Bits of the largest single send: the paper's "peak bandwidth"."""
        return max((sum(send.bits) for send in self.sends), default=0.0)

    def scaled(self, factor: float) -> "Cycle":
        """This schedule with every payload multiplied by `factor`."""
        sends = tuple(Send(s.step, s.layers, tuple(b * factor for b in s.bits)) for s in self.sends)
        return Cycle(self.layers, self.steps, sends, self.delays)

    def delayed(self, delays: tuple[int, ...]) -> "Cycle":
        """This schedule with other taus."""
        return Cycle(self.layers, self.steps, self.sends, delays)

    @property
    def shortest_period(self) -> int:
        """Least number of steps after which a layer is sent again; tau must be below it."""
        steps_of: dict[int, list[int]] = {}
        for send in self.sends:
            for layer in send.layers:
                steps_of.setdefault(layer, []).append(send.step)
        gaps = [self.steps]
        for steps in steps_of.values():
            ordered = sorted(steps)
            gaps += [b - a for a, b in zip(ordered, [*ordered[1:], ordered[0] + self.steps], strict=True)]
        return min(gaps)


@dataclass(frozen=True)
class Link:
    """One serial link between the workers: bandwidths to try (any shape) and seconds from last bit to
    arrival.
    """

    gbit_per_s: Times
    latency_s: float = 0.0

    @staticmethod
    def of(gbit_per_s: ArrayLike, latency_s: float = 0.0) -> "Link":
        """Checked constructor. Infinite bandwidth is allowed; zero, negative and NaN are not."""
        rates = np.asarray(gbit_per_s, dtype=np.float64)
        if rates.size == 0 or not np.all(rates > 0):
            raise UserError(f"bandwidth must be more than 0 Gbit/s, got {np.min(rates) if rates.size else 'none'}")
        if not 0 <= latency_s < float("inf"):
            raise UserError(f"link latency must be 0 seconds or more, got {latency_s}")
        return Link(rates, latency_s)

    def seconds(self, bits: float) -> Times:
        """Time on the link of one message, an array shaped like the bandwidths."""
        return np.asarray(bits / (self.gbit_per_s * 1e9))


@dataclass(frozen=True)
class Node:
    """One box of the DAG as drawn in Figures 3 and 14; times in seconds."""

    kind: Kind
    worker: int
    step: int
    layer: int
    start: float
    end: float


def compute_seconds(layers: int, step_time_s: float) -> float:
    """Compute of one step: (3L - 1) nodes of T / 3L, hence T (1 - 1 / 3L) (§3.1: 4L - 1 nodes, L of them
    reductions).
    """
    return step_time_s * (3 * layers - 1) / (3 * layers)


def cycle_time(cycle: Cycle, step_times_s: tuple[float, ...], link: Link) -> Times:
    """Seconds that one cycle takes in the steady state, for every bandwidth of the link.

    `step_times_s` has one pure-compute step time per worker (one entry: all the same). Workers are coupled
    by their reductions: each starts when the last worker is ready. The result has the shape of the
    bandwidths.

    With x_k the state after k cycles from rest and n its size, the answer is max_v min_k (x_n - x_k)_v / (n
    - k).
    """
    system = _System(cycle, _checked(step_times_s, cycle), link)
    states = [system.rest()]
    size = len(states[0])
    for _ in range(size):
        states.append(system.after_cycle(states[-1]))
    means = [(states[size] - states[k]) / (size - k) for k in range(size)]
    return np.max(np.min(means, axis=0), axis=0)


def utilisation(cycle: Cycle, step_times_s: tuple[float, ...], link: Link) -> Times:
    """Compute utilisation of §3.1: compute time / time of one steady-state cycle, the mean over workers if
    they differ.
    """
    seconds = cycle_time(cycle, step_times_s, link)
    compute = np.mean([compute_seconds(cycle.layers, t) for t in step_times_s]) * cycle.steps
    return np.minimum(compute / seconds, 1.0)


def finite_utilisation(cycle: Cycle, step_time_s: float, link: Link, steps: int) -> Times:
    """Compute utilisation of a run of `steps` steps from rest, from the cycle's step 0 to the last node of
    any kind.
    """
    seconds = _System(cycle, _checked((step_time_s,), cycle), link).after_steps(steps)
    return np.minimum(compute_seconds(cycle.layers, step_time_s) * steps / seconds, 1.0)


def link_intervals(cycle: Cycle, step_times_s: tuple[float, ...], link: Link) -> tuple[Times, Times]:
    """Start and end of every message on the link in two late consecutive cycles, axis 0 in order of time,
    seconds.
    """
    system = _System(cycle, _checked(step_times_s, cycle), link)
    state = system.rest()
    for _ in range(len(state)):
        state = system.after_cycle(state)
    system.log.clear()
    system.after_cycle(system.after_cycle(state))
    starts, ends = zip(*system.log, strict=True) if system.log else ((), ())
    return np.array(starts), np.array(ends)


def trace(
    cycle: Cycle, step_times_s: tuple[float, ...], gbit_per_s: float, steps: int, latency_s: float = 0.0
) -> list[Node]:
    """Every node of a run of `steps` steps from rest at one bandwidth, in the order in which they are
    decided.
    """
    step_times = _checked(step_times_s, cycle)
    link = Link.of(gbit_per_s, latency_s)
    durations = [t / (3 * cycle.layers) for t in step_times]
    clocks = [0.0] * len(durations)
    link_free, arrivals, nodes = 0.0, {}, []

    def run(kind: Kind, worker: int, step: int, layer: int, earliest: float = 0.0) -> None:
        start = max(clocks[worker], earliest)
        clocks[worker] = start + durations[worker]
        nodes.append(Node(kind, worker, step, layer, start, clocks[worker]))

    for step in range(steps):
        for worker in range(len(clocks)):
            sent = step - 1 - cycle.delays[worker % len(cycle.delays)]
            for layer in range(1, cycle.layers + 1):
                needed = (0, 1) if layer == 1 else (layer,)
                run("forward", worker, step, layer, max(arrivals.get((sent, n), 0.0) for n in needed))
        ready = {}
        for worker in range(len(clocks)):
            for layer in range(cycle.layers, 0, -1):
                if layer > 1:
                    run("backward_activations", worker, step, layer)
                run("backward_parameters", worker, step, layer)
                ready[layer] = max(ready.get(layer, 0.0), clocks[worker])
        ready[0] = ready[1]
        for layer, bits in _messages(cycle, step % cycle.steps):
            start = max(link_free, ready[layer])
            link_free = start + float(link.seconds(bits))
            arrivals[step, layer] = link_free + latency_s
            nodes.append(Node("reduction", 0, step, layer, start, link_free))
    return nodes


class _System:
    """The (max, +) map of one cycle. It is cut between forward and backward, where least is in flight."""

    def __init__(self, cycle: Cycle, step_times_s: tuple[float, ...], link: Link) -> None:
        workers = max(len(step_times_s), len(cycle.delays))
        self.cycle, self.link = cycle, link
        self.delays = [cycle.delays[m % len(cycle.delays)] for m in range(workers)]
        self.node_s = [step_times_s[m % len(step_times_s)] / (3 * cycle.layers) for m in range(workers)]
        self.messages = {k: list(_messages(cycle, k)) for k in {send.step for send in cycle.sends}}
        self.first = min(range(cycle.steps), key=lambda k: len(list(self._in_flight(k))))
        self.flying = list(self._in_flight(self.first))
        self.log: list[tuple[Times, Times]] = []

    def _in_flight(self, step: int) -> Iterator[tuple[int, int]]:
        """(age, layer) of what was sent up to `age` backwards ago and is still awaited before the backward
        of `step`.
        """
        for age in range(1, max(self.delays) + 1):
            for layer, _ in self.messages.get((step - age) % self.cycle.steps, ()):
                yield age, layer

    def rest(self) -> Times:
        """State (workers' clocks, link, arrivals in flight) of a system at rest."""
        return np.zeros((len(self.node_s) + 1 + len(self.flying), *self.link.gbit_per_s.shape))

    def after_cycle(self, state: Times) -> Times:
        workers = len(self.node_s)
        clocks, link_free = list(state[:workers]), state[workers]
        first, steps = self.first, self.cycle.steps
        arrivals = {(first - age, layer): state[workers + 1 + i] for i, (age, layer) in enumerate(self.flying)}
        for step in range(first, first + steps):
            link_free = self._backward(step, clocks, link_free, arrivals)
            self._forward(step + 1, clocks, arrivals)
        flying = [arrivals[first + steps - age, layer] for age, layer in self.flying]
        return np.stack([*clocks, link_free, *flying])

    def after_steps(self, steps: int) -> Times:
        """When the last node of `steps` whole steps from rest has ended, on any worker or on the link."""
        zero = np.zeros(self.link.gbit_per_s.shape)
        clocks, link_free, arrivals = [zero for _ in self.node_s], zero, {}
        for step in range(steps):
            self._forward(step, clocks, arrivals)
            link_free = self._backward(step, clocks, link_free, arrivals)
        return _latest([*clocks, link_free])

    def _backward(self, step: int, clocks: list[Times], link_free: Times, arrivals: dict) -> Times:
        layers = self.cycle.layers
        for layer, bits in self.messages.get(step % self.cycle.steps, ()):
            nodes = 2 * layers - 1 if layer <= 1 else 2 * (layers - layer + 1)
            ready = [clock + nodes * node_s for clock, node_s in zip(clocks, self.node_s, strict=True)]
            start = np.maximum(link_free, _latest(ready))
            link_free = start + self.link.seconds(bits)
            self.log.append((start, link_free))
            arrivals[step, layer] = link_free + self.link.latency_s
        for worker, node_s in enumerate(self.node_s):
            clocks[worker] = clocks[worker] + (2 * layers - 1) * node_s
        return link_free

    def _forward(self, step: int, clocks: list[Times], arrivals: dict) -> None:
        layers = self.cycle.layers
        for worker, node_s in enumerate(self.node_s):
            sent = step - 1 - self.delays[worker]
            clock, done = clocks[worker], 0
            for layer, _ in sorted(self.messages.get(sent % self.cycle.steps, ())):
                if (sent, layer) in arrivals:
                    before = max(layer - 1, 0)
                    clock = np.maximum(clock + (before - done) * node_s, arrivals[sent, layer])
                    done = before
            clocks[worker] = clock + (layers - done) * node_s


def _messages(cycle: Cycle, step: int) -> Iterator[tuple[int, float]]:
    """(layer, bits) sent in a step of the cycle in the order in which they get ready: deepest layer first."""
    sent = [pair for send in cycle.sends if send.step == step for pair in zip(send.layers, send.bits, strict=True)]
    return iter(sorted(sent, reverse=True))


def _latest(times: list[Times]) -> Times:
    latest = times[0]
    for other in times[1:]:
        latest = np.maximum(latest, other)
    return latest


def _checked(step_times_s: tuple[float, ...], cycle: Cycle) -> tuple[float, ...]:
    if not step_times_s or not all(0 < t < float("inf") for t in step_times_s):
        raise UserError(f"step times must be more than 0 seconds, got {step_times_s}")
    if len(cycle.delays) > 1 and len(step_times_s) > 1 and len(cycle.delays) != len(step_times_s):
        raise UserError(
            f"{len(step_times_s)} step times and {len(cycle.delays)} taus don't fit; give one for each worker"
        )
    return step_times_s
