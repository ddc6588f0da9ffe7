"""Algorithms 1 and 2 as XLA programs: one a step, an inner update with what the schedule adds to it.

A program does the inner step of every replica and, for each fragment that an event names, an `Action`:
take the outer gradient before the inner step, move bytes beside it, apply after it. Nothing between the
start of a transfer and its end depends on the inner step, so the transfer may overlap with all of it;
what has arrived is looked at only when the inner step is over, so that a compiler won't wait earlier.
The scopes `send`, `inner` and `outer` name the parts in the compiled program (`repro.machines.transfers` reads them).
Layer indices are traced, so that all fragments of one kind share a program; a step without an event is
the plain inner step (`repro.diloco.inner`). Only these two modules know drjax.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import drjax
import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from repro.diloco import wire
from repro.diloco.buffers import inbox_struct
from repro.diloco.dropping import merge
from repro.diloco.flat import flat
from repro.diloco.inner import flat_step, inner_step
from repro.diloco.mesh import REPLICA
from repro.diloco.optim import outer_update
from repro.diloco.recipe import Recipe
from repro.diloco.resources import Resources
from repro.spec.actions import Action
from repro.spec.config import InnerConfig, ModelConfig
from repro.spec.shapes import fragment_shapes

Tree = Any


def take_fragment(params: Tree, layer_ids: jax.Array, kind: tuple[int, bool]) -> wire.Rows:
    """A fragment of one replica's parameters as `group/leaf` -> array."""
    layers, embed = kind
    rows = {f"embed/{n}": leaf for n, leaf in params["embed"].items()} if embed else {}
    if layers:
        rows |= {f"layers/{n}": leaf[layer_ids] for n, leaf in params["layers"].items()}
    return rows


def put_fragment(params: Tree, layer_ids: jax.Array, rows: wire.Rows) -> Tree:
    """The parameters with a fragment replaced; the inverse of `take_fragment`."""
    groups = {group: dict(leaves) for group, leaves in params.items()}
    for name, value in rows.items():
        group, leaf = name.split("/")
        groups[group][leaf] = value if group == "embed" else groups[group][leaf].at[layer_ids].set(value)
    return groups


def build_program(recipe: Recipe, actions: tuple[Action, ...]):
    """The function of one step's program.

    program(params, state, tokens, learning, owned, given) -> (params, state, loss_M, outs). Parameters and what
    InnerOpt keeps have a leading replica axis M; tokens are (M, B/M, S+1); `learning` holds the `rate` () and, for
    FedPart, which `layers` (L,) and whether the `embed` () learn at this step. `owned`, `given` and `outs` hold a dict
    an action, of the buffers that `repro.diloco.buffers` names for it: owned ones are donated, `outs` are new.
    """
    mesh, resources = recipe.mesh, recipe.resources

    @drjax.program(placements={REPLICA: recipe.replicas})
    def program(params: Tree, state: Tree, tokens: jax.Array, learning: Any, owned: Any, given: Any):
        if resources.outer_on_host:
            owned, given = on_device(owned), on_device(given)
        with jax.named_scope("send"):
            flights = [_before(recipe, params, a, o, g) for a, o, g in zip(actions, owned, given, strict=True)]
        with jax.named_scope("inner"):
            traced = _inner_step(recipe.model, recipe.inner, resources, mesh)
            step = partial(traced, tokens=tokens, learning=learning)
            fenced = resources.fence and any(flights)
            params, state, loss_M, *over = (_fenced if fenced else _free)(step, params, state, learning["rate"])
        outs = []
        with jax.named_scope("outer"):
            params, flights = _arrived(params, flights, *over)
            for action, own, extra, flight in zip(actions, owned, given, flights, strict=True):
                params, out = _after(recipe, params, action, own, extra, flight)
                outs.append(out)
        return params, state, loss_M, tuple(outs)

    return program


def build_block(recipe: Recipe):
    """The function of several steps without an event, one after the other.

    block(params, state, tokens_K, learning_K, count) -> (params, state, loss_KxM): as `build_program` says, with an
    axis of K steps in front, of which the first `count` () are taken. How many makes no difference to any bit: the
    steps are turns of one loop.
    """
    how = recipe.model, recipe.inner, recipe.resources, recipe.mesh

    def block(params: Tree, state: Tree, tokens_K: jax.Array, learning_K: Any, count: jax.Array):
        def turn(k: jax.Array, carry: tuple[tuple[Tree, Tree], jax.Array]) -> tuple[tuple[Tree, Tree], jax.Array]:
            vectors, loss_KxM = carry
            now = jax.tree.map(lambda x: x[k], learning_K)
            *vectors, loss_M = flat_step(*how, params, vectors, tokens_K[k], now)
            return tuple(vectors), loss_KxM.at[k].set(loss_M)

        flat_M = flat(params, lead=1)
        none = jnp.zeros(tokens_K.shape[:2], jnp.float32)
        vectors, loss_KxM = jax.lax.fori_loop(0, count, turn, (flat_M.join((params, state)), none))
        return *flat_M.cut(vectors), loss_KxM

    return block


