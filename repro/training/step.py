"""The host's side of a step: which program, compiled ahead of time, on which buffers.

On one CPU, where a call costs as much as a small step, steps without an event go several to a call. Programs differ in
their actions only, so a run needs a handful; they are all compiled before the first
step, with the output shardings pinned to the input ones (else the second call would compile again). Runs that follow
one another in a process share them (`repro.diloco.recipe`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from repro.diloco import buffers
from repro.diloco.buffers import Role
from repro.diloco.inner import on_one_cpu
from repro.diloco.mesh import per_replica, replicated
from repro.diloco.optim import learning_rate
from repro.diloco.program import build_block, build_program
from repro.diloco.recipe import Recipe
from repro.spec.actions import Action, Involved, involved
from repro.spec.schedule import learning
from repro.training.state import Layout, TrainState

Key = tuple[Action, ...]

BLOCK = 8  # steps without an event in one call, where that is cheaper than a call each
PROGRAMS_KEPT = 24  # of one process, some 20 MiB each; more spare a whole sweep few compilations


@lru_cache(maxsize=PROGRAMS_KEPT)
def _compiled(recipe: Recipe, key: Key) -> Any:
    return lowered(recipe, key).compile()


def lowered(recipe: Recipe, key: Key) -> Any:
    """The program of these actions, lowered for the recipe's mesh."""
    if key == () and on_one_cpu(recipe.mesh):
        return _lowered_block(recipe)
    state = buffers.replica_structs(recipe)
    owned, given, left = (buffers.structs(recipe, key, role) for role in ("owned", "given", "left"))
    program = jax.jit(
        build_program(recipe, key),
        donate_argnums=(0, 1, 4),
        out_shardings=(*buffers.shardings(state), per_replica(recipe.mesh), buffers.shardings(left)),
    )
    return program.lower(*state, buffers.tokens_struct(recipe), buffers.learning_struct(recipe), owned, given)


