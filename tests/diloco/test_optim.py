"""What optimisers keep is what their `init` gives: counted right by the accounts, and sharded as the parameters are."""

import re
from math import prod
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import tiny

from repro.diloco import optim
from repro.diloco.buffers import outer_struct, replica_structs
from repro.diloco.optim import inner_direction, outer_init
from repro.network.account import model_memory
from repro.spec.config import OuterConfig
from repro.spec.fragments import cut
from repro.spec.optim_state import INNER, OUTER, VALUE_BYTES
from repro.spec.shapes import fragment_shapes, parameter_count, parameter_shapes
from repro.training.state import Layout

ROOT = Path(__file__).parents[2]
EACH = {
    "nesterov": tiny.NESTEROV,
    "sgd": OuterConfig("sgd", learning_rate=0.7, momentum=0.0),
    "heavy_ball": tiny.HEAVY_BALL,
    "adam": tiny.OUTER_ADAM,
}
PARAMS = jax.tree.map(
    lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32),
    parameter_shapes(tiny.MODEL),
    is_leaf=lambda x: isinstance(x, tuple),
)


def buffers(kept: Any, params: Any) -> float:
    """Buffers a parameter in a state that holds float32 arrays of the parameters' shapes, and single numbers."""
    arrays = [leaf for leaf in jax.tree.leaves(kept) if leaf.ndim]
    shapes = [leaf.shape for leaf in jax.tree.leaves(params)]
    count = len(arrays) / len(shapes)
    assert sorted(leaf.shape for leaf in arrays) == sorted(shapes * int(count))
    assert all(leaf.dtype == jnp.float32 and leaf.dtype.itemsize == VALUE_BYTES for leaf in arrays)
    return count


def test_each_choice_of_a_config_is_an_optimiser() -> None:
    assert optim.OUTER.keys() == OUTER.keys() == EACH.keys()


def test_the_accounts_count_what_the_inner_optimiser_keeps() -> None:
    assert buffers(jax.eval_shape(inner_direction(tiny.INNER).init, PARAMS), PARAMS) == INNER.buffers


@pytest.mark.parametrize("outer", EACH.values(), ids=EACH.keys())
def test_the_accounts_count_what_an_outer_optimiser_keeps(outer: OuterConfig) -> None:
    kept = jax.eval_shape(lambda params: outer_init(outer, params), PARAMS)
    assert buffers(kept, PARAMS) == OUTER[outer.optimizer].buffers


@pytest.mark.parametrize("outer", EACH.values(), ids=EACH.keys())
def test_the_memory_of_the_accounts_is_that_of_the_trainers_buffers(outer: OuterConfig) -> None:
    """Parameters, what both optimisers keep, and the outer copies, but for single numbers of four bytes."""
    sync = tiny.synced(outer=outer)
    layout = Layout.of(tiny.run_config(sync), tiny.TWO)
    inner, whole = replica_structs(layout.recipe), [outer_struct(layout.recipe, f.kind) for f in layout.fragments]
    held = model_memory(tiny.MODEL, sync)
    assert held.data_parallel == _bytes(inner) // 2  # of one of two replicas
    assert held.diloco - held.data_parallel == sum(map(_bytes, whole))
    assert held.added_in_hbm == max(map(_bytes, whole))
    sizes = [sum(map(prod, fragment_shapes(tiny.MODEL, *f.kind).values())) for f in cut(tiny.STRIDED, 3)]
    assert sum(sizes) == parameter_count(tiny.MODEL)
    assert max(map(_bytes, whole)) == 4 * (1 + OUTER[outer.optimizer].buffers) * max(sizes)


def _bytes(tree: Any) -> int:
    """Bytes of arrays; a number for each of two replicas is no array."""
    return sum(prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree) if prod(leaf.shape) > 2)


@pytest.mark.parametrize("outer", EACH.values(), ids=EACH.keys())
def test_what_is_kept_lies_where_its_parameter_does(outer: OuterConfig) -> None:
    layout = Layout.of(tiny.run_config(tiny.synced(outer=outer), batch=8), tiny.SHARDED)
    params, inner = replica_structs(layout.recipe)
    _assert_beside(inner, {leaf.shape: leaf.sharding for leaf in jax.tree.leaves(params)})
    for fragment in layout.fragments:
        struct = outer_struct(layout.recipe, fragment.kind)
        _assert_beside(struct["state"], {leaf.shape: leaf.sharding for leaf in struct["params"].values()})


def _assert_beside(kept: Any, places: dict[tuple[int, ...], Any]) -> None:
    for leaf in jax.tree.leaves(kept):
        if leaf.shape in places:
            assert leaf.sharding == places[leaf.shape]
        else:
            assert leaf.size <= 2 and "fsdp" not in str(leaf.sharding.spec)


def test_the_words_of_an_optimiser_stand_where_it_does() -> None:
    """And where they are a user's: fields of the config, and their part in ids. A bench's peers are other people's."""
    naming = {
        path.stem
        for path in (ROOT / "repro").rglob("*.py")
        if "peers" not in str(path)
        if re.search(r"momentum|\badam|\b[mn]u\b", path.read_text(encoding="utf-8"), re.IGNORECASE)
    }
    assert naming == {"optim", "optim_state", "config", "canonical", "slug"}
