"""One form of all configs that compute the same: of it a run's id is made, and it is what `config.json` holds.

A setting that decides nothing takes one value here. That is judged from the settings alone, never from the length of
the run: a run that is too short for its first outer update can be extended, and then its outer optimiser counts. Names
stay as they are given (`scale`, `model.size`), and so does `repeat_data`, without which a run may be refused.
"""

from dataclasses import replace
from functools import lru_cache

from repro.spec.config import CodecConfig, FragmentConfig, InnerConfig, ModelConfig, OuterConfig, RunConfig, SyncConfig
from repro.spec.formats import FORMATS, RANDOM_DROPS
from repro.spec.fragments import cut
from repro.spec.optim_state import OUTER
from repro.spec.payload import kept_columns
from repro.spec.schedule import offsets
from repro.spec.shapes import parameter_shapes


@lru_cache(maxsize=4096)
def canonical_config(config: RunConfig) -> RunConfig:
    """The config that stands for all with which a run has the same parameters, step by step, and sends the same bytes.

    - one τ where all replicas have the same; the least alone where α = 1, since nothing is mixed in
    - fragments by the way they are cut: `whole` where there is one of everything, strided where that cuts alike
    - neither a sign of the offsets nor the first sync where they are the same either way; nothing frozen where all
      fragments are due at once
    - no kept share where nothing is dropped, no random mask where all is kept
    - no scale but `row` for a format without one, nor for blocks as long as the longest row
    - SGD for an optimiser without momentum, or at a rate of 0
    - no end of the inner schedule where it is the run's, or where the rate never falls
    """
    inner = _inner(config.inner, config.steps)
    return replace(config, inner=inner, sync=config.sync and _sync(config.sync, config.model))


def _inner(inner: InnerConfig, steps: int) -> InnerConfig:
    first = inner.warmup_steps + 1  # an earlier end is this one: the step after the warm-up has the final rate
    end = max(inner.schedule_steps or steps, first)
    moot = inner.final_fraction == 1 or end == max(steps, first)
    return replace(inner, schedule_steps=0 if moot else end)


def _sync(sync: SyncConfig, model: ModelConfig) -> SyncConfig:
    fragments = _fragments(sync.fragments, model.layers)
    starts = offsets(sync.every, len(cut(fragments, model.layers)))
    at_once = not any(starts)
    mirrored = all(2 * start % sync.every == 0 for start in starts)
    return replace(
        sync,
        delays=(min(sync.delays),) if sync.mix == 1 or len(set(sync.delays)) == 1 else sync.delays,
        fragments=fragments,
        codec=_codec(sync.codec, model),
        outer=_outer(sync.outer),
        offset_sign=-1 if mirrored else sync.offset_sign,
        first_sync="trained" if at_once else sync.first_sync,
        frozen=sync.frozen and not at_once,
    )


def _fragments(fragments: FragmentConfig, layers: int) -> FragmentConfig:
    """The first that cuts the model alike: whole, then strided with the fewest layers a fragment."""
    strided = (replace(fragments, pattern="strided", layers=n) for n in range(1, fragments.layers + 1))
    alike = (FragmentConfig("whole", 1, "merged"), *(strided if fragments.pattern != "whole" else ()))
    pieces = cut(fragments, layers)
    return next((other for other in alike if cut(other, layers) == pieces), fragments)


def _codec(codec: CodecConfig, model: ModelConfig) -> CodecConfig:
    if codec.drop == "none" or (codec.drop in RANDOM_DROPS and codec.keep == 1):
        codec = replace(codec, drop="none", keep=1.0)
    block = codec.scale.removeprefix("block:")
    rows = (kept_columns(codec, shape[-1]) for leaves in parameter_shapes(model).values() for shape in leaves.values())
    if not FORMATS[codec.format].scaled or (block.isdigit() and int(block) >= max(rows)):
        return replace(codec, scale="row")
    return codec


def _outer(outer: OuterConfig) -> OuterConfig:
    still = OUTER[outer.optimizer].reads == ("momentum",) and outer.momentum == 0
    return OuterConfig("sgd", outer.learning_rate, 0.0) if still or outer.learning_rate == 0 else outer
