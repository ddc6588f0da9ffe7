"""The models of Table 3 and the methods of the paper as configs: what its specs vary.

Rates and batches at paper scale follow the paper's own laws. What it leaves open is that of 2501.18512's specs
(`experiments.streaming.base`); both train DiLoCo with one trainer. M = 1 is DiLoCo with one replica: an outer optimiser
alone, with nothing to exchange.
"""

import math
from dataclasses import replace

from experiments.streaming import base as streaming
from repro.spec.config import ModelConfig, OuterConfig, RunConfig
from repro.spec.laws import BATCHES, RATES
from repro.spec.scales import TOKENS_PER_PARAMETER, Setting, tuned_rate, usual_batch

#            layers, hidden dimension (F), heads
LADDER = {
    "35M": (6, 2_048, 8),
    "90M": (9, 3_072, 12),
    "180M": (12, 4_096, 16),
    "335M": (15, 5_120, 20),
    "550M": (18, 6_144, 24),
    "1.3B": (24, 8_192, 32),
    "2.4B": (30, 10_240, 40),
    "4B": (36, 12_288, 48),
    "10B": (48, 16_384, 64),
}
SIZES = tuple(LADDER)[:7]  # those that were tuned: Table 4
MINI_SIZES = SIZES[:3]  # those with a miniature
SMALLEST = SIZES[0]
SEQUENCE, VOCABULARY, WARMUP = 2_048, 32_768, 1_000
DP = "Data-Parallel"
REPLICAS = (1, 2, 4, 8)  # M
EVERY = 30  # H
OUTER_RATES = (0.2, 0.4, 0.6, 0.8, 1.0)  # η
BEST_OUTER = {1: 0.4, 2: 0.6, 4: 0.6, 8: 0.8}  # Figure 7, from 335M on
SEEDS = 3  # of the smallest size, in miniature
GRID_BATCH = 8  # sequences: the middle of a miniature's batches with M = 1 and 2
SETTINGS_NOTE = (
    "At paper scale: inner rate and batch by the laws of Tables 8 and 9, to the nearest powers of √2 and 2, the batch "
    f"read in sequences of {SEQUENCE:,}, in which the laws meet the minima of Figure 4; as tokens it would be 30 at "
    f"{SMALLEST}."
)
ARITHMETIC_NOTE = (
    f"Parameters are float32 here, and {VOCABULARY:,} pieces fill the vocabulary; the paper trains bfloat16 weights "
    "and gradients, and pads 32,000 words."
)
OUTER_NOTE = (
    "The outer rate of a row that doesn't name it is the best one of Figure 7 for its M from 335M on: "
    + ", ".join(f"{rate:g} for M = {m}" for m, rate in BEST_OUTER.items())
    + "."
)
NOTES = (SETTINGS_NOTE, ARITHMETIC_NOTE, OUTER_NOTE)


def replica_label(replicas: int) -> str:
    """A method as the paper's tables print it."""
    return f"DiLoCo, M = {replicas}" if replicas else DP


def trained_config(
    size: str,
    replicas: int,
    every: int = EVERY,
    outer_rate: float | None = None,
    corpus: str = "c4",
    overtrain: int = 1,
    batch_factor: float = 1,
) -> RunConfig:
    """A run of the paper; `replicas` 0 is Data-Parallel, `overtrain` λ of section 5.2.

    `batch_factor` multiplies the batch of the method at the size, and leaves the rate.
    """
    layers, ffn_width, heads = LADDER[size]
    shape = ModelConfig(size, layers, ffn_width, heads, VOCABULARY, SEQUENCE, compute_dtype="bfloat16")
    batch = round(batch_factor * batch_by_law(shape, replicas))
    steps = round(overtrain * TOKENS_PER_PARAMETER * shape.params_by_rule / (batch * SEQUENCE))
    inner = replace(
        streaming.inner(shape, steps, replicas),
        learning_rate=rate_by_law(shape, replicas),
        warmup_steps=min(WARMUP, steps),
    )
    outer = OuterConfig("nesterov", BEST_OUTER.get(replicas, 0.4) if outer_rate is None else outer_rate, momentum=0.9)
    sync = replace(streaming.diloco(every), outer=outer) if replicas else None
    return RunConfig("paper", shape, inner, sync, max(replicas, 1), corpus, batch, steps)


def batch_by_law(shape: ModelConfig, replicas: int) -> int:
    """Sequences a step by Table 9, to the nearest power of two; never fewer than one a replica."""
    law = BATCHES[replicas].at(shape.params_by_rule, replicas)
    return max(2 ** round(math.log2(law)), replicas, 1)


def rate_by_law(shape: ModelConfig, replicas: int) -> float:
    """The inner rate by Table 8, to the nearest power of √2."""
    law = RATES[replicas].at(shape.params_by_rule, replicas)
    return 2 ** (round(2 * math.log2(law)) / 2)


def scaled_batch(config: RunConfig, factor: float, scale: str) -> Setting:
    """A miniature's setting at `factor` times the middle batch of its method; the rate goes with the batch's root."""
    batch = round(factor * GRID_BATCH * max(config.replicas, 2) // 2)
    return Setting(batch, tuned_rate(config) * (batch / usual_batch(replace(config, scale=scale))) ** 0.5)
