"""Idealised wall-clock time of training over several datacenters (arXiv 2503.09799, appendix A), in closed form.

Compute and communication are added, never overlapped, and every all-reduce is bandwidth-optimal. What the simulator
(`repro.network.simulate`) says of the same link, layer by layer, stands beside it. No JAX.
"""

from dataclasses import dataclass

from repro.errors import UserError

BITS = 16  # of a parameter or gradient: the paper trains in bfloat16


@dataclass(frozen=True)
class Wire:
    """A network between any two chips."""

    name: str
    gbit_per_s: float
    latency_s: float


@dataclass(frozen=True)
class IdealisedRun:
    """A training run as the closed form sees it; `replicas` 0 is Data-Parallel."""

    params: float  # N
    tokens: float  # D
    batch_tokens: float  # B
    chips: float  # R
    flops_per_chip: float  # Q, a second
    replicas: int  # M
    every: int  # H

    def __post_init__(self) -> None:
        if self.chips < max(self.replicas, 1):
            raise UserError(f"{self.chips:g} chips for {self.replicas} replicas: each replica needs one at least.")

    @property
    def steps(self) -> float:
        """T = D / B."""
        return self.tokens / self.batch_tokens

    @property
    def compute_s(self) -> float:
        """6 N D / (R Q)."""
        return 6 * self.params * self.tokens / (self.chips * self.flops_per_chip)


def all_reduce_s(params: float, chips: float, wire: Wire) -> float:
    """2 N (1 − 1/R) / W + ε, of N parameters over R chips."""
    return 2 * BITS * params * (1 - 1 / chips) / (wire.gbit_per_s * 1e9) + wire.latency_s


def communication_s(job: IdealisedRun, within: Wire, across: Wire) -> float:
    """All of a run's exchanges (A.2).

    Data-Parallel reduces over all chips, across datacenters, every step; M = 1 does so too, and once more every H
    steps; each of M >= 2 replicas stands within one datacenter and reduces there, over R / M chips, every step.
    """
    outer = all_reduce_s(job.params, job.chips, across)
    if job.replicas == 0:
        return outer * job.steps
    if job.replicas == 1:
        return outer * job.steps * (1 + 1 / job.every)
    inner = all_reduce_s(job.params, job.chips / job.replicas, within)
    return inner * job.steps + outer * job.steps / job.every


def wall_clock_s(job: IdealisedRun, within: Wire, across: Wire) -> float:
    """Compute and communication, one after the other (A.3)."""
    return job.compute_s + communication_s(job, within, across)
