"""The trainer's programs against the NumPy oracle of Algorithms 1 and 2, and the reductions between methods."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import oracle
import pytest
import rig
import tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repro.diloco.mesh import batch_sharding
from repro.diloco.resources import Resources
from repro.spec.config import FragmentConfig, OuterConfig, RunConfig
from repro.training.state import Layout
from repro.training.step import Stepper

pytestmark = pytest.mark.compiles

ATOL = 1e-5
SGD = OuterConfig("sgd", learning_rate=0.7, momentum=0.0)
PLAIN = OuterConfig("nesterov", learning_rate=1.0, momentum=0.0)

CASES: dict[str, dict[str, Any]] = {
    "streaming": dict(sync=tiny.synced(every=4, delays=(1,), mix=0.75)),
    "late-worker": dict(sync=tiny.synced(every=4, delays=(1, 3), mix=0.25)),
    "two-in-flight": dict(sync=tiny.synced(every=4, delays=(3,), mix=0.5, fragments=tiny.MERGED)),
    "fewer-steps-than-fragments": dict(sync=tiny.synced(every=2, delays=(0,), mix=0.25)),
    "diloco": dict(sync=tiny.synced(every=3, delays=(0,), mix=0.0, fragments=tiny.WHOLE)),
    "heavy-ball": dict(sync=tiny.synced(every=4, delays=(1,), mix=0.25, fragments=tiny.MERGED, outer=tiny.HEAVY_BALL)),
    "outer-adam": dict(sync=tiny.synced(every=3, delays=(2,), mix=0.25, fragments=tiny.MERGED, outer=tiny.OUTER_ADAM)),
    "four-replicas": dict(sync=tiny.synced(every=3, fragments=tiny.WHOLE, outer=SGD), replicas=4),
    "three-replicas-on-one-device": dict(
        sync=tiny.synced(every=3, delays=(0, 1, 2), fragments=tiny.WHOLE), replicas=3, batch=6, resources=tiny.ONE
    ),
}


def check(config: RunConfig, resources: Resources = tiny.TWO) -> rig.Trace:
    """The states follow the oracle, and what a final flush scores is the oracle's."""
    assert config.sync is not None
    config = replace(config, sync=replace(config.sync, flush="last"))
    trace, record = rig.drive(config, resources), rig.expected(config)
    rig.assert_follows(trace, record, ATOL)
    rig.assert_scored(trace, config, rig.flushed(config, record), ATOL)
    return trace


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_float32_follows_the_oracle(case: dict[str, Any]) -> None:
    case = dict(case)
    resources = case.pop("resources", tiny.TWO)
    config = tiny.run_config(**case)
    trace = check(config, resources)
    assert all(flag for flags in trace.finite for flag in flags.values())


def test_whole_blocking_fragment_is_algorithm_1() -> None:
    config = tiny.run_config(**CASES["diloco"])
    record = oracle.run_diloco(
        rig.first_parameters(),
        rig.gradients(config),
        steps=config.steps,
        replicas=2,
        every=3,
        inner=rig.inner_of(config),
        outer=rig.outer_of(tiny.NESTEROV),
    )
    trace = rig.drive(config)
    rig.assert_follows(trace, record, ATOL)
    for step in range(3, config.steps + 1, 3):
        assert_same(trace.params[step][0], trace.params[step][1])  # α = 0, τ = 0: all replicas start afresh
        assert_same(trace.params[step][0], trace.outer[step][0])
    assert differ(trace.params[2][0], trace.params[2][1])


def check_drawn(draw: Any, fragments: st.SearchStrategy[FragmentConfig], delays: Any, every: Any) -> None:
    h = draw(every)
    sync = tiny.synced(
        every=h,
        delays=draw(delays(h)),
        mix=draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])),
        fragments=draw(fragments),
    )
    config = tiny.run_config(
        sync, steps=draw(st.integers(max(h, tiny.INNER.warmup_steps), 2 * h + 4)), seed=draw(st.integers(0, 99))
    )
    check(config)


OPTIONS: dict[str, Any] = dict(deadline=None, suppress_health_check=list(HealthCheck))


@settings(max_examples=12, derandomize=True, **OPTIONS)
@given(data=st.data())
def test_drawn_runs_follow_the_oracle(data: st.DataObject) -> None:
    # All of these share seven programs: one fragment at a time, blocking or overlapped with one step.
    cuts = st.sampled_from([tiny.STRIDED, tiny.SEQUENTIAL])
    check_drawn(data.draw, cuts, lambda h: st.sampled_from([(0,), (1,)]), st.integers(3, 9))


