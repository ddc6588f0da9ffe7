"""The inner step of every replica (Algorithm 2, lines 10-12) on a mesh: gradients, their sum, and InnerOpt.

A replica's batch may be cut three ways, none of which changes the mathematics: over devices, over microbatches
(one after the other, gradients summed in float32), and over data-parallel groups. The groups' gradients
meet in one collective at the end of the step (`wire.mean_gradients`); nothing else of a step crosses `data` but
a scalar, and nothing crosses `replica`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import drjax
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from repro.diloco import model as lm
from repro.diloco import wire
from repro.diloco.attention import attention_for
from repro.diloco.derivatives import ANYWHERE, ONE_CPU, Kernels
from repro.diloco.flat import flat
from repro.diloco.mesh import DATA, ROWS, SEQUENCE, replicated, tree_shardings
from repro.diloco.optim import inner_update
from repro.diloco.resources import Resources
from repro.spec.config import InnerConfig, ModelConfig

Tree = Any
Gradients = Callable[[Tree, jax.Array], tuple[Tree, jax.Array]]  # (params, tokens) -> (gradients, loss)


def inner_step(
    model: ModelConfig,
    config: InnerConfig,
    resources: Resources,
    mesh: Mesh,
    params: Tree,
    state: Tree,
    tokens: jax.Array,
    learning: Any,
) -> tuple[Tree, Tree, jax.Array]:
    """New (params, state of InnerOpt) and the loss (M,) of each replica, which stays where it is made.

    `learning` holds the `rate` and, for FedPart, which `layers` and whether the `embed` learn.
    """
    if on_one_cpu(mesh):
        flat_M = flat(params, lead=1)
        stepped = flat_step(model, config, resources, mesh, params, flat_M.join((params, state)), tokens, learning)
        return *flat_M.cut(stepped[:2]), stepped[2]
    gradients = gradients_of(model, resources, mesh)

    def update(params: Tree, state: Tree, grads: Tree) -> tuple[Tree, Tree]:
        stepped = inner_update(config, grads, state, params, learning["rate"])
        if "layers" in learning:
            stepped = keep_frozen(stepped, (params, state), learning["layers"], learning["embed"])
        return stepped

    def step(params: Tree, state: Tree, tokens: jax.Array) -> tuple[Tree, Tree, jax.Array]:
        grads, loss = gradients(params, tokens)
        return *update(params, state, grads), loss

    if resources.data == 1:
        return drjax.map_fn(step, (params, state, tokens), mesh=mesh)
    grads, loss_M = _over_groups(model, resources, mesh, gradients, params, tokens)
    return *drjax.map_fn(update, (params, state, grads), mesh=mesh), loss_M


def flat_step(
    model: ModelConfig,
    config: InnerConfig,
    resources: Resources,
    mesh: Mesh,
    like: Tree,
    vectors: tuple[Tree, Tree],
    tokens: jax.Array,
    learning: Any,
) -> tuple[Tree, Tree, jax.Array]:
    """`inner_step` where all replicas share one CPU device: `vectors` are (params, state), each joined, as are the new.

    `like` are the parameters, or arrays of their shapes, with the axis of replicas.
    """
    one, gradients = flat(like, lead=1), gradients_of(model, resources, mesh)

    def step(params: Tree, state: Tree, tokens: jax.Array) -> tuple[Tree, Tree, jax.Array]:
        grads, loss = gradients(one.cut(params), tokens)
        stepped = inner_update(config, one.join(grads), state, params, learning["rate"])
        if "layers" in learning:
            kept = keep_frozen(one.cut(stepped), one.cut((params, state)), learning["layers"], learning["embed"])
            stepped = one.join(kept)
        params, state = stepped
        return params, state, loss

    return _one_after_the_other(step, *vectors, tokens)


def on_one_cpu(mesh: Mesh) -> bool:
    """Whether all replicas share one CPU device, as in the workers of a sweep."""
    return mesh.size == 1 and mesh.devices.item().platform == "cpu"


def kernels_for(resources: Resources, mesh: Mesh, rows: tuple[str, ...]) -> Kernels:
    """What a replica's layers are computed by, its sequences being spread over the mesh axes `rows`."""
    if on_one_cpu(mesh):
        return ONE_CPU
    return ANYWHERE._replace(attention=attention_for(resources.attention, mesh, rows))


