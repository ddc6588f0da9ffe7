"""A run that is cut goes on where it was: bitwise on one layout, to rounding on another, with codes in flight."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import cut_run
import jax
import numpy as np
import pyarrow as pa
import pytest
import rig
import tiny

from repro.diloco.mesh import batch_sharding
from repro.diloco.resources import Resources
from repro.errors import Interrupted
from repro.runs.folder import RunFolder
from repro.spec.config import OuterConfig, RunConfig, SyncConfig
from repro.spec.identity import config_text
from repro.training.checkpoint import Checkpoints
from repro.training.metrics import read_metrics
from repro.training.state import Layout, TrainState
from repro.training.step import Stepper

pytestmark = pytest.mark.compiles

STEPS, SAVED, KILLED = 16, 7, 9
# Every third step, so that the outer Adam has made updates before it is saved.
IN_PARTS = replace(
    tiny.synced(every=3, delays=(2,), fragments=tiny.MERGED, codec="e3m0", outer=tiny.OUTER_ADAM), flush="last"
)
METHODS: dict[str, SyncConfig | None] = {
    "data-parallel": None,
    "diloco": tiny.synced(every=3, delays=(0,), mix=0.0, fragments=tiny.WHOLE, codec="bfloat16"),
    "streaming": IN_PARTS,  # and a final flush
}


def config_of(sync: SyncConfig | None) -> RunConfig:
    return tiny.corpus_config(sync, steps=STEPS)


def resources_of(config: RunConfig) -> Resources:
    return Resources(replica=config.replicas, unroll=False)


def final_state(folder: RunFolder, config: RunConfig) -> dict[str, Any]:
    checkpoints = Checkpoints(folder.checkpoints)
    assert checkpoints.steps()[-1] == config.steps
    state = checkpoints.restore(Layout.of(config, resources_of(config)), config.steps)
    checkpoints.close()
    flight = {p: entry["codes"] for p, entry in state.flight.items()}
    tree = {"params": state.params, "inner": state.inner, "outer": state.outer, "flight": flight}
    return jax.tree.map(np.asarray, tree)


def metrics_of(folder: RunFolder) -> pa.Table:
    return read_metrics(folder.metrics).drop_columns(["seconds"])


@pytest.mark.parametrize("sync", METHODS.values(), ids=METHODS.keys())
def test_killed_and_run_again_ends_with_the_same_bits(
    sync: SyncConfig | None, tmp_path: Path, smoke_tokens: Path
) -> None:
    config = config_of(sync)
    layout = Layout.of(config, resources_of(config))
    assert bool(layout.in_flight(SAVED)) == (sync is IN_PARTS)
    arguments = [str(tmp_path / "cut"), str(smoke_tokens), config_text(config), str(SAVED), str(KILLED)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, cut_run.__file__, *arguments]
    cut = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8")
    assert cut.returncode == -signal.SIGKILL, cut.stderr

    whole = cut_run.run(config, layout.resources, tmp_path / "whole", smoke_tokens)
    steps: list[int] = []
    again = cut_run.run(
        config, layout.resources, tmp_path / "cut", smoke_tokens, report=lambda m: steps.append(m["step"])
    )
    assert min(step for step in steps if step) >= SAVED  # it did not start afresh
    jax.tree.map(np.testing.assert_array_equal, final_state(again, config), final_state(whole, config))
    assert metrics_of(again).equals(metrics_of(whole))
    assert metrics_of(again)["step"].to_pylist() == list(range(1, STEPS + 1))
    ours, theirs = again.summary(), whole.summary()
    assert ours is not None
    assert theirs is not None
    for summary in (ours, theirs):
        del summary["seconds"], summary["tokens_per_s"], summary["processor_seconds"]
    assert ours == theirs


def test_a_run_that_is_asked_to_stop_anywhere_saves_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, smoke_tokens: Path
) -> None:
    """Between compilations, in a validation, between two steps and in the last validation: the same bits in the end.

    The run that is stopped has a call a step, the one that isn't has several steps a call.
    """
    config, told = config_of(None), {}
    whole = cut_run.run(config, tiny.ONE, tmp_path / "whole", smoke_tokens)
    monkeypatch.setattr(Stepper, "free", lambda *_: 0)
    for stage, step, reached in (
        ("compiling", 0, 0),
        ("validating", 8, 8),
        ("training", 9, 11),
        ("validating", 16, 16),
    ):

        def asked(stage: str = stage, step: int = step) -> bool:
            return told["stage"].startswith(stage) and told["step"] == step

        with pytest.raises(Interrupted, match=f"stopped after step {reached} of {STEPS}; it is saved"):
            cut_run.run(config, tiny.ONE, tmp_path / "cut", smoke_tokens, report=told.update, stop_asked=asked)
        assert told["step"] == (step if stage == "compiling" else reached)
    again = cut_run.run(config, tiny.ONE, tmp_path / "cut", smoke_tokens)
    jax.tree.map(np.testing.assert_array_equal, final_state(again, config), final_state(whole, config))
    assert metrics_of(again).equals(metrics_of(whole))
    assert (again.summary() or {})["validations"] == (whole.summary() or {})["validations"]


def go(layout: Layout, state: TrainState, last: int) -> None:
    stepper = Stepper(layout)
    while state.step < last:
        stepper(state, jax.device_put(rig.tokens(layout.config, state.step + 1), batch_sharding(layout.mesh)))


@pytest.mark.parametrize("outer", [tiny.HEAVY_BALL, OuterConfig("sgd", 0.7, 0.0)], ids=lambda outer: outer.optimizer)
def test_what_an_outer_optimiser_keeps_comes_back_bit_for_bit(outer: OuterConfig, tmp_path: Path) -> None:
    sync = tiny.synced(every=3, delays=(0,), mix=0.0, fragments=tiny.WHOLE, outer=outer)
    layout = Layout.of(tiny.run_config(sync), tiny.TWO)
    state = rig.begin(layout)
    go(layout, state, SAVED)  # two updates
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state)
    go(layout, state, KILLED)
    checkpoints.close()
    later = Checkpoints(tmp_path)
    again = later.restore(layout, SAVED)
    later.close()
    go(layout, again, KILLED)
    ours, theirs = (jax.tree.map(np.asarray, (s.params, s.inner, s.outer)) for s in (again, state))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(ours[2][0]["state"]))


def test_a_run_goes_on_on_another_layout_with_codes_in_flight(tmp_path: Path) -> None:
    # H = 6, τ = 3: after step 7 the codes of fragment 0 are there, and one part of three has moved.
    config = tiny.run_config(tiny.synced(every=6, delays=(3,), fragments=tiny.MERGED, codec="e3m0"), batch=8)
    here = Layout.of(config, tiny.TWO)
    state = rig.begin(here)
    go(here, state, 7)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state)
    go(here, state, 9)
    before = np.asarray(rig.begin(here).outer[0]["params"]["layers/up"])
    assert np.any(np.asarray(state.outer[0]["params"]["layers/up"]) != before)
    for resources in (tiny.ONE, tiny.SHARDED, tiny.TWO):
        there = Layout.of(config, resources)
        moved = checkpoints.restore(there, 7)
        assert set(moved.flight) == {0}
        go(there, moved, 9)
        # The codes were made before the move, so E3M0 flips none of them.
        for ours, theirs in ((moved.params, state.params), (moved.outer, state.outer)):
            close = 0.0 if resources is tiny.TWO else 1e-5
            jax.tree.map(lambda a, b, c=close: np.testing.assert_allclose(a, b, rtol=0, atol=c), ours, theirs)
    checkpoints.close()
