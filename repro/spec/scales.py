"""One spec, four scales: a pure function from a config at paper scale to its miniature.

`mini` is the whole paper on two cores: the same methods and code path, real English text, models of a
hundred thousand parameters with 20 tokens a parameter. `small` has some of it with up to a million
parameters, batch and rate carried there by a rule (`repro.spec.small`). `smoke` runs in seconds and says nothing about
learning. The replicas, α, codec and outer optimiser are the paper's at every scale, in miniature H and τ too; what
shrinks is the model, the batch, the number of steps and the layers a fragment (so that there are several). A row that
names a value which shrinks shows the one that is run: `relabelled`. Batch and peak rate of a miniature are set here by
method and M, or by the row (`Setting`): of a run at paper scale it takes the tokens a parameter, and no other length.
"""

import math
import re
from dataclasses import dataclass, replace

from repro.corpora import CORPORA
from repro.errors import UserError
from repro.spec import small
from repro.spec.config import SCALES, InnerConfig, ModelConfig, RunConfig, SyncConfig
from repro.spec.laws import DATA_PARALLEL, law_rate, steps_for
from repro.words import counted

TOKENS_PER_PARAMETER = 20

# mini size -> layers, FFN width, heads, sequences of the largest batch that is trained at it
MINI_MODELS = {
    "45k": (3, 96, 2, 8),
    "70k": (3, 128, 2, 4),
    "118k": (4, 160, 2, 4),
    "66k": (6, 96, 2, 2),  # for what depends on the fragments: as many layer fragments as the paper's 500M has
}
MINI_LADDER = {"35M": "45k", "100M": "70k", "200M": "118k"}  # Table 5's first sizes
MINI_LADDER |= {"90M": "70k", "180M": "118k"}  # the same models, as arXiv 2503.09799 calls them
SMALLEST_PARAMS = 45_312  # of the smallest miniature, by the rule
SMOKE_LAYERS = {"45k": 2, "70k": 3, "118k": 4, "66k": 3}
PAPER_FRAGMENT = 3  # layers a fragment, which becomes one in miniature
MINI_VOCAB, MINI_SEQ = CORPORA["mini"].vocab, 128
# Of each method with two replicas (data-parallel: of any), in sequences: the best of the grid of tuning.py in
# experiments/streaming at the smallest size, as are the peak rates at each M (a test compares data/results/mini.json).
MINI_BATCH = {"data-parallel": 2, "diloco": 2, "streaming": 2}
MINI_LEARNING_RATE = {
    "data-parallel": {1: 2.0**-6},
    "diloco": {2: 2.0**-7, 4: 2.0**-5, 8: 2.0**-6},
    "streaming": {2: 2.0**-6, 4: 2.0**-5, 8: 2.0**-6},
}
WARMUP_SHARE = 10  # a tenth of the steps, as 1,000 are of the paper's 35M with 20 tokens a parameter
SMOKE_BATCH = 8  # sequences, of data-parallel and two replicas


@dataclass(frozen=True)
class Setting:
    """Batch and peak rate of a row that doesn't take the usual ones of its scale."""

    batch: int  # global: sequences over all replicas
    rate: float
    seq_len: int = MINI_SEQ


def at_scale(config: RunConfig, scale: str, mini_model: str = "", own: Setting | None = None) -> RunConfig | None:
    """`config` (at paper scale) at `scale`; None where the miniature has no such size or fragment.

    `mini_model` names the miniature instead of the ladder, `own` the row's setting instead of the usual one. UserError
    on a bad scale.
    """
    if scale not in SCALES:
        raise UserError(f"scale={scale!r}: choose one of {', '.join(SCALES)}.")
    if scale == "paper":
        return config
    if config.sync and not _has_mini_fragments(config.sync):
        return None
    if scale == "small":
        size = small.ABLATED_SMALL if mini_model else small.SMALL_LADDER.get(config.model.size)
        return _small(config, size, own) if size else None
    size = mini_model or MINI_LADDER.get(config.model.size)
    if size is None:
        return None
    usual = usual_batch(replace(config, scale=scale))
    mini = _mini(config, size, own or Setting(usual, mini_rate(config, size)))
    return mini if scale == "mini" else _smoke(mini)