def build_flush(recipe: Recipe, actions: tuple[Action, ...]):
    """The function of a final flush: every fragment exchanged once more, with no inner step beside it.

    flush(params, owned, given) -> (outer, finite_P), with buffers as in `build_program`, of which none is donated: the
    run keeps its state, and `outer` are new parameters of each fragment. Δ is taken anew from the outer copy, so codes
    in flight play no part.
    """

    @drjax.program(placements={REPLICA: recipe.replicas})
    def flush(params: Tree, owned: Any, given: Any) -> tuple[list[wire.Rows], jax.Array]:
        if recipe.resources.outer_on_host:
            owned, given = on_device(owned), on_device(given)
        with jax.named_scope("outer"):
            outs = [_after(recipe, params, a, o, g, None)[1] for a, o, g in zip(actions, owned, given, strict=True)]
        return [out["outer"] for out in outs], jnp.stack([out["finite"] for out in outs])

    return flush


@cache
def _inner_step(model: ModelConfig, config: InnerConfig, resources: Resources, mesh: Mesh) -> Callable[..., Any]:
    """`inner_step`, traced once for all programs that hold it: it is half of what there is to trace in one."""
    return jax.jit(partial(inner_step, model, config, resources, mesh), inline=True)


def on_device(tree: Tree) -> Tree:
    """From pinned host memory, where it lies there, to the device: only what a program names (§2.5)."""
    return jax.tree.map(lambda x: jax.device_put(x, jax.memory.Space.Device), tree)


def _free(step: Callable[..., Any], params: Tree, state: Tree, _: jax.Array) -> Any:
    return step(params, state)


def _fenced(step: Callable[..., Any], params: Tree, state: Tree, rate: jax.Array) -> Any:
    """The step as a loop of one trip, and a zero that only its end makes known.

    For XLA's scheduler the step is then one instruction: a transfer beside it starts before all of it and ends
    after. Left alone it starts a transfer as late as it believes safe, by a fixed guess at the link's speed.
    The bound depends on an argument (a rate is never negative), else XLA would see through the loop.
    """
    loss_M = jnp.zeros(jax.eval_shape(step, params, state)[2].shape, jnp.float32)
    trips = (rate >= 0).astype(jnp.int32)

    def trip(_: jax.Array, carried: Any) -> Any:
        return *step(*carried[:2]), carried[3] + 1

    *stepped, done = jax.lax.fori_loop(0, trips, trip, (params, state, loss_M, jnp.int32(0)))
    return *stepped, done - trips


def _arrived(params: Tree, flights: list[Any], over: jax.Array | None = None) -> tuple[Tree, list[Any]]:
    """Parameters and flights as they are, the inboxes only when the inner update is over.

    XLA would wait for them to do the outer update's first half before the inner update's second (clipping needs a sum
    over all gradients).
    """
    if not any(flights):
        return params, flights
    inboxes = [flight and flight[1] for flight in flights]
    if over is None:
        params, inboxes = jax.lax.optimization_barrier((params, inboxes))
    else:
        inboxes = jax.tree.map(lambda inbox: inbox + over.astype(inbox.dtype), inboxes)
    return params, [flight and (flight[0], inbox) for flight, inbox in zip(flights, inboxes, strict=True)]


def _quantised(recipe: Recipe, params: Tree, action: Action, outer: wire.Rows, given: Any) -> wire.Rows:
    """Δ_m = outer copy - the replica's copy (line 15), quantised to bytes: u8 (M, ..., row bytes)."""
    assert recipe.codec is not None
    codec, mesh = recipe.codec, recipe.mesh
    outer_M = jax.tree.map(lambda x: drjax.broadcast(x, mesh=mesh), outer)
    replicas_M = jnp.arange(recipe.replicas, dtype=jnp.int32)

    def encode(params: Tree, outer: wire.Rows, replica: jax.Array) -> wire.Rows:
        delta = jax.tree.map(jnp.subtract, outer, take_fragment(params, given["ids"], action.kind))
        return wire.quantise_rows(delta, codec, recipe.seed, given["taken"], replica)

    return drjax.map_fn(encode, (params, outer_M, replicas_M), mesh=mesh)


