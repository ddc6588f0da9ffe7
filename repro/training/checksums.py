"""Whether a state is the one that was saved, whatever the files: a sum over the bits of each of its arrays.

A sum does not depend on how an array is spread over devices, so each process adds up what it holds, and nothing is
read twice. Files are not hashed: a flipped bit that no array feels is no damage.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

Tree = Any
Sums = dict[str, list[int]]


def checksums(parts: Mapping[str, Tree]) -> tuple[Sums, bool]:
    """By part, Σ (2i + 1) x_i mod 2^32 over the bits x_i of each leaf; and whether all numbers are finite.

    The weights are odd, so that no change of one element leaves the sum as it was. A part is one program, and only
    one is on the device at a time where parts rest on the host. All processes call it together.
    """
    summed = {name: _summed(tree) for name, tree in parts.items() if jax.tree.leaves(tree)}
    return {name: sums for name, (sums, _) in summed.items()}, all(finite for _, finite in summed.values())


def _summed(tree: Tree) -> tuple[list[int], bool]:
    sharding = jax.tree.leaves(tree)[0].sharding
    everywhere = NamedSharding(sharding.mesh, PartitionSpec())
    sums, finite = jax.jit(_sums_of, out_shardings=(everywhere, everywhere))(tree)
    return np.asarray(sums).tolist(), bool(finite)


def _sums_of(tree: Tree) -> tuple[jax.Array, jax.Array]:
    leaves = [jax.device_put(leaf, jax.memory.Space.Device) for leaf in jax.tree.leaves(tree)]
    finite = [jnp.isfinite(leaf).all() for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.stack([_sum(leaf) for leaf in leaves]), jnp.stack([jnp.bool_(True), *finite]).all()


def _sum(leaf: jax.Array) -> jax.Array:
    bits = jax.lax.bitcast_convert_type(leaf, f"uint{8 * leaf.dtype.itemsize}").astype(jnp.uint32)
    index = jnp.zeros(leaf.shape, jnp.uint32)
    for axis in range(leaf.ndim):
        stride = jnp.uint32(math.prod(leaf.shape[axis + 1 :]) % 2**32)
        index += stride * jax.lax.broadcasted_iota(jnp.uint32, leaf.shape, axis)
    return jnp.sum(bits * (2 * index + 1), dtype=jnp.uint32)
