"""Algorithms 1 and 2 as XLA programs: one a step, an inner update with what the schedule adds to it.

A program does the inner step of every replica and, for each fragment that an event names, an `Action`:
take the outer gradient before the inner step, move bytes beside it, apply after it. Nothing between the
start of a transfer and its end depends on the inner step, so the transfer may overlap with all of it.
Layer indices are traced, so that all fragments of one kind share a program; a step without an event is
the plain inner step. This is the only module that knows drjax.
"""

from dataclasses import dataclass
from typing import Any

import drjax
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from repro import model as lm
from repro import wire
from repro.config import RunConfig, SyncConfig
from repro.fragments import Fragment
from repro.mesh import DATA, FSDP, REPLICA
from repro.optim import inner_update, outer_update
from repro.resources import Resources
from repro.schedule import StepEvents, replica_delays
from repro.shapes import fragment_shapes

Tree = Any


@dataclass(frozen=True)
class Action:
    """What one program does with one fragment; all of it static."""

    kind: tuple[int, bool]  # layers, embedding
    send: bool = False  # encode the outer gradient before the inner step
    parts: int = 0  # τ_min if a part of the codes moves beside the inner step, else 0
    sync: bool = False  # τ_min = 0: encode, move and apply after the inner step
    apply: bool = False  # outer update after the inner step
    mix: bool = False  # some replicas mix the outer copy in

    @property
    def keeps_flight(self) -> bool:
        """The codes are still needed by a later program."""
        return bool(self.parts) and not self.apply

    @property
    def flies_on(self) -> bool:
        """Codes from an earlier program that a later one needs too (their buffers are handed through)."""
        return self.keeps_flight and not self.send

    @property
    def lands(self) -> bool:
        """Codes from an earlier program whose last part moves now."""
        return bool(self.parts) and self.apply and not self.send


@dataclass(frozen=True)
class Involved:
    """An action with the traced values that the host gives it."""

    fragment: int
    action: Action
    part: int
    keep_M: np.ndarray  # weight of the replica's own parameters: α where it mixes now, else 1


def involved(sync: SyncConfig, cut: tuple[Fragment, ...], replicas: int, step: StepEvents) -> tuple[Involved, ...]:
    """The actions of a step's program, ordered by fragment."""
    parts = {p: k for p, k, _ in step.parts}
    named = sorted({*step.sends, *parts, *step.syncs, *step.applies, *(p for p, _ in step.mixes)})
    found = []
    for p in named:
        mixing = [m for q, late in step.mixes if q == p for m in late]
        keep_M = np.ones(replicas, np.float32)
        keep_M[mixing] = sync.mix
        action = Action(
            kind=cut[p].kind,
            send=p in step.sends,
            parts=min(replica_delays(sync, replicas)) if p in parts else 0,
            sync=p in step.syncs,
            apply=p in step.applies,
            mix=bool(mixing),
        )
        found.append(Involved(p, action, parts.get(p, 0), keep_M))
    return tuple(found)


def take(params: Tree, layer_ids: jax.Array, kind: tuple[int, bool]) -> wire.Rows:
    """A fragment of one replica's parameters as `group/leaf` -> array."""
    layers, embed = kind
    rows = {f"embed/{n}": leaf for n, leaf in params["embed"].items()} if embed else {}
    if layers:
        rows |= {f"layers/{n}": leaf[layer_ids] for n, leaf in params["layers"].items()}
    return rows


def put(params: Tree, layer_ids: jax.Array, rows: wire.Rows) -> Tree:
    """The parameters with a fragment replaced; the inverse of `take`."""
    groups = {group: dict(leaves) for group, leaves in params.items()}
    for name, value in rows.items():
        group, leaf = name.split("/")
        groups[group][leaf] = value if group == "embed" else groups[group][leaf].at[layer_ids].set(value)
    return groups


def build_program(config: RunConfig, resources: Resources, mesh: Mesh, actions: tuple[Action, ...]):
    """The function of one step's program.

    program(params, adam, tokens, rate, owned, given) -> (params, adam, loss_M, outs). Parameters and
    the Adam state have a leading replica axis M; tokens are (M, B/M, S+1); `owned` and `given` hold a
    dict an action: owned buffers are donated (`momentum`, `outer` where it is updated, `codes`, `inbox`),
    given ones are not (`ids` (k,), `part` (), `keep` (M,), `outer` and
    the flight's buffers otherwise). Each of `outs` holds the
    new buffers of its action and, where the outer update ran, `finite` (): whether it was applied.
    """

    @drjax.program(placements={REPLICA: config.replicas})
    def program(params: Tree, adam: Tree, tokens: jax.Array, rate: jax.Array, owned: Any, given: Any):
        flights = [_before(config, mesh, params, a, o, g) for a, o, g in zip(actions, owned, given, strict=True)]
        params, adam, loss_M = _inner(config, resources, mesh, params, adam, tokens, rate)
        outs = []
        for action, own, extra, flight in zip(actions, owned, given, flights, strict=True):
            params, out = _after(config, mesh, params, action, own, extra, flight)
            outs.append(out)
        return params, adam, loss_M, tuple(outs)

    return program


