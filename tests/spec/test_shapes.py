"""Names and shapes without JAX against the tree that the model really builds, and against counts of the paper."""

import jax
import pytest
import tiny

from experiments.streaming.base import SIZES, data_parallel
from repro.diloco import model as lm
from repro.spec.shapes import fragment_shapes, is_norm, parameter_count, parameter_shapes


@pytest.mark.parametrize("size", [*SIZES, "tiny"])
def test_shapes_are_those_of_the_model(size: str) -> None:
    model = tiny.MODEL if size == "tiny" else data_parallel(size).model
    built = jax.eval_shape(lambda key: lm.init(key, model), jax.random.key(0))
    assert jax.tree.map(lambda x: x.shape, built) == parameter_shapes(model)
    assert {x.dtype for x in jax.tree.leaves(built)} == {jax.numpy.dtype("float32")}
    assert parameter_count(model) == sum(x.size for x in jax.tree.leaves(built))


def test_the_true_count_by_hand() -> None:
    # d = 8, F = 32, h = 4, L = 3, V = 32, S = 8: 4d² + 2dF + 2d + 2h a layer; (V + S)d + d around them.
    assert parameter_count(tiny.MODEL) == 3 * (4 * 64 + 2 * 256 + 2 * 8 + 2 * 4) + (32 + 8) * 8 + 8


def test_fragments_hold_everything_once() -> None:
    whole = fragment_shapes(tiny.MODEL, 3, True)
    assert fragment_shapes(tiny.MODEL, 0, True) | fragment_shapes(tiny.MODEL, 3, False) == whole
    assert {name.split("/")[0] for name in fragment_shapes(tiny.MODEL, 0, True)} == {"embed"}
    assert fragment_shapes(tiny.MODEL, 2, False)["layers/up"] == (2, 8, 32)


def test_norms_are_the_vectors() -> None:
    shapes = parameter_shapes(tiny.MODEL)
    assert {n for n, s in shapes["embed"].items() if len(s) == 1} == {n for n in shapes["embed"] if is_norm(n)}
    assert {n for n, s in shapes["layers"].items() if len(s) == 2} == {n for n in shapes["layers"] if is_norm(n)}
