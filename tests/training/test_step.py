"""The host's side of a step: which programs a run needs, and that nothing but the static configuration makes them."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest
import rig
import tiny

from repro.diloco.optim import learning_rate
from repro.diloco.program import put_fragment, take_fragment
from repro.diloco.recipe import Recipe
from repro.spec.actions import Action
from repro.spec.config import CodecConfig, FragmentConfig, OuterConfig, RunConfig
from repro.training.scored import assemble
from repro.training.state import Layout, start
from repro.training.step import BLOCK, Stepper

pytestmark = pytest.mark.compiles

PAIR = Action((2, False), send=True, parts=1, apply=True, mix=True)


def recipe(config: RunConfig, key: tuple[Action, ...]) -> Recipe:
    return Layout.of(config, tiny.TWO).recipe.of_program(key)


def lowered(config: RunConfig, key: tuple[Action, ...]) -> str:
    return Stepper(Layout.of(config, tiny.TWO)).lower(key).as_text()


ONE = tiny.run_config(tiny.synced(every=4, delays=(1,), mix=0.5), steps=12)
CUT = FragmentConfig("sequential", 1, "merged")
# Other values of all that a recipe leaves out.
OTHER = replace(
    ONE,
    scale="paper",
    inner=replace(ONE.inner, warmup_steps=7, final_fraction=0.3, schedule_steps=99),
    sync=replace(ONE.sync, every=9, delays=(2, 4), mix=0.0, fragments=CUT, offset_sign=1, first_sync="due"),
    corpus="c4",
    steps=50,
    seed=3,
    repeat_data=True,
)
OTHER_QUIET = replace(OTHER, sync=replace(OTHER.sync, codec=CodecConfig("e3m0"), outer=OuterConfig("sgd", 0.7, 0.0)))


@pytest.mark.parametrize(("key", "other"), [((PAIR,), OTHER), ((), OTHER_QUIET)], ids=["events", "no-event"])
def test_what_is_left_out_does_not_enter_a_program(key: tuple[Action, ...], other: RunConfig) -> None:
    """Two runs that differ in all that their recipes leave out lower to the same text."""
    assert recipe(ONE, key) == recipe(other, key)
    assert lowered(ONE, key) == lowered(other, key)


@pytest.mark.parametrize(
    "change",
    [
        {"inner": replace(ONE.inner, clip_norm=0.1)},
        {"inner": replace(ONE.inner, learning_rate=0.3)},
        {"inner": replace(ONE.inner, weight_decay=0.3)},
        {"sync": tiny.synced(codec="int8")},
        {"sync": tiny.synced(outer=OuterConfig("nesterov", 0.3, 0.5))},
        {"sync": replace(ONE.sync, frozen=True)},
        {"batch": 2 * ONE.batch},
    ],
    ids=["clip", "rate", "decay", "codec", "outer", "frozen", "batch"],
)
def test_what_enters_a_program_is_kept(change: dict[str, Any]) -> None:
    other = replace(ONE, **change)
    assert recipe(ONE, (PAIR,)) != recipe(other, (PAIR,))


def test_random_masks_are_of_a_seed() -> None:
    masked = replace(ONE, sync=replace(ONE.sync, codec=CodecConfig("float32", drop="dare", keep=0.5)))
    other = replace(masked, seed=1)
    assert recipe(masked, (PAIR,)) != recipe(other, (PAIR,))
    assert lowered(masked, (PAIR,)) != lowered(other, (PAIR,))


def test_runs_that_agree_share_a_compiled_program() -> None:
    one, other = (Stepper(Layout.of(config, tiny.TWO)).compile(()) for config in (ONE, OTHER))
    assert one is other


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (tiny.run_config(None, replicas=1), 1),
        (tiny.run_config(tiny.synced(every=4, delays=(0,), fragments=tiny.WHOLE)), 2),
        (tiny.run_config(tiny.synced(every=4, delays=(1,)), steps=40), 4),
        # As in the main runs: 36 layers in 12 equal fragments, the embedding, H = 100, τ = 1.
        (
            replace(
                tiny.run_config(tiny.synced(every=100, fragments=FragmentConfig("strided", 3, "own")), steps=600),
                model=replace(tiny.MODEL, layers=36),
            ),
            3,
        ),
    ],
    ids=["data-parallel", "diloco", "streaming-with-remainder", "streaming"],
)
def test_a_run_needs_a_handful_of_programs(config: RunConfig, count: int) -> None:
    stepper = Stepper(Layout.of(config, tiny.ONE))
    assert len(list(stepper.programs(1, config.steps))) == count


def test_programs_after_a_resume_are_among_those_of_the_whole_run() -> None:
    config = tiny.run_config(tiny.synced(every=5, delays=(3,)), steps=40)
    stepper = Stepper(Layout.of(config, tiny.ONE))
    assert set(stepper.programs(17, 40)) <= set(stepper.programs(1, 40))
    assert list(stepper.programs(17, 16)) == []


def test_learning_rate_is_warm_up_and_cosine() -> None:
    inner = replace(tiny.INNER, learning_rate=0.1, warmup_steps=4, final_fraction=0.05)
    rates = [learning_rate(inner, step, 20) for step in range(1, 21)]
    np.testing.assert_allclose(rates[:4], [0.025, 0.05, 0.075, 0.1])
    assert rates[11] == pytest.approx(0.1 * (0.05 + 0.95 / 2))  # half way down
    assert rates[-1] == pytest.approx(0.1 * 0.05)
    assert all(a > b for a, b in pairwise(rates[3:]))
    assert learning_rate(replace(inner, warmup_steps=0), 20, 20) == pytest.approx(0.005)
    assert learning_rate(replace(inner, warmup_steps=20), 20, 20) == pytest.approx(0.1)


def test_take_and_put_are_inverse() -> None:
    params = rig.first_parameters()
    other = rig.first_parameters(seed=1)
    ids = np.array([0, 2], np.int32)
    rows = take_fragment(other, ids, (2, True))
    mixed = put_fragment(jax.tree.map(jax.numpy.asarray, params), ids, rows)
    for name, leaf in params["layers"].items():
        np.testing.assert_array_equal(mixed["layers"][name][np.array([0, 2])], other["layers"][name][[0, 2]])
        np.testing.assert_array_equal(mixed["layers"][name][1], leaf[1])
    assert jax.tree.all(jax.tree.map(np.array_equal, mixed["embed"], other["embed"]))


@pytest.mark.parametrize("fragments", [tiny.STRIDED, tiny.SEQUENTIAL, tiny.MERGED, tiny.WHOLE])
def test_assembled_outer_parameters_are_the_whole_tree(fragments: FragmentConfig) -> None:
    layout = Layout.of(tiny.run_config(tiny.synced(fragments=fragments)), tiny.TWO)
    params = rig.first_parameters()
    jax.tree.map(np.testing.assert_array_equal, assemble(layout.fragments, rig.begin(layout, params).outer), params)


def test_all_replicas_and_methods_start_from_the_same_parameters() -> None:
    config = tiny.run_config(tiny.synced(), seed=7)
    layout = Layout.of(config, tiny.SHARDED if config.batch % 8 == 0 else tiny.TWO)
    state = start(layout)
    alone = start(Layout.of(replace(config, sync=None, replicas=1), tiny.ONE))
    first = jax.tree.map(lambda x: np.asarray(x)[0], alone.params)
    for m in range(2):
        jax.tree.map(lambda x, y, m=m: np.testing.assert_array_equal(np.asarray(x)[m], y), state.params, first)
    jax.tree.map(np.testing.assert_array_equal, assemble(layout.fragments, state.outer), first)
    zeros = [state.inner[1].mu, state.inner[1].nu, *(entry["state"] for entry in state.outer)]
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(zeros))
    other = start(Layout.of(replace(config, sync=None, replicas=1, seed=8), tiny.ONE))
    assert np.any(np.asarray(other.params["embed"]["tokens"]) != np.asarray(alone.params["embed"]["tokens"]))


@pytest.mark.parametrize("delay", [0, 1, 2, 3])
def test_what_is_in_flight_after_a_step(delay: int) -> None:
    # H = 4, two fragments at offsets 0 and 2, sent after 4, 8, … and 6, 10, …: codes are state for τ - 1 steps.
    layout = Layout.of(tiny.run_config(tiny.synced(delays=(delay,), fragments=tiny.MERGED)), tiny.ONE)
    for step in range(1, 20):
        sent = [{p for p, first in enumerate((4, 6)) if t >= first and (t - first) % 4 == 0} for t in range(step)]
        flying = set().union(*sent[max(0, step - delay + 1) : step]) if delay else set()
        assert set(layout.in_flight(step)) == flying, step


def test_a_blocks_steps_are_the_same_steps_however_they_are_cut() -> None:
    layout = Layout.of(tiny.run_config(None, replicas=1, steps=40), tiny.ONE)
    stepper, config = Stepper(layout), layout.config
    tokens = np.stack([rig.tokens(config, step) for step in range(1, BLOCK + 1)])

    def trained(cuts: tuple[int, ...]) -> tuple[Any, list[np.ndarray]]:
        state, losses = start(layout), []
        for count in cuts:
            assert stepper.free(state.step, state.step + count) == count
            block = np.roll(tokens, -state.step, axis=0)
            losses += list(np.asarray(stepper.block(state, block, count))[:count])
        return jax.tree.map(np.asarray, (state.params, state.inner)), losses

    whole, cut = trained((BLOCK,)), trained((1, 3, BLOCK - 4))
    jax.tree.map(np.testing.assert_array_equal, whole, cut)


def test_a_block_ends_at_an_event_and_where_it_is_told() -> None:
    layout = Layout.of(tiny.run_config(tiny.synced(every=12), steps=40), tiny.ONE)
    stepper = Stepper(layout)
    for step in range(30):
        for last in range(step, step + 12):
            count = stepper.free(step, last)
            assert count <= min(BLOCK, last - step)
            assert all(stepper.key(step + 1 + k) == () for k in range(count))
            assert count in (BLOCK, last - step) or stepper.key(step + 1 + count) != ()
