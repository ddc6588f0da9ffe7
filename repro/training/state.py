"""All that a run carries from step to step, and where it starts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from repro.diloco.buffers import outer_struct, replica_structs, shardings, start_of_replicas
from repro.diloco.mesh import make_mesh
from repro.diloco.optim import outer_init
from repro.diloco.program import take_fragment
from repro.diloco.recipe import Recipe
from repro.diloco.resources import Resources
from repro.spec.config import RunConfig
from repro.spec.fragments import Fragment, cut
from repro.spec.schedule import events

Tree = Any
Fragments = tuple[Fragment, ...]
STARTS_KEPT = 16  # programs of one process


@dataclass
class TrainState:
    """Buffers of a run after `step` steps.

    params and inner, what InnerOpt keeps of them, have a leading replica axis M. outer holds one
    {"params", "state"} a fragment, each in its own buffers: the outer parameters, and what OuterOpt keeps of them.
    flight holds, for a fragment whose outer gradient is on its way (τ > 1), its {"codes"} of every replica and the
    {"inbox"} of what has arrived.
    """

    step: int
    params: Tree
    inner: Tree
    outer: list[dict[str, Tree]]
    flight: dict[int, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """A run on a mesh."""

    config: RunConfig
    resources: Resources
    mesh: Mesh

    @classmethod
    def of(cls, config: RunConfig, resources: Resources, devices: list[Any] | None = None) -> "Layout":
        """Check that the run fits the resources and build the mesh; UserError otherwise."""
        resources.check(config)
        return cls(config, resources, make_mesh(resources, devices))

    @cached_property
    def recipe(self) -> Recipe:
        """What its programs are built from."""
        return Recipe.of(self.config, self.resources, self.mesh)

    @cached_property
    def fragments(self) -> Fragments:
        """The fragments in the order of their offsets; none for data-parallel."""
        sync = self.config.sync
        return cut(sync.fragments, self.config.model.layers) if sync else ()

    def in_flight(self, step: int) -> list[int]:
        """The fragments whose codes are on their way after `step` steps: a function of the schedule alone."""
        if self.config.sync is None:
            return []
        nxt = events(self.config.sync, len(self.fragments), self.config.replicas, step + 1)
        return sorted(p for p, part, _ in nxt.parts if part > 0)


def start(layout: Layout) -> TrainState:
    """Step 0: the same initial parameters in every replica, of every method with this seed."""
    params, inner = _start_replicas(layout.recipe.of_program(()))(jax.random.key(layout.config.seed))
    return TrainState(0, params, inner, _start_outer(layout.recipe, layout.fragments)(params))


@lru_cache(maxsize=STARTS_KEPT)
def _start_replicas(recipe: Recipe) -> Callable[[jax.Array], tuple[Tree, Tree]]:
    """key -> (params, what InnerOpt keeps), both with the replica axis."""
    return jax.jit(lambda key: start_of_replicas(recipe, key), out_shardings=shardings(replica_structs(recipe)))


@lru_cache(maxsize=STARTS_KEPT)
def _start_outer(recipe: Recipe, fragments: Fragments) -> Callable[[Tree], list[dict[str, Tree]]]:
    """The outer state of each fragment, in one program."""

    def first(params: Tree, fragment: Fragment) -> dict[str, Tree]:
        assert recipe.outer is not None
        rows = take_fragment(jax.tree.map(lambda x: x[0], params), jnp.array(fragment.layers, jnp.int32), fragment.kind)
        return {"params": rows, "state": outer_init(recipe.outer, rows)}

    kept = [shardings(outer_struct(recipe, fragment.kind)) for fragment in fragments]
    return jax.jit(lambda params: [first(params, f) for f in fragments], out_shardings=kept)
