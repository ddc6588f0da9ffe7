"""The ladder of Table 2 and the methods of the paper as configs: what the specs vary.

Every value that the paper leaves open is set here once and named in `repro.assumptions`.
"""

import math

from repro.config import (
    CodecConfig,
    FragmentConfig,
    InnerConfig,
    ModelConfig,
    OuterConfig,
    RunConfig,
    SyncConfig,
    ValidationConfig,
)

#            layers, hidden dim (F), heads
LADDER = {
    "35M": (6, 2_048, 8),
    "100M": (9, 3_072, 12),
    "200M": (12, 4_096, 16),
    "300M": (15, 5_120, 20),
    "500M": (18, 6_144, 24),
    "1B": (24, 8_192, 32),
    "4B": (36, 12_288, 48),
}
SIZES = tuple(LADDER)
TOKENS_PER_PARAMETER = 20
C4_BATCH = 256  # sequences of 1,024: 2^18 tokens
OUTER = OuterConfig(optimizer="nesterov", learning_rate=0.4, momentum=0.9)
DP = "Data-Parallel"


def model(size: str, seq_len: int = 1_024) -> ModelConfig:
    """An architecture of Table 2."""
    layers, ffn_width, heads = LADDER[size]
    return ModelConfig(size, layers, ffn_width, heads, vocab=32_000, seq_len=seq_len, compute_dtype="bfloat16")


def data_parallel(size: str) -> RunConfig:
    """The baseline on C4, with the Chinchilla budget of 20 tokens a parameter."""
    shape = model(size)
    steps = round(TOKENS_PER_PARAMETER * shape.params_by_rule / (C4_BATCH * shape.seq_len))
    return RunConfig(
        scale="paper",
        model=shape,
        inner=inner(shape, steps),
        sync=None,
        replicas=1,
        corpus="c4",
        batch=C4_BATCH,
        steps=steps,
        validation=ValidationConfig(every=math.ceil(steps / 20), sequences=2_048),
    )


def inner(shape: ModelConfig, steps: int) -> InnerConfig:
    """AdamW; the learning rate by the rule of Kaplan et al. (2020), appendix D.6, rounded to two digits."""
    rate = 0.003239 - 0.0001395 * math.log(shape.params_by_rule)
    return InnerConfig(
        learning_rate=float(f"{rate:.1e}"),
        warmup_steps=min(1_000, steps // 10),
        final_fraction=0.05,
        beta1=0.9,
        beta2=0.99,
        eps=1e-8,
        weight_decay=1 / steps,
        clip_norm=1.0,
    )


def diloco(every: int) -> SyncConfig:
    """Algorithm 1: everything at once, every H steps, waited for."""
    return SyncConfig(
        every=every,
        delays=(0,),
        mix=0.0,
        fragments=FragmentConfig(pattern="whole", layers=1, embedding="merged"),
        codec=CodecConfig("bfloat16"),
        outer=OUTER,
    )


def streaming(every: int) -> SyncConfig:
    """Algorithm 2 as in the main runs: 3 strided layers a fragment, τ = 1, E3M0."""
    return SyncConfig(
        every=every,
        delays=(1,),
        mix=0.5,
        fragments=FragmentConfig(pattern="strided", layers=3, embedding="own"),
        codec=CodecConfig("e3m0", scale="row"),
        outer=OUTER,
    )
