"""One spec, four scales: a pure function from a config at paper scale to its miniature.

`mini` is the whole paper on two cores: the same methods and code path, real English text, models of a
hundred thousand parameters with 20 tokens a parameter. `small` has some of it with up to a million
parameters, batch and rate carried there by a rule (`repro.spec.small`). `smoke` runs in seconds and says nothing about
learning. The replicas, α, codec and outer optimiser are the paper's at every scale, in miniature H and τ too; what
shrinks is the model, the batch, the number of steps and the layers a fragment (so that there are several). A row that
names a value which shrinks shows the one that is run: `relabelled`. Batch and peak rate of a miniature are set here by
method and M, or by the row (`Setting`): of a run at paper scale it takes the tokens a parameter, and no other length.
"""

import re
from dataclasses import dataclass, replace

from repro.corpora import CORPORA
from repro.errors import UserError
from repro.spec import small
from repro.spec.config import SCALES, InnerConfig, ModelConfig, RunConfig, SyncConfig
from repro.spec.laws import DATA_PARALLEL, law_rate, steps_for
from repro.words import counted

TOKENS_PER_PARAMETER = 20

# mini size -> layers, FFN width, heads
MINI_MODELS = {
    "45k": (3, 96, 2),
    "70k": (3, 128, 2),
    "118k": (4, 160, 2),
    "66k": (6, 96, 2),  # for what depends on the fragments: as many layer fragments as the paper's 500M has
}
MINI_LADDER = {"35M": "45k", "100M": "70k", "200M": "118k"}  # Table 5's first sizes
MINI_LADDER |= {"90M": "70k", "180M": "118k"}  # the same models, as arXiv 2503.09799 calls them
SMALLEST_PARAMS = 45_312  # of the smallest miniature, by the rule
SMOKE_LAYERS = {"45k": 2, "70k": 3, "118k": 4, "66k": 3}
PAPER_FRAGMENT = 3  # layers a fragment, which becomes one in miniature
MINI_VOCAB, MINI_SEQ = CORPORA["mini"].vocab, 128
MINI_BATCH = 8  # sequences a step of data-parallel and of two replicas; more replicas keep their local batch
# Peak rates chosen by experiments/streaming/tuning.py (results in data/results/mini.json, which a test compares).
MINI_LEARNING_RATE = {"data-parallel": 2.0**-5, "diloco": 2.0**-6, "streaming": 2.0**-6}


@dataclass(frozen=True)
class Setting:
    """A miniature's global batch, in sequences over all replicas, and peak rate, where a row sets its own."""

    batch: int
    rate: float


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
    mini = _mini(config, size, own or Setting(usual_batch(config), usual_mini_rate(config)))
    return mini if scale == "mini" else _smoke(mini)


def relabelled(text: str, paper: RunConfig, config: RunConfig) -> str:
    """A label or sentence on a run of the paper as one on its counterpart: size, H, τ and layers of a fragment."""
    if text == paper.model.size:
        return config.model.size
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
    layers, ffn_width, heads = MINI_MODELS[size]
    model = ModelConfig(size, layers, ffn_width, heads, MINI_VOCAB, MINI_SEQ, compute_dtype="float32")
    budget = round(config.tokens / config.model.params_by_rule)  # 20 in the main runs, more when overtrained
    steps = round(budget * model.params_by_rule / (setting.batch * MINI_SEQ))
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
    return small.carried_batch(MINI_BATCH, method, ratio) * max(replicas, 2) // 2


def method_family(config: RunConfig) -> str:
    """Which tuned learning rate a run takes."""
    if config.sync is None:
        return "data-parallel"
    return "diloco" if config.sync.fragments.pattern == "whole" else "streaming"


def usual_batch(config: RunConfig) -> int:
    """The global batch of a run's miniature, in sequences: of data-parallel and M = 2 the same, then M times as many.

    Each replica has at least a sequence.
    """
    if config.scale == "small":
        return _small_batch(config.model, method_family(config), config.replicas)
    return MINI_BATCH * max(config.replicas, 2) // 2


def usual_mini_rate(config: RunConfig) -> float:
    """The peak inner learning rate of a run's miniature."""
    return MINI_LEARNING_RATE[method_family(config)]


def usual_rate(config: RunConfig) -> float:
    """The peak inner learning rate of the main runs of a size and scale.

    At paper scale by the law of its replicas; else as tuned in miniature.
    """
    if config.scale == "small":
        return small.carried_rate(usual_mini_rate(config), config.model.params_by_rule / SMALLEST_PARAMS)
    if config.scale != "paper":
        return usual_mini_rate(config)
    return law_rate(config.model.params_by_rule, config.replicas if config.sync else DATA_PARALLEL)


def _mini_inner(config: RunConfig, rate: float, steps: int) -> InnerConfig:
    return replace(
        config.inner,
        learning_rate=rate,
        warmup_steps=steps // 10,
        weight_decay=1 / steps,
    )


def _has_mini_fragments(sync: SyncConfig) -> bool:
    return sync.fragments.pattern == "whole" or sync.fragments.layers % PAPER_FRAGMENT == 0


def _mini_sync(sync: SyncConfig | None) -> SyncConfig | None:
    """A third of the paper's layers a fragment: its default of 3 becomes 1."""
    if sync is None or sync.fragments.pattern == "whole":
        return sync
    return _cut(sync, sync.fragments.layers // PAPER_FRAGMENT)


def _cut(sync: SyncConfig, size: int) -> SyncConfig:
    """With fragments of `size` layers."""
    return replace(sync, fragments=replace(sync.fragments, layers=size))


def _smoke(mini: RunConfig) -> RunConfig:
    """Seconds on one core: 24 steps at the usual batch, H of 6 or 12 and a τ below it."""
    layers = SMOKE_LAYERS[mini.model.size]
    model = ModelConfig(f"{2 + layers}k", layers, 64, 1, CORPORA["smoke"].vocab, 16, compute_dtype="float32")
    steps = 24 * MINI_BATCH // mini.batch
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
