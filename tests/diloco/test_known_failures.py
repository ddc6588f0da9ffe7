"""Failures that other implementations had: each is put into the trainer here, and the comparison must see it."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import rig
import tiny

from repro.diloco import program, wire
from repro.diloco.mesh import batch_sharding
from repro.spec.actions import Involved
from repro.spec.config import FragmentConfig, RunConfig
from repro.training import step
from repro.training.checkpoint import Checkpoints
from repro.training.state import Layout, TrainState
from repro.training.step import Stepper

pytestmark = pytest.mark.compiles

ATOL, CUT = 1e-5, 7
LAYERS = FragmentConfig("strided", layers=1, embedding="own")
# A sync a step: layers 0, 1, 2 and the embedding in turn; the layers' fragments are alike, so they can be mistaken.
STREAMING = tiny.run_config(tiny.synced(every=4, delays=(1,), mix=0.25, fragments=LAYERS), steps=14)
WHOLE = tiny.run_config(tiny.synced(every=3, delays=(1,), mix=0.25, fragments=tiny.WHOLE), steps=10)
IN_PARTS = tiny.run_config(tiny.synced(every=4, delays=(3,), mix=0.5, fragments=tiny.MERGED), steps=12)

Spoil = Callable[[TrainState], None]


def expected(config: RunConfig) -> oracle.Record:
    return _streaming_record() if config is STREAMING else _record(config)


@cache
def _record(config: RunConfig) -> oracle.Record:
    return rig.expected(config)


@cache
def _streaming_record() -> oracle.Record:
    fragments = [oracle.Fragment(embed=False, layers=(layer,)) for layer in range(3)]
    return oracle.run_oracle(
        rig.first_parameters(),
        rig.gradients(STREAMING),
        steps=STREAMING.steps,
        replicas=2,
        fragments=[*fragments, oracle.Fragment(embed=True, layers=())],
        every=4,
        delays=(1, 1),
        mix=0.25,
        inner=rig.inner_of(STREAMING),
        outer=rig.outer_of(tiny.NESTEROV),
    )


def assert_noticed(trace: rig.Trace, config: RunConfig) -> None:
    """The comparison that a faultless run passes doesn't pass, although nothing is NaN."""
    assert all(np.isfinite(loss).all() for loss in trace.loss)
    with pytest.raises(AssertionError):
        rig.assert_follows(trace, expected(config), ATOL)


