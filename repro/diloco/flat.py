"""A replica's parameters as few vectors: on a CPU the number of operations is what a step of a small model costs.

What InnerOpt keeps of the parameters follows them, so its update is one operation where it was one a leaf. There is a
vector for what decays and one for the norm gains, which don't. Checkpoints, fragments and shardings know nothing of it:
a program joins what it is given, and leaves trees.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from repro.diloco.mesh import leaf_name
from repro.spec.shapes import is_norm

Tree = Any
VECTORS: tuple[str, ...] = ("matrices", "gains_norm")  # by these names an optimiser tells what takes no weight decay


class Flat(NamedTuple):
    """How to `join` the parameters in any tree into vectors and to `cut` them again; axes in front stay."""

    join: Callable[[Tree], Tree]
    cut: Callable[[Tree], Tree]


def flat(params: Tree, lead: int = 0) -> Flat:
    """The layout of parameters such as these, or of trees that hold arrays like all of them, behind `lead` axes."""
    leaves, structure = jax.tree.flatten_with_path(params)
    shapes = [leaf.shape[lead:] for _, leaf in leaves]
    vector_of = [VECTORS[is_norm(leaf_name(path))] for path, _ in leaves]

    def joined(tree: Tree) -> dict[str, jax.Array]:
        rows = [x.reshape(*x.shape[: x.ndim - len(s)], -1) for x, s in zip(jax.tree.leaves(tree), shapes, strict=True)]
        return {v: jnp.concatenate([x for x, at in zip(rows, vector_of, strict=True) if at == v], -1) for v in VECTORS}

    def parted(vectors: dict[str, jax.Array]) -> Tree:
        starts, parts = dict.fromkeys(VECTORS, 0), []
        for shape, at in zip(shapes, vector_of, strict=True):
            end = starts[at] + math.prod(shape)
            part = vectors[at][..., starts[at] : end]
            parts.append(part.reshape(*part.shape[:-1], *shape))
            starts[at] = end
        return jax.tree.unflatten(structure, parts)

    def are_params(tree: Tree) -> bool:
        return jax.tree.structure(tree) == structure

    def are_vectors(tree: Tree) -> bool:
        return isinstance(tree, dict) and set(tree) == set(VECTORS)

    return Flat(
        lambda tree: jax.tree.map(lambda x: joined(x) if are_params(x) else x, tree, is_leaf=are_params),
        lambda tree: jax.tree.map(lambda x: parted(x) if are_vectors(x) else x, tree, is_leaf=are_vectors),
    )
