"""The oracle itself: cases worked out by hand, reductions between methods, and optax's optimisers."""

from functools import partial

import jax
import numpy as np
import optax
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

EMBED: oracle.Fragment = {"embed": True, "layers": ()}
NESTEROV: oracle.Outer = {"kind": "nesterov", "lr": 0.4, "momentum": 0.9}
COPY: oracle.Outer = {"kind": "sgd", "lr": 1.0, "momentum": 0.0}
# β = 0 and eps = 0 make Adam's step the sign of the gradient, so that a person can follow it.
SIGN: oracle.Inner = {
    "lr": lambda t: 1.0,
    "beta1": 0.0,
    "beta2": 0.0,
    "eps": 0.0,
    "weight_decay": 0.0,
    "clip_norm": np.inf,
}
ADAMW: oracle.Inner = {
    "lr": lambda t: 0.05 / t,
    "beta1": 0.9,
    "beta2": 0.99,
    "eps": 1e-8,
    "weight_decay": 0.1,
    "clip_norm": 1.0,
}


def scalar(x: float) -> oracle.Tree:
    return {"embed": {"tokens": np.array([[x]])}, "layers": {}}


def value(tree: oracle.Tree) -> float:
    return tree["embed"]["tokens"].item()


def toward(*targets: float) -> oracle.Gradients:
    """∇ ½(x − c_m)²."""
    return lambda params, t, m: scalar(value(params) - targets[m])


def trajectory(record: oracle.Record, m: int) -> list[float]:
    return [value(state[m]) for state in record.replicas]


def test_diloco_by_hand():
    # Replica 0 goes up 1 a step (target 10). Replica 1 heads for 3.5 and steps over it: 4, 3, 4.
    # t=2: Δ = ((4-6) + (4-4))/2 = -1; m = -1; step = -1 + 0.9·(-1) = -1.9; θ = 4 + 0.4·1.9 = 4.76.
    # t=3, 4: 5.76, 6.76 and 3.76, 2.76. Δ = (-2 + 2)/2 = 0; m = 0.9·(-1) = -0.9; step = 0.9·(-0.9) = -0.81;
    # θ = 4.76 + 0.4·0.81 = 5.084.
    settings_ = dict(steps=4, replicas=2, every=2, inner=SIGN, outer=NESTEROV)
    first = oracle.run_diloco(scalar(4.0), toward(10, 3.5), **settings_)
    second = oracle.run_oracle(scalar(4.0), toward(10, 3.5), fragments=[EMBED], delays=(0, 0), mix=0.0, **settings_)
    for record in (first, second):
        assert trajectory(record, 0) == pytest.approx([4, 5, 4.76, 5.76, 5.084])
        assert trajectory(record, 1) == pytest.approx([4, 3, 4.76, 3.76, 5.084])
        assert [value(state[0]) for state in record.outer] == pytest.approx([4, 4, 4.76, 4.76, 5.084])
        assert [value(state[0].buffers[0]) for state in record.kept] == pytest.approx([0, 0, -1, -1, -0.9])
        assert [value(delta) for delta in record.deltas[4, 0]] == pytest.approx([-2, 2])


def test_delays_by_replica_and_mixing_by_hand():
    # H=3, τ=(1, 2), α=0.25, outer SGD with lr 0.5; both replicas walk +1 and -1 a step from 0.
    # t=3: 3, -3 → Δ = mean(-3, 3) = 0: no news, the outer copy stays 0 at t=4 (min τ = 1).
    # t=4: replica 0 at 4 mixes: 0.25·4 + 0.75·0 = 1. Replica 1 is at -4.   t=5: 2; -5 → 0.25·(-5) = -1.25.
    # t=6: 3, -2.25 → Δ = (−3 + 2.25)/2 = −0.375.    t=7: the outer copy is 0 + 0.5·0.375 = 0.1875;
    #   replica 0 at 4 → 1 + 0.75·0.1875 = 1.140625; replica 1 at -3.25.
    # t=8: 2.140625; replica 1 at -4.25 → −1.0625 + 0.140625 = −0.921875.
    # t=9: 3.140625, −1.921875, whose delta is sent and dropped with the end of the run.
    record = oracle.run_oracle(
        scalar(0.0),
        toward(100, -100),
        steps=9,
        replicas=2,
        fragments=[EMBED],
        every=3,
        delays=(1, 2),
        mix=0.25,
        inner=SIGN,
        outer={"kind": "sgd", "lr": 0.5, "momentum": 0.0},
    )
    assert trajectory(record, 0) == pytest.approx([0, 1, 2, 3, 1, 2, 3, 1.140625, 2.140625, 3.140625])
    assert trajectory(record, 1) == pytest.approx([0, -1, -2, -3, -4, -1.25, -2.25, -3.25, -0.921875, -1.921875])
    assert [value(state[0]) for state in record.outer] == pytest.approx([0] * 7 + [0.1875] * 3)
    assert sorted(record.deltas) == [(3, 0), (6, 0), (9, 0)]