def relabelled(text: str, paper: RunConfig, config: RunConfig) -> str:
    """A label or sentence on a run of the paper as one on its counterpart: size, H, τ, fragment, batch, rate."""
    if text == paper.model.size:
        return config.model.size
    if config.scale != "paper" and re.fullmatch(r"(.*, )?batch x [\d.]+, rate x [\d.]+", text):
        return f"{config.batch} × {config.model.seq_len}, 2^{math.log2(config.inner.learning_rate):g}"
    if paper.sync is None or config.sync is None:
        return text
    values = (
        (r"(?<=\bH=)\d+|(?<=\bH = )\d+|^\d+$", paper.sync.every, config.sync.every),
        (r"(?<=τ = )\d+|(?<=τ₁ = )\d+", paper.sync.delays[0], config.sync.delays[0]),
        (r"(?<=τ₂ = )\d+", paper.sync.delays[-1], config.sync.delays[-1]),
    )
    for where, old, new in values:
        text = re.sub(where, lambda number, old=old, new=new: str(new) if number[0] == str(old) else number[0], text)
    if text == counted(paper.sync.fragments.layers, "layer"):
        return counted(config.sync.fragments.layers, "layer")
    return text


def _mini(config: RunConfig, size: str, setting: Setting) -> RunConfig:
    model = model_of(size, setting.seq_len)
    budget = round(config.tokens / config.model.params_by_rule)  # 20 in the main runs, more when overtrained
    tokens = MINI_SEQ * steps_for(budget * model.params_by_rule, MINI_SEQ, MINI_MODELS[size][-1] * MINI_SEQ)
    steps = tokens // (setting.batch * setting.seq_len)  # a grid may try batches that don't divide them
    return replace(
        config,
        scale="mini",
        model=model,
        inner=_mini_inner(config, setting.rate, steps),
        sync=_mini_sync(config.sync),
        corpus="mini",
        batch=setting.batch,
        steps=steps,
    )


def _small(config: RunConfig, size: str, own: Setting | None) -> RunConfig:
    """The smallest miniature of the same row, moved to a larger model; all runs of a size see the same tokens.

    At the size's largest batch the steps are the multiple of 300 that is nearest to the budget, which H = 30, 50 and
    100 divide; a smaller batch takes proportionally more.
    """
    layers, ffn_width, heads = small.SMALL_MODELS[size]
    model = ModelConfig(size, layers, ffn_width, heads, MINI_VOCAB, MINI_SEQ, compute_dtype="float32")
    usual = replace(config, scale="small", model=model, sync=_mini_sync(config.sync))
    setting = own or Setting(usual_batch(usual), usual_rate(usual))
    most = small.MOST_REPLICAS.get(size, 2)
    largest = max(_small_batch(model, *of) for of in (("data-parallel", 1), ("diloco", most), ("streaming", most)))
    budget = round(config.tokens / config.model.params_by_rule) * model.params_by_rule
    batch_tokens = setting.batch * MINI_SEQ
    steps = steps_for(budget, batch_tokens, largest * MINI_SEQ)
    return replace(
        usual,
        inner=_mini_inner(config, setting.rate, steps),
        corpus="mini",
        batch=setting.batch,
        steps=steps,
        repeat_data=steps * batch_tokens > small.TEXT_TOKENS,
    )


def _small_batch(model: ModelConfig, method: str, replicas: int) -> int:
    ratio = model.params_by_rule / SMALLEST_PARAMS
    return small.carried_batch(MINI_BATCH[method], method, ratio) * max(replicas, 2) // 2


def method_family(config: RunConfig) -> str:
    """Which tuned learning rate a run takes."""
    if config.sync is None:
        return "data-parallel"
    return "diloco" if config.sync.fragments.pattern == "whole" else "streaming"


def usual_batch(config: RunConfig) -> int:
    """The global batch of a run below paper scale, in sequences, by method and M.

    More than two replicas keep the local batch of two, as in Tables 6 and 7 and Figure 12 (b).
    """
    if config.scale == "small":
        return _small_batch(config.model, method_family(config), config.replicas)
    two = MINI_BATCH[method_family(config)] if config.scale == "mini" else SMOKE_BATCH
    return two * max(config.replicas, 2) // 2