@pytest.mark.slow
@settings(max_examples=150, **OPTIONS)
@given(data=st.data())
def test_many_drawn_runs_follow_the_oracle(data: st.DataObject) -> None:
    cuts = st.sampled_from([tiny.STRIDED, tiny.SEQUENTIAL, tiny.MERGED, tiny.WHOLE])
    check_drawn(data.draw, cuts, lambda h: st.tuples(*[st.integers(0, h - 1)] * 2), st.integers(1, 7))


def test_the_other_sign_of_the_offsets_is_a_config_away() -> None:
    # The text of §2.2 has t + t_p: offsets 0, 1, 2 of H = 4 become 0, 3, 2.
    sync = replace(tiny.synced(every=4, delays=(1,)), offset_sign=1)
    config = tiny.run_config(sync)
    rig.assert_follows(rig.drive(config), rig.expected(config, offsets=[0, 3, 2]), ATOL)


def test_the_oracle_tells_wrong_flushes_from_the_right_one() -> None:
    # Fragment 0 was sent after step 8 and would land after step 11.
    config = tiny.run_config(**CASES["two-in-flight"], steps=9)
    trace, record = check(config), rig.expected(config)
    fragment, outer = rig.fragments_of(config)[0], rig.outer_of(tiny.NESTEROV)
    copy, kept = record.outer[-1][0], record.kept[-1][0]
    late = oracle.mean(record.deltas[8, 0])
    anew = oracle.mean([oracle.tree_map(np.subtract, copy, oracle.take(r, fragment)) for r in record.replicas[-1]])
    landed = oracle.outer_update(copy, kept, late, outer)
    wrong = {
        "what is in flight counted, and once more in the new Δ": oracle.outer_update(*landed, anew, outer),
        "what is in flight in place of a new Δ": landed,
        "an optimiser without its past": oracle.outer_update(copy, oracle.outer_start(copy, outer), anew, outer),
        "no flush": (copy, kept),
    }
    scored = {p: rig.flatten(part) for p, part in enumerate(rig.flushed(config, record))}
    for name, (mutant, _) in wrong.items():
        differences = [np.abs(leaf - scored[0][n]).max() for n, leaf in rig.flatten(mutant).items()]
        assert max(differences) > 20 * ATOL, name
        with pytest.raises(AssertionError):
            rig.assert_scored(trace, config, [mutant, *rig.flushed(config, record)[1:]], ATOL)


COMPRESSED = {
    "overlapped": tiny.synced(every=4, delays=(1,), fragments=tiny.WHOLE, codec="e3m0"),
    "in-parts-and-late": tiny.synced(every=6, delays=(2, 3), fragments=tiny.MERGED, codec="e3m0"),
}


@pytest.mark.parametrize("sync", COMPRESSED.values(), ids=COMPRESSED.keys())
def test_e3m0_follows_the_oracle_on_its_own_deltas(sync: Any) -> None:
    # Codes flip on rounding errors, so the oracle gets the trainer's deltas and encodes them by its own codec.
    config = tiny.run_config(replace(sync, flush="last"), steps=18)
    trace = rig.drive(config)
    deltas = rig.own_deltas(config, trace)
    record = rig.expected(config, recorded_deltas=deltas, transmit=rig.sent_and_received("e3m0"))
    rig.assert_follows(trace, record, ATOL)
    last = {p: rig.own_delta(config, trace, config.steps, p) for p in range(len(trace.outer[0]))}
    codes = rig.flushed(config, record, recorded_deltas=last, transmit=rig.sent_and_received("e3m0"))
    rig.assert_scored(trace, config, codes, ATOL)
    applied = [(t, p) for t, p in deltas if t + min(sync.delays) <= config.steps]
    assert len(applied) >= 2 * len(trace.outer[0])
    exact = rig.expected(config, recorded_deltas=deltas)
    assert differ(trace.outer[-1][0], rig.flatten(exact.outer[-1][0]))


def assert_same(left: rig.Flat, right: rig.Flat) -> None:
    for name, leaf in left.items():
        np.testing.assert_array_equal(leaf, right[name], err_msg=name)


def differ(left: rig.Flat, right: rig.Flat) -> bool:
    return all(np.any(leaf != right[name]) for name, leaf in left.items())


def test_fragments_that_always_sync_together_are_one_whole_fragment() -> None:
    # With H = 1 all offsets are 0.
    parts = rig.drive(tiny.run_config(tiny.synced(every=1, delays=(0,), mix=0.0), steps=6))
    whole = rig.drive(tiny.run_config(tiny.synced(every=1, delays=(0,), mix=0.0, fragments=tiny.WHOLE), steps=6))
    for ours, theirs in zip(parts.params, whole.params, strict=True):
        rig.assert_close(ours[0], theirs[0], atol=1e-6)
        rig.assert_close(ours[1], theirs[1], atol=1e-6)


