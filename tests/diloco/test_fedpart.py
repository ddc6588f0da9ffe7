"""FedPart's frozen fragments (§3.3.1): what isn't due at the next sync takes no update, no decay, no moments."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import rig
import tiny

from repro.diloco.inner import keep_frozen
from repro.spec.schedule import is_due, learning

SYNC = replace(tiny.synced(every=6, delays=(0,), mix=1.0), frozen=True)  # α = 1: only inner updates move a replica
FRAGMENT_OF_LAYER = {0: 0, 2: 0, 1: 1}  # strided by two of three layers; the embedding is fragment 2


def test_what_learns_is_due_next() -> None:
    for step in range(1, 40):
        (now,) = learning(SYNC, 3, step)
        due = [(t, p) for t in range(step, step + 12) for p in range(3) if is_due(SYNC, 3, p, t)]
        assert now == due[0][1]


def test_a_leaf_is_told_by_its_group() -> None:
    old = {"embed": {"tokens": np.zeros((2, 3))}, "layers": {"query": np.zeros((3, 2, 2))}}
    new = jax.tree.map(np.ones_like, old)
    kept = keep_frozen(new, old, np.array([True, False, True]), np.False_)
    assert not np.asarray(kept["embed"]["tokens"]).any()
    assert np.asarray(kept["layers"]["query"]).sum(axis=(1, 2)).tolist() == [4, 0, 4]


@pytest.mark.compiles
def test_only_the_next_fragment_moves() -> None:
    config = tiny.run_config(sync=SYNC, steps=14)
    trace = rig.drive(config)
    for step in range(1, config.steps + 1):
        (now,) = learning(SYNC, 3, step)
        for replica in range(2):
            before, after = trace.params[step - 1][replica], trace.params[step][replica]
            for name in before:
                if name.startswith("embed/"):
                    assert (before[name] != after[name]).any() == (now == 2), (step, name)
                    continue
                for layer, fragment in FRAGMENT_OF_LAYER.items():
                    moved = (before[name][layer] != after[name][layer]).any()
                    assert moved == (fragment == now), (step, name, layer)


@pytest.mark.compiles
def test_one_whole_fragment_freezes_nothing() -> None:
    whole = tiny.synced(every=4, delays=(0,), mix=0.0, fragments=tiny.WHOLE)
    free, frozen = (rig.drive(tiny.run_config(sync=replace(whole, frozen=f), steps=8)) for f in (False, True))
    for one, two in zip(free.params[-1], frozen.params[-1], strict=True):
        for name in one:
            np.testing.assert_allclose(one[name], two[name], rtol=0, atol=1e-6)
