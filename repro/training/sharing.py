"""Which runs share a program: what of a config it is made from. No JAX.

The schedules of syncs and of the rate, α and the seed reach a program as arguments, so runs that differ in these
alone share it, and a process that does several runs compiles it once.
"""

from dataclasses import replace

from repro.spec.actions import Action
from repro.spec.config import CodecConfig, FragmentConfig, OuterConfig, RunConfig, SyncConfig


def program_config(config: RunConfig, actions: tuple[Action, ...] = (), *, cut: bool = False) -> RunConfig:
    """The config with all that doesn't enter the program of these actions set to one value.

    The peak rate stays: weight decay is stated relative to it. `cut`: how the model is cut into fragments enters too.
    What decides about a program must not be left out: `test_step` lowers those of runs that differ in each field.
    """
    sync = config.sync
    return replace(
        config,
        scale="smoke",
        inner=replace(config.inner, warmup_steps=0, final_fraction=1.0, schedule_steps=0),
        sync=sync and _program_sync(sync, bool(actions), cut),
        corpus="smoke",
        steps=1,
        validation=replace(config.validation, every=1, sequences=1, parameters="outer"),
        seed=config.seed if actions and sync and sync.codec.drop != "none" else 0,
        repeat_data=False,
    )


def _program_sync(sync: SyncConfig, acts: bool, cut: bool) -> SyncConfig:
    return SyncConfig(
        every=1,
        delays=(0,),
        mix=0.0,
        fragments=sync.fragments if cut else FragmentConfig("whole", 1, "merged"),
        codec=sync.codec if acts else CodecConfig("float32"),
        outer=sync.outer if acts else OuterConfig("sgd", 1.0, 0.0),
        frozen=sync.frozen,
    )