def _before(recipe: Recipe, params: Tree, action: Action, own: Any, given: Any) -> Any:
    """Encode what is sent now, and start moving this step's part: (codes, inbox) or None."""
    if not action.parts:
        return None
    if action.send:
        codes = _quantised(recipe, params, action, _outer(own, given), given)
        struct = inbox_struct(recipe, action.kind, action.parts)
        inbox = None if action.parts == 1 else jnp.zeros(struct.shape, struct.dtype)
    else:
        held = own if action.flies_on else given
        codes, inbox = held["codes"], held["inbox"]
    return codes, wire.move(codes, inbox, given["part"], action.parts, recipe.mesh)


def _after(recipe: Recipe, params: Tree, action: Action, own: Any, given: Any, flight: Any):
    """What follows the inner step: synchronise (τ = 0), apply the outer update, mix it in (lines 18-21)."""
    out = {}
    outer = _outer(own, given)
    if action.keeps_flight:
        out |= {"codes": flight[0], "inbox": flight[1]}
    if action.sync:
        codes = _quantised(recipe, params, action, outer, given)
        flight = codes, wire.move(codes, None, jnp.int32(0), 1, recipe.mesh)
    if action.updates:
        out |= _apply(recipe, action, outer, own["optimizer"], flight[1], given["taken"])
        outer = out["outer"]
    if action.mix:
        params = _mix(recipe.mesh, params, outer, given, action.kind)
    return params, out


def _outer(own: Any, given: Any) -> Any:
    """The fragment's outer copy: owned where it is updated, given where it is only read, else None."""
    return own.get("outer", given.get("outer"))


def _apply(
    recipe: Recipe, action: Action, outer: Any, state: Any, inbox: jax.Array, taken: jax.Array
) -> dict[str, Any]:
    """OuterOpt on the replicas' mean outer gradient (lines 19-20), accumulated in float32 (§2.4).

    A gradient that isn't finite is not applied, and says so: every replica decodes the same bytes, so
    all of them agree.
    """
    assert recipe.codec is not None and recipe.outer is not None
    shapes = fragment_shapes(recipe.model, *action.kind)
    delta_M = wire.dequantise_rows(inbox, shapes, recipe.codec, recipe.mesh, recipe.seed, taken)
    delta = {name: merge(rows, recipe.codec) for name, rows in delta_M.items()}
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(delta)]))
    stepped = outer_update(recipe.outer, delta, state, outer)
    outer, state = jax.tree.map(lambda new, old: jnp.where(finite, new, old), stepped, (outer, state))
    return {"outer": outer, "optimizer": state, "finite": finite, "gram": gram(delta_M)}


def gram(delta_M: wire.Rows) -> dict[str, jax.Array]:
    """Inner products between the replicas' outer gradients: `layers` (k, M, M) and `embed` (M, M), float32.

    Cosine similarities and norms (Figures 17 and 18) follow on the host. The gradients are the decoded
    ones, which every replica has.
    """
    groups: dict[str, jax.Array] = {}
    for name, rows in delta_M.items():
        group = name.split("/")[0]
        if group == "layers":
            flat = rows.reshape(*rows.shape[:2], -1)
            products = jnp.einsum("mkc,nkc->kmn", flat, flat)
        else:
            flat = rows.reshape(rows.shape[0], -1)
            products = jnp.einsum("mc,nc->mn", flat, flat)
        groups[group] = groups[group] + products if group in groups else products
    return groups


def _mix(mesh: Mesh, params: Tree, outer: wire.Rows, given: Any, kind: tuple[int, bool]) -> Tree:
    """θ_m ← α θ_m + (1 - α) θ̃ (line 21) in the replicas whose delay ends now."""
    outer_M = jax.tree.map(lambda x: drjax.broadcast(x, mesh=mesh), outer)

    def mix(params: Tree, outer: wire.Rows, keep: jax.Array) -> Tree:
        own = take_fragment(params, given["ids"], kind)
        return put_fragment(params, given["ids"], jax.tree.map(lambda p, o: keep * p + (1 - keep) * o, own, outer))

    return drjax.map_fn(mix, (params, outer_M, given["keep"]), mesh=mesh)
