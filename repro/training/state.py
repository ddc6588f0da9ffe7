"""All that a run carries from step to step, how it is sharded, and where it starts."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from repro.diloco import model as lm
from repro.diloco import wire
from repro.diloco.mesh import REPLICA, leaf_spec, make_mesh, tree_shardings
from repro.diloco.optim import inner_direction
from repro.diloco.program import on_device, take
from repro.diloco.resources import Resources
from repro.spec.actions import Action
from repro.spec.config import RunConfig
from repro.spec.fragments import Fragment, cut
from repro.spec.schedule import events
from repro.spec.shapes import fragment_shapes
from repro.training.sharing import program_config

Tree = Any
STARTS_KEPT = 16  # programs of one process


@dataclass
class TrainState:
    """Buffers of a run after `step` steps.

    params and adam have a leading replica axis M. outer holds one {"params", "momentum"} a fragment,
    each in its own float32 buffers. flight holds, for a fragment whose outer gradient is on its way
    (τ > 1), its {"codes"} of every replica and the {"inbox"} of what has arrived.
    """

    step: int
    params: Tree
    adam: Tree
    outer: list[dict[str, wire.Rows]]
    flight: dict[int, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """A config on a mesh: fragments, and the sharding of each part of the state."""

    config: RunConfig
    resources: Resources
    mesh: Mesh

    @classmethod
    def of(cls, config: RunConfig, resources: Resources, devices: list[Any] | None = None) -> "Layout":
        """Check that the run fits the resources and build the mesh; UserError otherwise."""
        resources.check(config)
        return cls(config, resources, make_mesh(resources, devices))

    def shared(self, actions: tuple[Action, ...] = (), *, cut: bool = False) -> "Layout":
        """The layout of all runs that have this one's program of these actions (`repro.training.sharing`)."""
        return replace(self, config=program_config(self.config, actions, cut=cut))

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """The fragments in the order of their offsets; none for data-parallel."""
        sync = self.config.sync
        return cut(sync.fragments, self.config.model.layers) if sync else ()

    def fragment_shapes(self, kind: tuple[int, bool]) -> wire.LeafShapes:
        """Shapes of a fragment of this kind."""
        return fragment_shapes(self.config.model, *kind)

    def outer_shardings(self, kind: tuple[int, bool]) -> dict[str, NamedSharding]:
        """Sharding of the outer parameters, or the momentum, of a fragment where they rest between updates."""
        shapes = self.fragment_shapes(kind)
        memory = "pinned_host" if self.resources.outer_on_host else None
        return {n: NamedSharding(self.mesh, leaf_spec(n, len(s)), memory_kind=memory) for n, s in shapes.items()}

    def outer_struct(self, kind: tuple[int, bool]) -> wire.Rows:
        """Abstract outer parameters, or momentum, of a fragment."""
        shapes, shardings = self.fragment_shapes(kind), self.outer_shardings(kind)
        return {n: jax.ShapeDtypeStruct(s, jnp.float32, sharding=shardings[n]) for n, s in shapes.items()}

    def codes_struct(self, kind: tuple[int, bool]) -> wire.Rows:
        """Abstract codes of every replica: u8 (M, ..., row bytes), rows over fsdp."""
        assert self.config.sync is not None
        codec, m = self.config.sync.codec, self.config.replicas
        shapes = {n: (m, *wire.byte_shape(s, codec)) for n, s in self.fragment_shapes(kind).items()}
        return {
            n: jax.ShapeDtypeStruct(s, jnp.uint8, sharding=NamedSharding(self.mesh, leaf_spec(n, len(s), REPLICA)))
            for n, s in shapes.items()
        }

    def inbox_struct(self, kind: tuple[int, bool], parts: int) -> jax.ShapeDtypeStruct:
        """Abstract inbox of a fragment that moves in `parts` parts."""
        assert self.config.sync is not None
        shapes, codec = self.fragment_shapes(kind), self.config.sync.codec
        size = wire.inbox_shape(shapes, codec, self.mesh, self.config.replicas, parts)
        return jax.ShapeDtypeStruct(size, jnp.uint8, sharding=NamedSharding(self.mesh, wire.INBOX_SPEC))

    def replica_structs(self) -> tuple[Tree, Tree]:
        """Abstract (params, adam), both with the replica axis."""
        return _replica_structs(self.shared())

    def _abstract(self, tree: Tree) -> Tree:
        shardings = tree_shardings(self.mesh, tree, REPLICA)
        return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, shardings)

    def _start_replicas(self, key: jax.Array) -> tuple[Tree, Tree]:
        params = lm.init(key, self.config.model)
        both = params, inner_direction(self.config.inner).init(params)
        m = self.config.replicas
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (m, *jnp.shape(x))), both)

    def in_flight(self, step: int) -> list[int]:
        """The fragments whose codes are on their way after `step` steps: a function of the schedule alone."""
        if self.config.sync is None:
            return []
        nxt = events(self.config.sync, len(self.fragments), self.config.replicas, step + 1)
        return sorted(p for p, part, _ in nxt.parts if part > 0)