def test_several_fragments_in_flight_by_hand():
    # Two layers, one scalar each, H=4, τ=3, α=0, outer lr 1 without momentum: offsets 0 and 2, so layer 0 is
    # sent at 4 and back at 7, layer 1 (fragment 1) sent at 6 and back at 9: both in flight at t=6.
    # One replica walking +1 a step: what comes back is its own value of three steps ago.
    params: oracle.Tree = {"embed": {}, "layers": {"up": np.zeros((2, 1))}}
    record = oracle.run_oracle(
        params,
        lambda p, t, m: {"embed": {}, "layers": {"up": -np.ones((2, 1))}},
        steps=9,
        replicas=1,
        fragments=[{"embed": True, "layers": (0,)}, {"embed": False, "layers": (1,)}],
        every=4,
        delays=(3,),
        mix=0.0,
        inner=SIGN,
        outer=COPY,
    )
    path = np.array([state[0]["layers"]["up"][:, 0] for state in record.replicas])
    np.testing.assert_allclose(path[:, 0], [0, 1, 2, 3, 4, 5, 6, 4, 5, 6])
    np.testing.assert_allclose(path[:, 1], [0, 1, 2, 3, 4, 5, 6, 7, 8, 6])


def test_adamw_first_step_by_hand():
    # The gradient (3, 4) has norm 5 and is clipped to (0.6, 0.8). After bias correction the first moments are
    # (0.6, 0.8) and the roots of the second ones too, whatever β. The matrix decays, the norm vector doesn't.
    # tokens: 2 − 0.5·(0.6/0.7 + 0.01·2); final_norm: 1 − 0.5·0.8/0.9.
    inner: oracle.Inner = {**ADAMW, "lr": lambda t: 0.5, "eps": 0.1, "weight_decay": 0.01}

    def tree(tokens: float, norm: float) -> oracle.Tree:
        return {"embed": {"tokens": np.array([[tokens]]), "final_norm": np.array([norm])}, "layers": {}}

    params, grads = tree(2.0, 1.0), tree(3.0, 4.0)
    after = oracle.AdamW(params, inner, oracle.MATRICES).update(params, grads, 1)["embed"]
    assert after["tokens"].item() == pytest.approx(2 - 0.5 * (6 / 7 + 0.02), rel=1e-14)
    assert after["final_norm"].item() == pytest.approx(1 - 0.5 * 8 / 9, rel=1e-14)


@pytest.mark.parametrize(
    ("every", "count", "first_syncs"),
    [(100, 2, [100, 150]), (30, 3, [30, 40, 50]), (5, 2, [5, 7]), (2, 5, [2, 2, 2, 3, 3]), (1, 3, [1, 1, 1])],
)
def test_first_syncs(every: int, count: int, first_syncs: list[int]):
    # (100, 2) is the paper's example in §2.2: 100, 200, … and 150, 250, …
    offsets = oracle.spread_offsets(every, count)
    for offset, expected in zip(offsets, first_syncs, strict=True):
        due = [t for t in range(1, 4 * every) if oracle.is_due(t, every, offset)]
        assert due[0] == expected
        assert np.all(np.diff(due) == every)


LAYERS = 3
STRIDED: list[oracle.Fragment] = [
    {"embed": False, "layers": (0, 2)},
    {"embed": False, "layers": (1,)},
    EMBED,
]
MERGED: list[oracle.Fragment] = [{"embed": True, "layers": (0, 2)}, {"embed": False, "layers": (1,)}]
WHOLE: list[oracle.Fragment] = [{"embed": True, "layers": (0, 1, 2)}]