@pytest.fixture
def compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs with a defect stay with their test; steps without an event have none."""
    kept = step._compiled
    monkeypatch.setattr(step, "_compiled", lambda recipe, key: (kept.__wrapped__ if key else kept)(recipe, key))


@pytest.mark.parametrize("config", [STREAMING, WHOLE], ids=["streaming", "whole"])
def test_without_a_defect_the_comparison_passes(config: RunConfig) -> None:
    rig.assert_follows(rig.drive(config), expected(config), ATOL)


@pytest.mark.usefixtures("compiled_anew")
def test_wrong_sign_of_the_outer_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    quantise = wire.quantise_rows
    monkeypatch.setattr(wire, "quantise_rows", lambda delta, *rest: quantise(jax.tree.map(jnp.negative, delta), *rest))
    assert_noticed(rig.drive(WHOLE), WHOLE)


@pytest.mark.usefixtures("compiled_anew")
def test_mean_divided_by_the_element_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "merge", lambda rows_M, _: jnp.sum(rows_M, axis=0) / rows_M[0].size)
    assert_noticed(rig.drive(WHOLE), WHOLE)


def test_alpha_reversed(monkeypatch: pytest.MonkeyPatch) -> None:
    involved = step.involved

    def reverse(item: Involved) -> Involved:
        return replace(item, keep_M=np.where(item.keep_M == 1, 1, 1 - item.keep_M).astype(np.float32))

    monkeypatch.setattr(step, "involved", lambda *args: tuple(map(reverse, involved(*args))))
    assert_noticed(rig.drive(STREAMING), STREAMING)


def after_each_step(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[TrainState, set[int]], None]) -> None:
    """Let `spoil` at the state, with the fragments that were applied, whenever a step is done."""
    call = Stepper.__call__

    def spoiled(self: Stepper, state: TrainState, tokens: jax.Array) -> Any:
        loss, applied = call(self, state, tokens)
        spoil(state, set(applied))
        return loss, applied

    monkeypatch.setattr(Stepper, "__call__", spoiled)


def test_one_outer_state_for_all_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    def share(state: TrainState, applied: set[int]) -> None:
        for p in applied & {0, 1, 2}:
            for q in {0, 1, 2} - {p}:
                state.outer[q]["state"] = jax.tree.map(jnp.copy, state.outer[p]["state"])

    after_each_step(monkeypatch, share)
    assert_noticed(rig.drive(STREAMING), STREAMING)


def drive_cut(config: RunConfig, folder: Path, spoil: Spoil = lambda state: None) -> rig.Trace:
    """Run to step CUT, save, restore with everything made anew, let `spoil` at it, and run to the end."""
    trace = rig.Trace([], [], [], [], [])
    layout = Layout.of(config, tiny.TWO)
    state = rig.begin(layout)
    rig.record(trace, state)
    go(trace, layout, state, CUT)
    checkpoints = Checkpoints(folder)
    checkpoints.save(state)
    checkpoints.close()
    again, layout = Checkpoints(folder), Layout.of(config, tiny.TWO)
    state = again.restore(layout, CUT)
    again.close()
    spoil(state)
    go(trace, layout, state, config.steps)
    return trace


def go(trace: rig.Trace, layout: Layout, state: TrainState, last: int) -> None:
    stepper = Stepper(layout)
    while state.step < last:
        tokens = rig.tokens(layout.config, state.step + 1)
        loss, _ = stepper(state, jax.device_put(tokens, batch_sharding(layout.mesh)))
        rig.record(trace, state)
        trace.loss.append(np.asarray(loss))


def test_a_restored_run_follows_the_oracle(tmp_path: Path) -> None:
    rig.assert_follows(drive_cut(STREAMING, tmp_path), expected(STREAMING), ATOL)


def test_order_of_fragments_differing_after_resume(tmp_path: Path) -> None:
    def reorder(state: TrainState) -> None:
        state.outer = [state.outer[p] for p in (1, 0, 2, 3)]

    assert_noticed(drive_cut(STREAMING, tmp_path, reorder), STREAMING)


def test_learning_rate_stale_after_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rate = step.learning_rate

    def keep_rate(state: TrainState) -> None:
        monkeypatch.setattr(step, "learning_rate", lambda inner, _, steps: rate(inner, CUT, steps))

    assert_noticed(drive_cut(STREAMING, tmp_path, keep_rate), STREAMING)


def assert_touches_what_is_due_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes up the outer state of the fragment it applies; what others have in flight isn't waited for."""
    held: dict[int, Any] = {}
    touched: list[tuple[set[int], set[int]]] = []

    def look(state: TrainState, applied: set[int]) -> None:
        now = {p: entry["params"] for p, entry in enumerate(state.outer)}
        if held:
            touched.append(({p for p in now if now[p] is not held[p]}, applied))
        held.update(now)

    after_each_step(monkeypatch, look)
    rig.drive(IN_PARTS)
    assert all(changed == applied for changed, applied in touched), touched
    assert {frozenset(applied) for _, applied in touched} == {frozenset(), frozenset({0}), frozenset({1})}


def test_waiting_for_all_fragments_at_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_touches_what_is_due_alone(monkeypatch)

    def wait_for_all(state: TrainState, applied: set[int]) -> None:
        state.outer = [jax.block_until_ready(jax.tree.map(jnp.copy, entry)) for entry in state.outer]

    after_each_step(monkeypatch, wait_for_all)
    with pytest.raises(AssertionError):
        assert_touches_what_is_due_alone(monkeypatch)


def test_what_arrived_is_applied_in_its_own_step() -> None:
    # τ = 3 of H = 4: both fragments are in flight at once, and each outer copy moves three steps after its send.
    trace = rig.drive(IN_PARTS)
    moved = [
        {p for p, flat in enumerate(now) if any(np.any(flat[n] != before[p][n]) for n in flat)}
        for before, now in zip(trace.outer[:-1], trace.outer[1:], strict=True)
    ]
    sends = {0: (4, 8), 1: (6,)}
    assert moved == [{p for p, at in sends.items() if t - 3 in at} for t in range(1, IN_PARTS.steps + 1)]