def test_one_replica_with_outer_rate_1_and_no_momentum_is_the_inner_optimiser() -> None:
    sync = tiny.synced(every=3, delays=(0,), mix=0.0, fragments=tiny.WHOLE, outer=PLAIN)
    ours = rig.drive(tiny.run_config(sync, replicas=1, batch=2), tiny.ONE)
    alone = rig.drive(tiny.run_config(None, replicas=1, batch=2), tiny.ONE)
    for a, b in zip(ours.params, alone.params, strict=True):
        rig.assert_close(a[0], b[0], atol=1e-6)
    assert differ(ours.outer[3][0], ours.outer[0][0])


def test_full_mixing_is_independent_runs() -> None:
    # α = 1 keeps the replica's own parameters: each follows a data-parallel run on its own examples.
    config = tiny.run_config(tiny.synced(every=4, delays=(1,), mix=1.0))
    ours = rig.drive(config)
    for m in range(2):
        single = tiny.run_config(None, replicas=1, batch=2)
        alone = rig.drive(single, tiny.ONE, data=lambda step, m=m: rig.tokens(config, step)[m : m + 1])
        for a, b in zip(ours.params, alone.params, strict=True):
            rig.assert_close(a[m], b[0], atol=1e-6)
        np.testing.assert_allclose([x[m] for x in ours.loss], [x[0] for x in alone.loss], rtol=0, atol=1e-5)
    assert differ(ours.params[-1][0], ours.params[-1][1])


def test_data_parallel_follows_the_oracle_over_data_and_fsdp() -> None:
    config = tiny.run_config(None, replicas=1, batch=4)
    trace = rig.drive(config, Resources(replica=1, data=2, fsdp=2, unroll=False))
    rig.assert_follows(trace, rig.expected(config), ATOL)


def test_sharded_streaming_follows_the_oracle() -> None:
    config = tiny.run_config(tiny.synced(every=3, delays=(2,), fragments=tiny.WHOLE), batch=8)
    rig.assert_follows(rig.drive(config, tiny.SHARDED), rig.expected(config), ATOL)


def test_unrolled_layers_are_scanned_layers() -> None:
    config = tiny.run_config(tiny.synced(every=4, delays=(1,)), steps=3)
    scanned, unrolled = rig.drive(config, tiny.TWO), rig.drive(config, replace(tiny.TWO, unroll=True))
    for a, b in zip(scanned.params, unrolled.params, strict=True):
        rig.assert_close(a[0], b[0], atol=1e-6)
        rig.assert_close(a[1], b[1], atol=1e-6)


def test_the_loss_is_the_mean_negative_log_likelihood_of_each_replica() -> None:
    config = tiny.run_config(tiny.synced(every=4, delays=(1,)), steps=tiny.INNER.warmup_steps)
    logits = jax.jit(lambda p, x: rig.lm.logits(p, x, config.model, unroll=False))
    loss = []
    for rows in rig.tokens(config, 1):
        scores = np.asarray(logits(rig.first_parameters(), rows[:, :-1]), np.float64)
        picked = np.take_along_axis(scores, rows[:, 1:, None], axis=-1)[..., 0]
        loss.append(np.mean(np.log(np.sum(np.exp(scores), axis=-1)) - picked))
    np.testing.assert_allclose(rig.drive(config).loss[0], loss, rtol=1e-5)


@pytest.mark.parametrize("codec", ["float32", "e3m0"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_non_finite_outer_gradient_is_flagged_and_not_applied(codec: str, bad: float) -> None:
    outer = tiny.NESTEROV if codec == "float32" else tiny.OUTER_ADAM
    config = tiny.run_config(tiny.synced(every=4, delays=(1,), codec=codec, outer=outer), steps=5)
    layout = Layout.of(config, tiny.TWO)
    stepper, state = Stepper(layout), rig.begin(layout)
    for step in range(1, 5):
        stepper(state, jax.device_put(rig.tokens(config, step), batch_sharding(layout.mesh)))
    query = np.array(state.params["layers"]["query"])
    query[1, 2, 3, 4] = bad  # in layer 2, which fragment 0 holds
    state.params["layers"]["query"] = jax.device_put(query, state.params["layers"]["query"].sharding)
    before = jax.tree.map(np.array, state.outer)
    _, applied = stepper(state, jax.device_put(rig.tokens(config, 5), batch_sharding(layout.mesh)))
    assert {p: bool(sync.finite) for p, sync in applied.items()} == {0: False}
    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.array, state.outer))
