"""Bytes, hours and memory: the accounts of Tables 1 and 7 and of §2.5, as printed and in true units.

Sizes of one send come from `repro.spec.payload`, which is also what the trainer sends; nothing is counted twice.
No JAX.
"""

from dataclasses import dataclass
from math import prod
from typing import Literal

from repro.corpora import CORPORA
from repro.errors import UserError
from repro.spec.config import ModelConfig, OuterConfig, RunConfig, SyncConfig
from repro.spec.fragments import Fragment, cut
from repro.spec.optim_state import inner_bytes, outer_bytes
from repro.spec.payload import DATA_PARALLEL_CODEC, fragment_bytes
from repro.spec.schedule import sends_applied
from repro.spec.shapes import fragment_shapes, parameter_count

GIBI, TEBI = 2**30, 2**40
# Table 1's: what 0.67 hours at 0.1 s a step imply (24,290 steps)
TABLE_BATCH_TOKENS = CORPORA["dolma"].batch_tokens

Collective = Literal["none", "ring", "all-gather"]


@dataclass(frozen=True)
class Memory:
    """Bytes of one replica's training state without activations and gradients (§2.5)."""

    data_parallel: int
    diloco: int
    in_hbm: int  # streaming with the outer state on the host: data-parallel's, and one fragment's outer state

    @property
    def overhead(self) -> float:
        """DiLoCo over data-parallel, less one: the paper's 66 %."""
        return self.diloco / self.data_parallel - 1

    @property
    def added_in_hbm(self) -> int:
        """What one fragment's outer parameters and what OuterOpt keeps of them add."""
        return self.in_hbm - self.data_parallel


def memory(params: int, fragment_params: int, outer: OuterConfig) -> Memory:
    """Memory of a model of `params` values whose largest fragment has `fragment_params` (§2.5)."""
    if not 0 < fragment_params <= params:
        raise UserError(f"a fragment of {fragment_params} values in a model of {params}: give 1 to {params}.")
    plain, added = inner_bytes() * params, outer_bytes(outer.optimizer)
    return Memory(plain, plain + added * params, plain + added * fragment_params)


def model_memory(model: ModelConfig, sync: SyncConfig) -> Memory:
    """Memory of a real model and its cut, by the true number of values."""
    sizes = [_values(model, piece) for piece in cut(sync.fragments, model.layers)]
    return memory(parameter_count(model), max(sizes), sync.outer)


def send_bytes(model: ModelConfig, sync: SyncConfig | None) -> tuple[int, ...]:
    """Bytes of one send of each fragment by one replica, codes and scales: the trainer's payload.
    Data-parallel sends everything at once.
    """
    if sync is None:
        return (fragment_bytes(DATA_PARALLEL_CODEC, fragment_shapes(model, model.layers, True)),)
    pieces = cut(sync.fragments, model.layers)
    return tuple(fragment_bytes(sync.codec, fragment_shapes(model, len(p.layers), p.embed)) for p in pieces)


def run_bytes(config: RunConfig) -> int:
    """Payload that one replica sends in a whole run, a final flush too, and that is applied before it ends, bytes."""
    sizes = send_bytes(config.model, config.sync)
    if config.sync is None:
        return sizes[0] * config.steps
    return sum(size * sends_applied(config.sync, len(sizes), p, config.steps) for p, size in enumerate(sizes))


def rule_bits(params: float, bits: float, steps: float, every: int = 1) -> float:
    """Bits exchanged by the paper's rule: every parameter once every `every` steps, no scales, no
    collective.
    """
    return params * bits * steps / every


def printed_terabytes(bits: float) -> float:
    """The "Terabytes" of Tables 1 and 7: bits / 2^40, so these are tebibits."""
    return bits / TEBI


def true_terabytes(bits: float) -> float:
    """Bits in units of 10^12 bytes."""
    return bits / 8e12


def collective_factor(collective: Collective, replicas: int) -> float:
    """What a collective moves through one replica's link over its payload: 2 (M - 1) / M for a ring
    all-reduce, M - 1 for an all-gather of codes, 1 for the paper's own account.
    """
    _check_replicas(replicas)
    return {"none": 1.0, "ring": 2 * (replicas - 1) / replicas, "all-gather": float(replicas - 1)}[collective]


def collective_hops(collective: Collective, replicas: int) -> int:
    """How many times the link's latency is paid one after the other."""
    _check_replicas(replicas)
    return {"none": 1, "ring": 2 * (replicas - 1), "all-gather": replicas - 1}[collective]


def training_hours(steps: float, step_time_s: float, utilisation: float = 1.0) -> float:
    """Hours of a run whose compute takes `step_time_s` a step."""
    return steps * step_time_s / utilisation / 3600


def steps_of(tokens: float, batch_tokens: float = TABLE_BATCH_TOKENS) -> float:
    """Steps of a token budget. Not rounded: the tables' digits need the fraction."""
    if tokens <= 0 or batch_tokens <= 0:
        raise UserError(f"{tokens} tokens in batches of {batch_tokens}: both must be above 0.")
    return tokens / batch_tokens


def _values(model: ModelConfig, piece: Fragment) -> int:
    return sum(prod(shape) for shape in fragment_shapes(model, len(piece.layers), piece.embed).values())


def _check_replicas(replicas: int) -> None:
    if replicas < 2:
        raise UserError(f"{replicas} replicas: a link between sites needs at least 2.")
