"""Cosine similarities from inner products, against the vectors themselves."""

import jax
import numpy as np
import pytest
import rig
import tiny

from repro.diloco.mesh import batch_sharding
from repro.diloco.program import gram
from repro.spec.fragments import Fragment
from repro.training.similarity import similarity_rows
from repro.training.state import Layout
from repro.training.step import Stepper


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_mean_over_pairs_of_each_layer_and_the_whole() -> None:
    rng = np.random.default_rng(0)
    replicas, layers = 3, 2
    delta = {
        "layers/query": rng.normal(size=(replicas, layers, 4, 4)).astype(np.float32),
        "layers/attn_norm": rng.normal(size=(replicas, layers, 4)).astype(np.float32),
        "embed/tokens": rng.normal(size=(replicas, 5, 4)).astype(np.float32),
    }
    products = {g: np.asarray(x) for g, x in gram(delta).items()}
    found = {r["part"]: r for r in similarity_rows(9, 7, 1, Fragment((3, 5), embed=True), products)}
    assert set(found) == {"layer 3", "layer 5", "embedding", "fragment"}
    layer = [np.concatenate([delta["layers/query"][m, 1].ravel(), delta["layers/attn_norm"][m, 1]]) for m in range(3)]
    expected = np.mean([cosine(layer[a], layer[b]) for a, b in ((0, 1), (0, 2), (1, 2))])
    assert found["layer 5"]["cosine"] == pytest.approx(expected, rel=1e-5)
    whole = [np.concatenate([x[m].ravel() for x in delta.values()]) for m in range(3)]
    expected = np.mean([cosine(whole[a], whole[b]) for a, b in ((0, 1), (0, 2), (1, 2))])
    assert found["fragment"]["cosine"] == pytest.approx(expected, rel=1e-5)
    assert found["fragment"]["norm_2"] == pytest.approx(np.linalg.norm(whole[2]), rel=1e-6)
    assert (found["layer 3"]["step"], found["layer 3"]["taken"], found["layer 3"]["fragment"]) == (9, 7, 1)


def test_no_pair_and_no_direction_have_no_cosine() -> None:
    fragment = Fragment((0,), embed=False)
    assert similarity_rows(1, 1, 0, fragment, {"layers": np.ones((1, 1, 1))})[0]["cosine"] is None
    assert similarity_rows(1, 1, 0, fragment, {"layers": np.zeros((1, 2, 2))})[0]["cosine"] is None


@pytest.mark.compiles
def test_the_trainer_logs_the_gradients_it_applied() -> None:
    """With float32 sent, outer copy minus replica at the moment of the send, layer by layer."""
    config = tiny.run_config(sync=tiny.synced(every=4, delays=(1,), mix=0.5, fragments=tiny.MERGED), steps=9)
    layout = Layout.of(config, tiny.TWO)
    stepper, state = Stepper(layout), rig.begin(layout)
    trace = rig.drive(config)
    seen = 0
    for step in range(1, config.steps + 1):
        _, applied = stepper(state, jax.device_put(rig.tokens(config, step), batch_sharding(layout.mesh)))
        for p, sync in applied.items():
            fragment = layout.fragments[p]
            products = {g: np.asarray(x) for g, x in sync.gram.items()}
            record = next(
                r for r in similarity_rows(step, sync.taken, p, fragment, products) if r["part"] == "fragment"
            )
            outer = trace.outer[sync.taken][p]
            deltas = [
                np.concatenate([(outer[n] - part(trace.params[sync.taken][m][n], n, fragment)).ravel() for n in outer])
                for m in range(2)
            ]
            assert record["cosine"] == pytest.approx(cosine(*deltas), abs=1e-4)
            assert record["norm_0"] == pytest.approx(np.linalg.norm(deltas[0]), rel=1e-4)
            seen += 1
    assert seen >= 3


def part(leaf: np.ndarray, name: str, fragment: Fragment) -> np.ndarray:
    return leaf if name.startswith("embed/") else leaf[list(fragment.layers)]