def small_params() -> oracle.Tree:
    rng = np.random.default_rng(0)
    return {
        "embed": {"tokens": rng.normal(size=(4, 2)), "final_norm": rng.normal(size=2)},
        "layers": {"attn_norm": rng.normal(size=(LAYERS, 2)), "up": rng.normal(size=(LAYERS, 2, 5))},
    }


def coupled(params: oracle.Tree, t: int, m: int) -> oracle.Tree:
    """A gradient in which every leaf depends on all others, and on the step and the replica."""
    total = sum(np.sum(leaf) for group in params.values() for leaf in group.values())
    rng = np.random.default_rng([t, m])
    return oracle.tree_map(lambda x: np.tanh(x) + 0.3 * np.sin(total) + rng.normal(size=x.shape), params)


def assert_same(left: oracle.Tree, right: oracle.Tree, atol: float = 1e-12) -> None:
    oracle.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=atol), left, right)


def assert_same_replicas(left: oracle.Record, right: oracle.Record) -> None:
    for ours, theirs in zip(left.replicas, right.replicas, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert_same(a, b)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), every=st.integers(1, 7), replicas=st.integers(1, 3))
def test_full_mixing_is_no_communication(data: st.DataObject, every: int, replicas: int):
    delays = data.draw(st.tuples(*[st.integers(0, every - 1)] * replicas))
    fragments = data.draw(st.sampled_from([STRIDED, MERGED, WHOLE]))
    common = dict(steps=12, replicas=replicas, every=every, delays=delays, inner=ADAMW, outer=NESTEROV)
    ours = oracle.run_oracle(small_params(), coupled, fragments=fragments, mix=1.0, **common)
    alone = oracle.run_oracle(small_params(), coupled, fragments=[], mix=0.0, **common)
    assert_same_replicas(ours, alone)


@settings(max_examples=15, deadline=None)
@given(every=st.integers(1, 7), fragments=st.sampled_from([STRIDED, MERGED, WHOLE]))
def test_one_replica_with_plain_outer_sgd_is_the_inner_optimiser(every: int, fragments: list[oracle.Fragment]):
    common = dict(steps=12, replicas=1, every=every, delays=(0,), mix=0.0, inner=ADAMW, outer=COPY)
    ours = oracle.run_oracle(small_params(), coupled, fragments=fragments, **common)
    alone = oracle.run_oracle(small_params(), coupled, fragments=[], **common)
    assert_same_replicas(ours, alone)


@settings(max_examples=15, deadline=None)
@given(
    every=st.integers(1, 7),
    replicas=st.integers(1, 3),
    fragments=st.sampled_from([STRIDED, MERGED, WHOLE]),
    outer=st.sampled_from([NESTEROV, COPY, {"kind": "sgd", "lr": 0.7, "momentum": 0.5}]),
)
def test_fragments_with_equal_offsets_are_diloco(
    every: int, replicas: int, fragments: list[oracle.Fragment], outer: oracle.Outer
):
    common = dict(steps=15, replicas=replicas, every=every, inner=ADAMW, outer=outer)
    streaming = oracle.run_oracle(
        small_params(),
        coupled,
        fragments=fragments,
        delays=(0,) * replicas,
        mix=0.0,
        offsets=[0] * len(fragments),
        **common,
    )
    diloco = oracle.run_diloco(small_params(), coupled, **common)
    assert_same_replicas(streaming, diloco)
    for sync in range(every, 16, every):
        for theta in streaming.replicas[sync]:
            assert_same(theta, streaming.replicas[sync][0], atol=0)


def test_fragments_at_their_own_offsets_are_not_diloco():
    common = dict(steps=8, replicas=2, every=4, delays=(0, 0), mix=0.0, inner=ADAMW, outer=NESTEROV)
    streaming = oracle.run_oracle(small_params(), coupled, fragments=STRIDED, **common)
    whole = oracle.run_oracle(small_params(), coupled, fragments=WHOLE, **common)
    assert sorted(streaming.deltas) == [(4, 0), (5, 1), (6, 2), (8, 0)]
    with pytest.raises(AssertionError):
        assert_same_replicas(streaming, whole)


STREAMING = dict(steps=14, replicas=2, fragments=STRIDED, every=5, delays=(1, 3), mix=0.5, inner=ADAMW, outer=NESTEROV)