def _one_after_the_other(step: Callable[..., Any], *args_M: Tree) -> Any:
    """`step` for each replica in turn: XLA's kernels for CPUs take longer over arrays with an axis of replicas."""
    if jax.tree.leaves(args_M)[0].shape[0] == 1:
        return jax.tree.map(lambda x: x[None], step(*jax.tree.map(lambda x: x[0], args_M)))
    return jax.lax.map(lambda args: step(*args), args_M)


def _over_groups(
    model: ModelConfig, resources: Resources, mesh: Mesh, gradients: Gradients, params: Tree, tokens: jax.Array
) -> tuple[Tree, jax.Array]:
    """Mean gradients and losses (M,) of the data-parallel groups, each of which first sums its own."""

    def groups(params: Tree, tokens: jax.Array) -> tuple[Tree, jax.Array]:
        tokens_GxBxS1 = tokens.reshape(resources.data, -1, tokens.shape[-1])
        return jax.vmap(partial(gradients, params), spmd_axis_name=DATA)(tokens_GxBxS1)

    grads_MxG, loss_MxG = drjax.map_fn(groups, (params, tokens), mesh=mesh)
    rows = {f"{group}/{name}": leaf for group, leaves in grads_MxG.items() for name, leaf in leaves.items()}
    grads: Tree = {group: {} for group in grads_MxG}
    for name, leaf in wire.mean_gradients(rows, model.compute_dtype, mesh).items():
        group, key = name.split("/")
        grads[group][key] = leaf
    return grads, jnp.mean(loss_MxG, axis=1)


def gradients_of(model: ModelConfig, resources: Resources, mesh: Mesh) -> Gradients:
    """The function of (params, tokens (B, S+1)) that gives one group's gradients, float32, and its mean loss."""
    rows = (DATA, ROWS) if resources.data == 1 else (ROWS,)
    spread = NamedSharding(mesh, PartitionSpec(rows, SEQUENCE))
    how: dict[str, Any] = {
        "unroll": resources.unroll,
        "remat": resources.remat,
        "constrain": lambda x: jax.lax.with_sharding_constraint(x, spread),
        # Where a device has few rows, XLA looks some up in the other group, across the slow link: not in a whole table.
        "table": lambda x: jax.lax.with_sharding_constraint(x, replicated(mesh)) if resources.data > 1 else x,
        "kernels": kernels_for(resources, mesh, rows),
    }

    def once(params: Tree, tokens: jax.Array) -> tuple[Tree, jax.Array]:
        (_, loss), grads = jax.value_and_grad(lambda p: lm.nll(p, tokens, model, **how), has_aux=True)(params)
        return grads, loss

    def sums(params: Tree, tokens: jax.Array) -> tuple[Tree, jax.Array]:
        # Row i k + j is in part j, so that every device cuts the rows that it has.
        parts = jnp.moveaxis(tokens.reshape(-1, resources.microbatches, tokens.shape[-1]), 1, 0)
        held = tree_shardings(mesh, params)

        def add(total: tuple[Tree, jax.Array], part: jax.Array) -> tuple[tuple[Tree, jax.Array], None]:
            grads, loss = once(params, part)
            added = jax.tree.map(jnp.add, total[0], grads)
            return (jax.lax.with_sharding_constraint(added, held), total[1] + loss), None

        none = jax.lax.with_sharding_constraint(jax.tree.map(jnp.zeros_like, params), held), jnp.float32(0)
        total, _ = jax.lax.scan(add, none, parts)
        return jax.tree.map(lambda x: x / resources.microbatches, total)

    return once if resources.microbatches == 1 else sums


def keep_frozen(new: Tree, old: Tree, layers: jax.Array, embed: jax.Array) -> Tree:
    """FedPart: what doesn't learn now keeps its parameters and the optimiser's state (no update, no decay).

    `layers` (L,) and `embed` () say what learns; leaves are told by their group, and a count of updates,
    which has none, goes on.
    """

    def choose(path: tuple[Any, ...], new: jax.Array, old: jax.Array) -> jax.Array:
        groups = {str(k.key) for k in path if isinstance(k, jax.tree_util.DictKey)}
        if "embed" in groups:
            return jnp.where(embed, new, old)
        if "layers" in groups:
            return jnp.where(layers.reshape(-1, *[1] * (new.ndim - 1)), new, old)
        return new

    return jax.tree.map_with_path(choose, new, old)