def _lowered_block(recipe: Recipe) -> Any:
    """`BLOCK` steps without an event or fewer."""

    def of_steps(struct: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((BLOCK, *struct.shape), struct.dtype, sharding=replicated(recipe.mesh))

    state = buffers.replica_structs(recipe)
    steps = jax.tree.map(of_steps, (buffers.tokens_struct(recipe), buffers.learning_struct(recipe)))
    count = jax.ShapeDtypeStruct((), jnp.int32, sharding=replicated(recipe.mesh))
    kept = (*buffers.shardings(state), replicated(recipe.mesh))
    return jax.jit(build_block(recipe), donate_argnums=(0, 1), out_shardings=kept).lower(*state, *steps, count)


@dataclass(frozen=True)
class Sync:
    """An outer update, still on the device: when its gradient was taken, whether it was finite and applied,
    and the replicas' inner products."""

    taken: int
    finite: jax.Array
    gram: dict[str, jax.Array]


class Stepper:
    """Compiles and runs the steps of one layout."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._programs: dict[Key, Any] = {}
        self._in_blocks = on_one_cpu(layout.mesh)

    def involved(self, step: int) -> tuple[Involved, ...]:
        """What the program of `step` does with which fragments."""
        config, cut = self.layout.config, self.layout.fragments
        if config.sync is None:
            return ()
        return involved(config.sync, cut, config.replicas, step)

    def key(self, step: int) -> Key:
        """Which program runs `step`."""
        return tuple(item.action for item in self.involved(step))

    def programs(self, first: int, last: int) -> Iterator[Key]:
        """The distinct programs of steps first..last, in the order of their first use."""
        seen: set[Key] = set()
        for step in range(first, last + 1):
            key = self.key(step)
            if key not in seen:
                seen.add(key)
                yield key

    def compile(self, key: Key) -> Any:
        """The compiled program of these actions (from memory when it was compiled before, for this run or another)."""
        if key not in self._programs:
            self._programs[key] = _compiled(self.layout.recipe.of_program(key), key)
        return self._programs[key]

    def lower(self, key: Key) -> Any:
        """The program of these actions, lowered for the layout's mesh."""
        return lowered(self.layout.recipe.of_program(key), key)

    def free(self, step: int, last: int) -> int:
        """How many steps after `step` one call may take, to `last` or the next event; 0 where each call is a step."""
        count = 0
        while self._in_blocks and count < BLOCK and step + count < last and not self.involved(step + count + 1):
            count += 1
        return count

    def block(self, state: TrainState, tokens: np.ndarray, count: int) -> jax.Array:
        """Run the next `count` steps, which have no event, in place: losses (BLOCK, M), of which so many are there.

        `tokens` is int32 (BLOCK, M, B/M, S+1); what lies beyond `count` is not read.
        """
        nows = [self._learning(state.step + 1 + k) for k in range(count)]
        now = jax.tree.map(lambda *x: np.stack([*x, *x[:1] * (BLOCK - count)]), *nows)
        taken = self.compile(())(state.params, state.inner, tokens, now, np.int32(count))
        state.params, state.inner, loss_KxM = taken
        state.step += count
        return loss_KxM

    def __call__(self, state: TrainState, tokens: jax.Array) -> tuple[jax.Array, dict[int, Sync]]:
        """Run the next step in place: the loss of each replica (M,), and what was applied, by fragment."""
        step = state.step + 1
        if self._in_blocks and not self.involved(step):
            block = np.zeros((BLOCK, *tokens.shape), np.int32)
            block[0] = tokens
            return self.block(state, block, 1)[0], {}
        items = self.involved(step)
        owned, given = (tuple(values_in(state, item, role) for item in items) for role in ("owned", "given"))
        compiled = self.compile(tuple(item.action for item in items))
        now = self._learning(step)
        state.params, state.inner, loss_M, outs = compiled(state.params, state.inner, tokens, now, owned, given)
        applied = {}
        for item, out in zip(items, outs, strict=True):
            _keep(state, item, out)
            if item.action.updates:
                applied[item.fragment] = Sync(item.taken, out["finite"], out["gram"])
        state.step = step
        return loss_M, dict(sorted(applied.items()))

    def _learning(self, step: int) -> dict[str, Any]:
        """The traced values of the inner step: its rate, and what learns where FedPart freezes the rest."""
        config = self.layout.config
        values: dict[str, Any] = {"rate": np.float32(learning_rate(config.inner, step, config.steps))}
        if config.sync is not None and config.sync.frozen:
            fragments = self.layout.fragments
            now = [fragments[p] for p in learning(config.sync, len(fragments), step)]
            values["layers"] = np.isin(np.arange(config.model.layers), [i for f in now for i in f.layers])
            values["embed"] = np.bool_(any(f.embed for f in now))
        return values


def values_in(state: TrainState, item: Involved, role: Role) -> dict[str, Any]:
    """The buffers of a program in this role: from the state, or as the schedule has them."""
    held = {"outer": state.outer[item.fragment], "flight": state.flight.get(item.fragment, {})}
    values = {}
    for name, buffer in buffers.of_action(item.action, role).items():
        values[name] = held[buffer.at[0]][buffer.at[1]] if buffer.at else buffer.value(item)
    return values


def _keep(state: TrainState, item: Involved, out: dict[str, Any]) -> None:
    """Put the buffers that a program leaves where the state has them; codes that have landed are gone."""
    p = item.fragment
    kept: dict[str, dict[str, Any]] = {"outer": dict(state.outer[p]), "flight": {}}
    for name, buffer in buffers.of_action(item.action, "left").items():
        if buffer.at:
            kept[buffer.at[0]][buffer.at[1]] = out[name]
    state.outer[p], state.flight[p] = kept["outer"], kept["flight"]
    if not item.action.keeps_flight:
        del state.flight[p]