def start(layout: Layout) -> TrainState:
    """Step 0: the same initial parameters in every replica, of every method with this seed."""
    params, adam = _start_replicas(layout.shared())(jax.random.key(layout.config.seed))
    return TrainState(0, params, adam, _start_outer(layout.shared(cut=True))(params))


@lru_cache(maxsize=STARTS_KEPT)
def _replica_structs(layout: Layout) -> tuple[Tree, Tree]:
    both = jax.eval_shape(layout._start_replicas, jax.random.key(0))
    return tuple(layout._abstract(tree) for tree in both)  # type: ignore[return-value]


@lru_cache(maxsize=STARTS_KEPT)
def _start_replicas(layout: Layout) -> Callable[[jax.Array], tuple[Tree, Tree]]:
    """key -> (params, adam), both with the replica axis."""
    shardings = jax.tree.map(lambda s: s.sharding, layout.replica_structs())
    return jax.jit(layout._start_replicas, out_shardings=shardings)


@lru_cache(maxsize=STARTS_KEPT)
def _start_outer(layout: Layout) -> Callable[[Tree], list[dict[str, wire.Rows]]]:
    """Of each fragment, in one program."""

    def first(params: Tree, fragment: Fragment) -> dict[str, wire.Rows]:
        rows = take(jax.tree.map(lambda x: x[0], params), jnp.array(fragment.layers, jnp.int32), fragment.kind)
        return {"params": rows, "momentum": jax.tree.map(jnp.zeros_like, rows)}

    shardings = [layout.outer_shardings(fragment.kind) for fragment in layout.fragments]
    kept = [{"params": s, "momentum": s} for s in shardings]
    return jax.jit(lambda p: [first(p, f) for f in layout.fragments], out_shardings=kept)


def assemble(layout: Layout, outer: list[dict[str, wire.Rows]]) -> Tree:
    """The outer parameters as one tree: fragments that synchronised at different moments, side by side."""
    order = np.argsort([i for f in layout.fragments for i in f.layers])
    embed = {n.split("/")[1]: x for o in outer for n, x in o["params"].items() if n.startswith("embed/")}
    names = [n for n in layout.fragment_shapes((1, False))]
    stacked = {n: jnp.concatenate([o["params"][n] for o in outer if n in o["params"]])[order] for n in names}
    return {"embed": embed, "layers": {n.split("/")[1]: x for n, x in stacked.items()}}


def evaluated_parameters(layout: Layout, state: TrainState, which: str) -> Tree:
    """One replica's worth of parameters: the outer copy, the first replica, or the average (Table 3)."""
    if layout.config.sync is None or which == "first":
        return jax.tree.map(lambda x: x[0], state.params)
    if which == "average":
        return jax.tree.map(lambda x: jnp.mean(x, axis=0), state.params)
    outer = on_device(state.outer) if layout.resources.outer_on_host else state.outer
    return assemble(layout, outer)