def test_own_deltas_fed_back_change_nothing_and_others_do():
    first = oracle.run_oracle(small_params(), coupled, **STREAMING)
    again = oracle.run_oracle(small_params(), coupled, recorded_deltas=first.deltas, **STREAMING)
    assert_same_replicas(first, again)
    zeros = [oracle.tree_map(np.zeros_like, oracle.take(small_params(), f)) for f in STRIDED]
    silent = {(t, p): [zeros[p]] * 2 for t, p in first.deltas}
    muted = oracle.run_oracle(small_params(), coupled, recorded_deltas=silent, **STREAMING)
    for state in muted.outer:
        for p, fragment in enumerate(STRIDED):
            assert_same(state[p], oracle.take(small_params(), fragment), atol=0)
    assert np.any(muted.deltas[5, 0][0]["layers"]["up"])  # its own deltas are still recorded


def test_only_what_is_transmitted_reaches_the_outer_copy():
    calls = []

    def lossy(delta: oracle.Tree, t: int, p: int, m: int) -> oracle.Tree:
        calls.append((t, p, m))
        return oracle.tree_map(np.sign, delta)

    record = oracle.run_oracle(small_params(), coupled, transmit=lossy, **STREAMING)
    sends = [(5, 0), (6, 1), (7, 2), (10, 0), (11, 1), (12, 2)]
    assert calls == [(t, p, m) for t, p in sends for m in (0, 1)]
    # The first outer step (t = 6 for fragment 0) is 0.4·1.9·mean of the signs.
    signs = oracle.mean([oracle.tree_map(np.sign, delta) for delta in record.deltas[5, 0]])
    expected = oracle.tree_map(lambda x, s: x - 0.4 * 1.9 * s, oracle.take(small_params(), STRIDED[0]), signs)
    assert_same(record.outer[6][0], expected)
    assert_same(record.outer[5][0], oracle.take(small_params(), STRIDED[0]), atol=0)


def test_momentum_is_per_fragment():
    record = oracle.run_oracle(small_params(), coupled, **STREAMING)
    for p in range(len(STRIDED)):
        sent = [oracle.mean(record.deltas[t, p]) for t in (5 + p, 10 + p)]
        expected = oracle.tree_map(lambda first, second: second + 0.9 * first, *sent)
        assert_same(record.kept[14][p].buffers[0], expected)


def as_float32(tree: oracle.Tree) -> oracle.Tree:
    return oracle.tree_map(lambda x: np.asarray(x, np.float32), tree)


def test_inner_optimiser_against_optax():
    mask = {g: {name: name in oracle.MATRICES for name in group} for g, group in small_params().items()}
    theirs = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(lambda count: 0.05 / (count + 1), 0.9, 0.99, 1e-8, weight_decay=0.1, mask=mask),
    )
    params = as_float32(small_params())
    ours, adam = small_params(), oracle.AdamW(small_params(), ADAMW, oracle.MATRICES)
    state = theirs.init(params)
    for t, size in enumerate([1, 1, 0.02, 1, 0.001, 3, 1], start=1):  # above and below the clipping norm
        grads = oracle.tree_map(partial(np.multiply, size), coupled(ours, t, 0))
        updates, state = theirs.update(as_float32(grads), state, params)
        params = jax.tree.map(np.asarray, optax.apply_updates(params, updates))
        ours = adam.update(ours, grads, t)
        assert_same(ours, params, atol=1e-6)


@pytest.mark.parametrize("kind", ["nesterov", "sgd", "adam"])
def test_outer_optimiser_against_optax(kind: str):
    outer: oracle.Outer = {"kind": kind, "lr": 0.4, "momentum": 0.9, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3}
    theirs = optax.sgd(0.4, momentum=0.9, nesterov=kind == "nesterov")
    if kind == "adam":
        theirs = optax.adam(0.4, 0.8, 0.95, 1e-3)
    params = as_float32(small_params())
    ours, kept = small_params(), oracle.outer_start(small_params(), outer)
    state = theirs.init(params)
    for t in range(1, 6):
        delta = coupled(small_params(), t, 0)
        updates, state = theirs.update(as_float32(delta), state, params)
        params = jax.tree.map(np.asarray, optax.apply_updates(params, updates))
        ours, kept = oracle.outer_update(ours, kept, delta, outer)
        assert_same(ours, params, atol=5e-6)