def tuned_rate(config: RunConfig) -> float:
    """The peak inner learning rate of a run's method and M at the smallest size below paper scale.

    That of its M, or of the next smaller one tuned.
    """
    tuned = MINI_LEARNING_RATE[method_family(config)]
    return tuned[max((m for m in tuned if m <= config.replicas), default=min(tuned))]


def mini_rate(config: RunConfig, size: str) -> float:
    """The peak inner learning rate of a run's miniature: tuned at the smallest size, and carried to others by N^-0.8.

    Rounded to a power of √2.
    """
    return small.carried_rate(tuned_rate(config), model_of(size).params_by_rule / SMALLEST_PARAMS)


def usual_mini_rate(config: RunConfig) -> float:
    """The peak inner learning rate of a run below paper scale: at toy size the tuned one."""
    return mini_rate(config, config.model.size) if config.model.size in MINI_MODELS else tuned_rate(config)


def model_of(size: str, seq_len: int = MINI_SEQ) -> ModelConfig:
    """The model of a miniature."""
    layers, ffn_width, heads, _ = MINI_MODELS[size]
    return ModelConfig(size, layers, ffn_width, heads, MINI_VOCAB, seq_len, compute_dtype="float32")


def usual_rate(config: RunConfig) -> float:
    """The peak inner learning rate of the main runs of a size and scale.

    At paper scale by the law of its replicas; else as tuned in miniature.
    """
    if config.scale == "small":
        return small.carried_rate(tuned_rate(config), config.model.params_by_rule / SMALLEST_PARAMS)
    if config.scale != "paper":
        return usual_mini_rate(config)
    return law_rate(config.model.params_by_rule, config.replicas if config.sync else DATA_PARALLEL)


def _mini_inner(config: RunConfig, rate: float, steps: int) -> InnerConfig:
    return replace(
        config.inner,
        learning_rate=rate,
        warmup_steps=steps // WARMUP_SHARE,
        weight_decay=1 / steps,
    )


def _has_mini_fragments(sync: SyncConfig) -> bool:
    return sync.fragments.pattern == "whole" or sync.fragments.layers % PAPER_FRAGMENT == 0


def _mini_sync(sync: SyncConfig | None) -> SyncConfig | None:
    """A third of the paper's layers a fragment, so that its 3 become 1, and a flush after the last step.

    At paper scale what the last rounds haven't brought is under a hundredth of the run; in miniature it is a tenth.
    """
    if sync is None:
        return None
    last = replace(sync, flush="last")
    return last if sync.fragments.pattern == "whole" else _cut(last, sync.fragments.layers // PAPER_FRAGMENT)


def _cut(sync: SyncConfig, size: int) -> SyncConfig:
    """With fragments of `size` layers."""
    return replace(sync, fragments=replace(sync.fragments, layers=size))


def _smoke(mini: RunConfig) -> RunConfig:
    """Seconds on one core: 24 steps at the usual batch, H of 6 or 12 and a τ below it."""
    layers = SMOKE_LAYERS[mini.model.size]
    model = ModelConfig(f"{2 + layers}k", layers, 64, 1, CORPORA["smoke"].vocab, 16, compute_dtype="float32")
    steps = 24 * SMOKE_BATCH // mini.batch
    return replace(
        mini,
        scale="smoke",
        model=model,
        inner=replace(mini.inner, warmup_steps=2, weight_decay=1 / steps),
        sync=_smoke_sync(mini.sync, layers),
        corpus="smoke",
        steps=steps,
    )


def _smoke_sync(sync: SyncConfig | None, layers: int) -> SyncConfig | None:
    """H shrinks with the run, a τ or a fragment that no longer fits shrinks too; the outer settings stay."""
    if sync is None:
        return None
    every = min(6 if sync.every <= 30 else 12, sync.every)
    delays = tuple(min(d, every - 1) for d in sync.delays)
    shrunk = replace(sync, every=every, delays=delays)
    if sync.fragments.pattern == "whole":
        return shrunk
    return _cut(shrunk, min(sync.fragments.layers, layers))
