"""The buffers of a step's program: one table says which there are, whose they are, and what they look like.

What the host hands over, what it gets back and how each is sharded all follow from the table, so a new kind of state is
a row here and its use in `repro.diloco.program`. All structs are of one recipe; nothing here knows a run's schedule.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from repro.diloco import model as lm
from repro.diloco import wire
from repro.diloco.mesh import REPLICA, batch_sharding, per_replica, replicated, tree_shardings
from repro.diloco.optim import inner_direction, outer_init
from repro.diloco.recipe import Recipe
from repro.spec.actions import Action, Involved
from repro.spec.shapes import fragment_shapes

Tree = Any
Kind = tuple[int, bool]
Role = Literal["owned", "given", "left"]
STRUCTS_KEPT = 16  # of one process


@dataclass(frozen=True)
class Buffer:
    """One buffer of a fragment in a program: for which actions it is there, and as what.

    An owned one is handed over (donated), a given one only lent, and one that is left is new after the step. `at` is
    where the state keeps it, if it does; the `value` of another is what the schedule says.
    """

    struct: Callable[[Recipe, Action], Tree]
    owned: Callable[[Action], bool] = lambda _: False
    given: Callable[[Action], bool] = lambda _: False
    left: Callable[[Action], bool] = lambda _: False
    at: tuple[Literal["outer", "flight"], str] | None = None
    value: Callable[[Involved], Any] = lambda _: None


def _always(_: Action) -> bool:
    return True


_updates = attrgetter("updates")
_flight: dict[str, Any] = {
    "owned": attrgetter("flies_on"),
    "given": attrgetter("lands"),
    "left": attrgetter("keeps_flight"),
}

BUFFERS: dict[str, Buffer] = {
    # The fragment's layers; which part of its codes moves; the step after which Δ was taken; α where replicas mix.
    "ids": Buffer(lambda r, a: _replicated(r, jnp.int32, a.kind[0]), given=_always, value=attrgetter("ids")),
    "part": Buffer(lambda r, _: _replicated(r, jnp.int32), given=_always, value=lambda item: np.int32(item.part)),
    "taken": Buffer(lambda r, _: _replicated(r, jnp.int32), given=_always, value=lambda item: np.int32(item.taken)),
    "keep": Buffer(lambda r, _: _keep(r), given=_always, value=attrgetter("keep_M")),
    "outer": Buffer(
        lambda r, a: outer_struct(r, a.kind)["params"],
        owned=_updates,
        given=attrgetter("reads_outer"),
        left=_updates,
        at=("outer", "params"),
    ),
    "optimizer": Buffer(
        lambda r, a: outer_struct(r, a.kind)["state"], owned=_updates, left=_updates, at=("outer", "state")
    ),
    "codes": Buffer(lambda r, a: codes_struct(r, a.kind), **_flight, at=("flight", "codes")),
    "inbox": Buffer(lambda r, a: inbox_struct(r, a.kind, a.parts), **_flight, at=("flight", "inbox")),
    "finite": Buffer(lambda r, _: _replicated(r, jnp.bool_), left=_updates),  # whether the update was applied
    "gram": Buffer(lambda r, a: _gram(r, a.kind), left=_updates),  # products of the replicas' outer gradients
}


def of_action(action: Action, role: Role) -> dict[str, Buffer]:
    """The buffers that a program has for this action in this role, by name."""
    return {name: buffer for name, buffer in BUFFERS.items() if getattr(buffer, role)(action)}


def structs(recipe: Recipe, actions: tuple[Action, ...], role: Role) -> tuple[dict[str, Tree], ...]:
    """Abstract arrays, with their shardings, of the buffers in this role: a dict for each action."""
    return tuple({n: b.struct(recipe, action) for n, b in of_action(action, role).items()} for action in actions)


def shardings(tree: Tree) -> Tree:
    """The shardings of abstract arrays."""
    return jax.tree.map(lambda struct: struct.sharding, tree)


def start_of_replicas(recipe: Recipe, key: jax.Array) -> tuple[Tree, Tree]:
    """(params, what InnerOpt keeps) before the first step, both with the replica axis."""
    params = lm.init(key, recipe.model)
    both = params, inner_direction(recipe.inner).init(params)
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (recipe.replicas, *jnp.shape(x))), both)


@lru_cache(maxsize=STRUCTS_KEPT)
def replica_structs(recipe: Recipe) -> tuple[Tree, Tree]:
    """Abstract (params, what InnerOpt keeps), both with the replica axis."""
    tree = jax.eval_shape(lambda key: start_of_replicas(recipe, key), jax.random.key(0))
    return _placed(tree, tree_shardings(recipe.mesh, tree, REPLICA))


def outer_struct(recipe: Recipe, kind: Kind) -> dict[str, Tree]:
    """Abstract outer `params` of a fragment and the `state` that OuterOpt keeps of them, where they rest."""
    outer = recipe.outer
    assert outer is not None  # data-parallel has none, and no fragments
    shapes = fragment_shapes(recipe.model, *kind)
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    state = jax.eval_shape(lambda p: outer_init(outer, p), params)
    tree, memory = {"params": params, "state": state}, "pinned_host" if recipe.resources.outer_on_host else None
    return _placed(tree, tree_shardings(recipe.mesh, tree, memory=memory))


def codes_struct(recipe: Recipe, kind: Kind) -> wire.Rows:
    """Abstract codes of every replica: u8 (M, ..., row bytes), rows over fsdp."""
    assert recipe.codec is not None
    shapes = fragment_shapes(recipe.model, *kind)
    codes = {
        name: jax.ShapeDtypeStruct((recipe.replicas, *wire.byte_shape(shape, recipe.codec)), jnp.uint8)
        for name, shape in shapes.items()
    }
    return _placed(codes, tree_shardings(recipe.mesh, codes, REPLICA))


def inbox_struct(recipe: Recipe, kind: Kind, parts: int) -> jax.ShapeDtypeStruct:
    """Abstract inbox of a fragment that moves in `parts` parts."""
    assert recipe.codec is not None
    shapes = fragment_shapes(recipe.model, *kind)
    size = wire.inbox_shape(shapes, recipe.codec, recipe.mesh, recipe.replicas, parts)
    return jax.ShapeDtypeStruct(size, jnp.uint8, sharding=NamedSharding(recipe.mesh, wire.INBOX_SPEC))


def tokens_struct(recipe: Recipe) -> jax.ShapeDtypeStruct:
    """Abstract tokens of one step: int32 (M, B/M, S+1)."""
    shape = recipe.replicas, recipe.batch // recipe.replicas, recipe.model.seq_len + 1
    return jax.ShapeDtypeStruct(shape, jnp.int32, sharding=batch_sharding(recipe.mesh))


def learning_struct(recipe: Recipe) -> dict[str, jax.ShapeDtypeStruct]:
    """Abstract traced values of the inner step: `rate`; for FedPart which `layers` and whether the `embed` learn."""
    struct = {"rate": _replicated(recipe, jnp.float32)}
    if recipe.freezes:
        struct |= {
            "layers": _replicated(recipe, jnp.bool_, recipe.model.layers),
            "embed": _replicated(recipe, jnp.bool_),
        }
    return struct


def _keep(recipe: Recipe) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((recipe.replicas,), jnp.float32, sharding=per_replica(recipe.mesh))


def _gram(recipe: Recipe, kind: Kind) -> dict[str, jax.ShapeDtypeStruct]:
    (layers, embed), m = kind, recipe.replicas
    struct = {"layers": _replicated(recipe, jnp.float32, layers, m, m)} if layers else {}
    return struct | ({"embed": _replicated(recipe, jnp.float32, m, m)} if embed else {})


def _replicated(recipe: Recipe, dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=replicated(recipe.mesh))


def _placed(tree: Tree, placed: Tree) -> Tree:
    return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, placed)