def _inner(config: RunConfig, resources: Resources, mesh: Mesh, params: Tree, adam: Tree, tokens: Any, rate: Any):
    """Algorithm 2, lines 10-12, in every replica; the losses stay where they are made."""

    spread = jax.sharding.PartitionSpec((DATA, FSDP))

    def constrain(x: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, jax.sharding.NamedSharding(mesh, spread))

    def step(params: Tree, adam: Tree, tokens: jax.Array):
        def loss(p: Tree):
            return lm.nll(p, tokens, config.model, unroll=resources.unroll, remat=resources.remat, constrain=constrain)

        (_, nll), grads = jax.value_and_grad(loss, has_aux=True)(params)
        params, adam = inner_update(config.inner, grads, adam, params, rate)
        return params, adam, nll

    return drjax.map_fn(step, (params, adam, tokens), mesh=mesh)


def _outer_gradient(mesh: Mesh, params: Tree, outer: wire.Rows, ids: jax.Array, kind: tuple[int, bool]) -> wire.Rows:
    """Δ_m = outer copy - the replica's copy (line 15), (M, ...)."""
    outer_M = jax.tree.map(lambda x: drjax.broadcast(x, mesh=mesh), outer)
    return drjax.map_fn(lambda p, o: jax.tree.map(jnp.subtract, o, take(p, ids, kind)), (params, outer_M), mesh=mesh)


def _before(config: RunConfig, mesh: Mesh, params: Tree, action: Action, own: Any, given: Any) -> Any:
    """Encode what is sent now, and start moving this step's part: (codes, inbox) or None."""
    if not action.parts:
        return None
    codec = _sync(config).codec
    if action.send:
        outer = own.get("outer", given.get("outer"))
        codes = wire.encode_rows(_outer_gradient(mesh, params, outer, given["ids"], action.kind), codec)
        shapes = fragment_shapes(config.model, *action.kind)
        size = wire.inbox_shape(shapes, codec, mesh, config.replicas, action.parts)
        inbox = None if action.parts == 1 else jnp.zeros(size, jnp.uint8)
    else:
        held = given if action.lands else own
        codes, inbox = held["codes"], held["inbox"]
    return codes, wire.move(codes, inbox, given["part"], action.parts, mesh)


def _after(config: RunConfig, mesh: Mesh, params: Tree, action: Action, own: Any, given: Any, flight: Any):
    """What follows the inner step: synchronise (τ = 0), apply the outer update, mix it in (lines 18-21)."""
    sync, out = _sync(config), {}
    outer = own.get("outer", given.get("outer"))
    if action.keeps_flight:
        out |= {"codes": flight[0], "inbox": flight[1]}
    if action.sync:
        codes = wire.encode_rows(_outer_gradient(mesh, params, outer, given["ids"], action.kind), sync.codec)
        flight = codes, wire.move(codes, None, jnp.int32(0), 1, mesh)
    if action.sync or action.apply:
        shapes = fragment_shapes(config.model, *action.kind)
        delta_M = wire.unpack(flight[1], shapes, sync.codec, mesh)
        delta = jax.tree.map(lambda x: jnp.mean(x, axis=0), delta_M)  # float32: the accumulation of §2.4
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(delta)]))
        stepped, momentum = outer_update(sync.outer, outer, own["momentum"], delta)
        outer, momentum = jax.tree.map(
            lambda new, old: jnp.where(finite, new, old), (stepped, momentum), (outer, own["momentum"])
        )
        out |= {"outer": outer, "momentum": momentum, "finite": finite}
    if action.mix:
        params = _mix(mesh, params, outer, given, action.kind)
    return params, out


def _mix(mesh: Mesh, params: Tree, outer: wire.Rows, given: Any, kind: tuple[int, bool]) -> Tree:
    """θ_m ← α θ_m + (1 - α) θ̃ (line 21) in the replicas whose delay ends now."""
    outer_M = jax.tree.map(lambda x: drjax.broadcast(x, mesh=mesh), outer)

    def mix(params: Tree, outer: wire.Rows, keep: jax.Array) -> Tree:
        own = take(params, given["ids"], kind)
        return put(params, given["ids"], jax.tree.map(lambda p, o: keep * p + (1 - keep) * o, own, outer))

    return drjax.map_fn(mix, (params, outer_M, given["keep"]), mesh=mesh)


def _sync(config: RunConfig) -> SyncConfig:
    assert config.sync is not None  # programs with actions exist only for runs that synchronise
    return config.sync
