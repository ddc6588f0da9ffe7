"""One spec, three scales: a pure function from a config at paper scale to its miniature.

`mini` is the whole paper on two cores: the same methods and code path, real English text, models of a
hundred thousand parameters with 20 tokens a parameter. `smoke` runs in seconds and says nothing about
learning. The replicas, H, τ, α, codec and outer optimiser are the paper's at every scale; what shrinks
is the model, the batch, the number of steps and the layers a fragment (so that there are several).
"""

import dataclasses
import math

from repro.config import SCALES, InnerConfig, ModelConfig, RunConfig, SyncConfig, ValidationConfig
from repro.errors import UserError

TOKENS_PER_PARAMETER = 20

# paper size -> mini size, layers, FFN width, heads
MINI_LADDER = {
    "35M": ("45k", 3, 96, 2),
    "100M": ("70k", 3, 128, 2),
    "200M": ("118k", 4, 160, 2),
}
MINI_VOCAB, MINI_SEQ, MINI_BATCH = 1_024, 128, 8
# Peak rates chosen by experiments/tuning.py (results in data/results/tuning.json, which a test compares).
MINI_LEARNING_RATE = {"data-parallel": 2.0**-5, "diloco": 2.0**-6, "streaming": 2.0**-6}


def at_scale(config: RunConfig, scale: str) -> RunConfig | None:
    """`config` (at paper scale) at `scale`; None where the miniature has no such size. UserError on a bad scale."""
    if scale not in SCALES:
        raise UserError(f"scale={scale!r}: choose one of {', '.join(SCALES)}.")
    if scale == "paper":
        return config
    if config.model.size not in MINI_LADDER:
        return None
    return _mini(config) if scale == "mini" else _smoke(config)


def _mini(config: RunConfig) -> RunConfig:
    size, layers, ffn_width, heads = MINI_LADDER[config.model.size]
    model = ModelConfig(size, layers, ffn_width, heads, MINI_VOCAB, MINI_SEQ, compute_dtype="float32")
    budget = config.tokens / config.model.params_by_rule  # 20 in the main runs, more when overtrained
    steps = round(budget * model.params_by_rule / (MINI_BATCH * MINI_SEQ))
    return dataclasses.replace(
        config,
        scale="mini",
        model=model,
        inner=_mini_inner(config, steps),
        sync=_mini_sync(config.sync),
        corpus="mini",
        batch=MINI_BATCH,
        steps=steps,
        validation=ValidationConfig(math.ceil(steps / 5), 512, config.validation.parameters),
    )


def method_family(config: RunConfig) -> str:
    """Which tuned learning rate a run takes."""
    if config.sync is None:
        return "data-parallel"
    return "diloco" if config.sync.fragments.pattern == "whole" else "streaming"


def _mini_inner(config: RunConfig, steps: int) -> InnerConfig:
    return dataclasses.replace(
        config.inner,
        learning_rate=MINI_LEARNING_RATE[method_family(config)],
        warmup_steps=steps // 10,
        weight_decay=1 / steps,
    )


def _mini_sync(sync: SyncConfig | None) -> SyncConfig | None:
    """A third of the paper's layers a fragment: its default of 3 becomes 1."""
    if sync is None:
        return None
    layers = max(1, round(sync.fragments.layers / 3))
    return dataclasses.replace(sync, fragments=dataclasses.replace(sync.fragments, layers=layers))


def _smoke(config: RunConfig) -> RunConfig:
    mini = _mini(config)
    steps, every = 24, min(6, config.sync.every) if config.sync else 0
    layers = {"35M": 2, "100M": 3, "200M": 4}[config.model.size]
    model = ModelConfig(f"{2 + layers}k", layers, 64, 1, 256, 16, compute_dtype="float32")
    sync = mini.sync
    if sync is not None:
        # H shrinks with the run; a τ that no longer fits below it shrinks too.
        sync = dataclasses.replace(
            sync,
            every=every if sync.every <= 30 else 2 * every,
            delays=tuple(min(d, every - 1) for d in sync.delays),
        )
    return dataclasses.replace(
        mini,
        scale="smoke",
        model=model,
        inner=dataclasses.replace(mini.inner, warmup_steps=2, weight_decay=1 / steps),
        sync=sync,
        corpus="smoke",
        batch=8,
        steps=steps,
        validation=ValidationConfig(12, 32, mini.validation.parameters),
    )
