"""What a link costs a training run: the answers behind `python -m repro simulate`.

Utilisation, tokens lost, link load and hours of one network, method and link, and the inverse questions for
a target utilisation. Everything comes from the engine of `repro.network.simulate`; this module only asks it. No
JAX.
"""

from dataclasses import dataclass

import numpy as np

from repro.errors import UserError
from repro.network.account import Collective, collective_factor, collective_hops, steps_of, training_hours
from repro.network.methods import Amount, Bits, Delay, Latency, Layers, Method, Network, Period, Rate, Replicas
from repro.network.scenario import least_bandwidth, least_delay, paper_cycle, sync_of, trainer_cycle
from repro.network.simulate import Cycle, Link, link_intervals, utilisation
from repro.values import Seconds, check_fields


@dataclass(frozen=True)
class Question:
    """A network on a link. `step_times_s` and `delays` hold one entry, or one for each of the `replicas`."""

    network: Network
    method: Method
    gbit_per_s: Rate
    step_times_s: tuple[Seconds, ...]
    delays: tuple[Delay, ...]
    bits: Bits  # per parameter sent
    every: Period = 100  # H
    fragment_layers: Layers = 3
    embedding_params: float = 0.0  # of the network's parameters; 0: all of them sit in the layers
    replicas: Replicas = 2  # M
    collective: Collective = "none"
    latency_s: Latency = 0.0
    batch_tokens: Amount = 2**20
    tokens: Amount | None = None
    paper_schedule: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        for name, values in (("step times", self.step_times_s), ("taus", self.delays)):
            if len(values) not in (1, self.replicas):
                raise UserError(f"{len(values)} {name} for {self.replicas} replicas: give one, or one for each.")
        if not 0 <= self.embedding_params < self.network.params:
            raise UserError(
                f"{self.embedding_params} embedding parameters of {self.network.params}: give 0 or more, but not all."
            )
        if self.paper_schedule and (self.embedding_params or len(self.delays) > 1):
            raise UserError("the paper's schedule has no embedding and one tau: drop these options, or --paper.")

    def cycle(self) -> Cycle:
        """The schedule with what its collective moves over the link."""
        how = Method(
            self.method.key,
            self.method.label,
            self.method.sends,
            self.bits,
            self.delays[0],
            self.method.pattern,
        )
        if self.paper_schedule:
            cycle = paper_cycle(self.network, how, self.every, self.fragment_layers)
        else:
            layers = self.network.layers
            embedding = "own" if self.embedding_params else "merged"
            sync = sync_of(how, self.delays, self.every, self.fragment_layers, embedding)
            layer_bits = (self.network.params - self.embedding_params) / layers * self.bits
            cycle = trainer_cycle(layers, sync, layer_bits, self.embedding_params * self.bits, self.replicas)
        return cycle.scaled(collective_factor(self.collective, self.replicas))

    def total_latency_s(self) -> float:
        """The link's latency as often as the collective pays it one after the other."""
        return self.latency_s * collective_hops(self.collective, self.replicas)


@dataclass(frozen=True)
class Forecast:
    """What happens on the link, in the steady state. Rates in Gbit/s and tokens/s, sizes in Gbit."""

    compute_utilisation: float
    step_seconds: float
    tokens_per_second: float
    tokens_per_second_lost: float
    largest_send_gbit: float
    gbit_per_step: float
    mean_link_gbit_per_s: float
    mean_link_use: float
    peak_link_use: float
    hours: float | None
    hours_without_link: float | None


@dataclass(frozen=True)
class Solution:
    """What reaches a target utilisation, one thing changed at a time; None where nothing does."""

    target: float
    least_gbit_per_s: float | None
    least_tau: int | None
    largest_bits: float | None


def forecast(question: Question) -> Forecast:
    """Answer for the given link."""
    cycle, times = question.cycle(), question.step_times_s
    link = Link.of(question.gbit_per_s, question.total_latency_s())
    used = float(utilisation(cycle, times, link))
    if not used > 0:
        raise UserError(f"bandwidth={question.gbit_per_s:g} Gbit/s: a step would never end; give a faster link.")
    plain_s = sum(times) / len(times)
    step_s = plain_s / used
    used = round(used, 12)  # full utilisation is 1, not 1 less rounding
    steps = steps_of(question.tokens, question.batch_tokens) if question.tokens is not None else None
    return Forecast(
        compute_utilisation=used,
        step_seconds=step_s,
        tokens_per_second=question.batch_tokens / step_s,
        tokens_per_second_lost=question.batch_tokens / plain_s * (1 - used),
        largest_send_gbit=cycle.largest_send_bits / 1e9,
        gbit_per_step=cycle.bits / cycle.steps / 1e9,
        mean_link_gbit_per_s=cycle.bits / cycle.steps / step_s / 1e9,
        mean_link_use=cycle.bits / cycle.steps / step_s / 1e9 / question.gbit_per_s,
        peak_link_use=_peak_use(cycle, times, link),
        hours=None if steps is None else training_hours(steps, plain_s, used),
        hours_without_link=None if steps is None else training_hours(steps, plain_s),
    )


def solve(question: Question, target: float) -> Solution:
    """The least bandwidth, the least tau and the largest payload (bits a parameter) that reach a target.

    Utilisation depends on bits / bandwidth only, so the payload may grow by the bandwidth's surplus.
    """
    cycle, times, latency = question.cycle(), question.step_times_s, question.total_latency_s()
    needed = least_bandwidth(cycle, times, (target,), latency)[0]
    reachable = np.isfinite(needed)
    return Solution(
        target=target,
        least_gbit_per_s=needed if reachable else None,
        least_tau=least_delay(cycle, times, target, Link.of(question.gbit_per_s, latency)),
        largest_bits=question.bits * question.gbit_per_s / needed if reachable else None,
    )


def _peak_use(cycle: Cycle, step_times_s: tuple[float, ...], link: Link) -> float:
    """The share of the busiest stretch of one (slowest) compute step in which the link is sending."""
    starts, ends = link_intervals(cycle, step_times_s, link)
    if not len(starts):
        return 0.0
    window = max(step_times_s)
    busy_until = np.concatenate([[0.0], np.cumsum(ends - starts)])
    edges = np.concatenate([starts, ends - window])
    busy = [
        _busy_before(edge + window, starts, ends, busy_until) - _busy_before(edge, starts, ends, busy_until)
        for edge in edges
    ]
    return min(1.0, max(busy) / window)


def _busy_before(time: float, starts: np.ndarray, ends: np.ndarray, busy_until: np.ndarray) -> float:
    begun = int(np.searchsorted(starts, time))
    unfinished = max(0.0, float(ends[begun - 1]) - time) if begun else 0.0
    return float(busy_until[begun]) - unfinished
