"""A tiny run's configs for the tests, without JAX."""

from dataclasses import replace
from typing import Any

from repro.diloco.resources import Resources
from repro.spec.config import (
    CodecConfig,
    FragmentConfig,
    InnerConfig,
    ModelConfig,
    OuterConfig,
    RunConfig,
    SyncConfig,
)

MODEL = ModelConfig("tiny", layers=3, ffn_width=32, heads=2, vocab=32, seq_len=8, compute_dtype="float32")
INNER = InnerConfig(
    learning_rate=0.01,
    warmup_steps=3,
    final_fraction=0.1,
    beta1=0.9,
    beta2=0.99,
    eps=1e-4,  # large: Adam divides by gradients, and rounding errors in tiny ones should not decide
    weight_decay=0.002,
    clip_norm=0.5,
)
NESTEROV = OuterConfig("nesterov", learning_rate=0.4, momentum=0.9)
HEAVY_BALL = OuterConfig("heavy_ball", learning_rate=0.3, momentum=0.8)
OUTER_ADAM = OuterConfig("adam", learning_rate=0.02, momentum=0.0, beta1=0.8, beta2=0.95, eps=1e-3)  # ε as above
STRIDED = FragmentConfig("strided", layers=2, embedding="own")
SEQUENTIAL = FragmentConfig("sequential", layers=2, embedding="own")
MERGED = FragmentConfig("strided", layers=2, embedding="merged")
WHOLE = FragmentConfig("whole", layers=1, embedding="merged")
TWO = Resources(replica=2, unroll=False)
ONE = Resources(replica=1, unroll=False)
SHARDED = Resources(replica=2, data=2, fsdp=2, unroll=False)


def synced(
    every: int = 4,
    delays: tuple[int, ...] = (1,),
    mix: float = 0.5,
    fragments: FragmentConfig = STRIDED,
    codec: str = "float32",
    outer: OuterConfig = NESTEROV,
) -> SyncConfig:
    """A SyncConfig; the defaults are Streaming with τ = 1 and several fragments."""
    return SyncConfig(every, delays, mix, fragments, CodecConfig(codec), outer)


def run_config(
    sync: SyncConfig | None, replicas: int = 2, batch: int = 4, steps: int = 12, **changes: Any
) -> RunConfig:
    """A run of the tiny model."""
    config = RunConfig("smoke", MODEL, INNER, sync, replicas, "smoke", batch, steps)
    return replace(config, **changes)


def corpus_config(sync: SyncConfig | None, steps: int = 16) -> RunConfig:
    """A run on the smoke corpus, whose tokens are bytes; data-parallel where `sync` is None."""
    config = run_config(sync, replicas=2 if sync else 1, steps=steps)
    return replace(config, model=replace(MODEL, vocab=256))
