"""The host's side of a step: which program, compiled ahead of time, on which buffers.

Programs differ in their actions only, so a run needs a handful; they are all compiled before the first
step, with the output shardings pinned to the input ones (else the second call would compile again). Runs that follow
one another in a process share them (`repro.training.sharing`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from repro.diloco.mesh import batch_sharding, per_replica, whole
from repro.diloco.optim import learning_rate
from repro.diloco.program import build_program
from repro.spec.actions import Action, Involved, involved
from repro.spec.fragments import Fragment
from repro.spec.schedule import learning
from repro.training.state import Layout, TrainState

Key = tuple[Action, ...]

PROGRAMS_KEPT = 24  # of one process, some 20 MiB each; more spare a whole sweep few compilations


@lru_cache(maxsize=PROGRAMS_KEPT)
def _compiled(layout: Layout, key: Key) -> Any:
    return Stepper(layout).lower(key).compile()


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
        self._params, self._adam = layout.replica_structs()

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
            self._programs[key] = _compiled(self.layout.shared(key), key)
        return self._programs[key]

    def lower(self, key: Key) -> Any:
        """The program of these actions, lowered for the layout's mesh."""
        layout = self.layout
        config, mesh = layout.config, layout.mesh
        shape = config.replicas, config.batch // config.replicas, config.model.seq_len + 1
        tokens = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=batch_sharding(mesh))
        owned = tuple(self._owned_struct(a) for a in key)
        given = tuple(self._given_struct(a) for a in key)
        inputs = (self._params, self._adam, tokens, self._inner_struct(), owned, given)
        outs = tuple(self._out_shardings(a) for a in key)
        kept = jax.tree.map(lambda s: s.sharding, (self._params, self._adam))
        program = jax.jit(
            build_program(config, layout.resources, mesh, key),
            donate_argnums=(0, 1, 4),
            out_shardings=(*kept, per_replica(mesh), outs),
        )
        return program.lower(*inputs)

    def __call__(self, state: TrainState, tokens: jax.Array) -> tuple[jax.Array, dict[int, Sync]]:
        """Run the next step in place: the loss of each replica (M,), and what was applied, by fragment."""
        step = state.step + 1
        items = self.involved(step)
        owned = tuple(self._owned(state, item) for item in items)
        given = tuple(self._given(state, item) for item in items)
        inner = self._inner(step)
        compiled = self.compile(tuple(item.action for item in items))
        state.params, state.adam, loss_M, outs = compiled(state.params, state.adam, tokens, inner, owned, given)
        applied = {}
        for item, out in zip(items, outs, strict=True):
            p = item.fragment
            if "finite" in out:
                state.outer[p] = {"params": out["outer"], "momentum": out["momentum"]}
                applied[p] = Sync(item.taken, out["finite"], out["gram"])
            if item.action.keeps_flight:
                state.flight[p] = {"codes": out["codes"], "inbox": out["inbox"]}
        state.step = step
        return loss_M, dict(sorted(applied.items()))

    def _inner(self, step: int) -> dict[str, Any]:
        """The traced values of the inner step: its rate, and what learns where FedPart freezes the rest."""
        config = self.layout.config
        values: dict[str, Any] = {"rate": np.float32(learning_rate(config.inner, step, config.steps))}
        if config.sync is not None and config.sync.frozen:
            fragments = self.layout.fragments
            now = [fragments[p] for p in learning(config.sync, len(fragments), step)]
            values["layers"] = np.isin(np.arange(config.model.layers), [i for f in now for i in f.layers])
            values["embed"] = np.bool_(any(f.embed for f in now))
        return values

    def _inner_struct(self) -> dict[str, Any]:
        config = self.layout.config
        struct: dict[str, Any] = {"rate": self._scalar(jnp.float32)}
        if config.sync is not None and config.sync.frozen:
            layers = jax.ShapeDtypeStruct((config.model.layers,), jnp.bool_, sharding=whole(self.layout.mesh))
            struct |= {"layers": layers, "embed": self._scalar(jnp.bool_)}
        return struct

    def _owned(self, state: TrainState, item: Involved) -> dict[str, Any]:
        """The buffers that the program of `item` takes over (donated)."""
        action, outer = item.action, state.outer[item.fragment]
        owned: dict[str, Any] = {}
        if action.apply or action.sync:
            owned |= {"outer": outer["params"], "momentum": outer["momentum"]}
        if action.flies_on:
            owned |= state.flight.pop(item.fragment)
        return owned

    def _given(self, state: TrainState, item: Involved) -> dict[str, Any]:
        action, fragment = item.action, self.layout.fragments[item.fragment]
        given = {"ids": _ids(fragment), "part": np.int32(item.part), "taken": np.int32(item.taken)}
        given["keep"] = item.keep_M
        if (action.send or action.mix) and not (action.apply or action.sync):
            given["outer"] = state.outer[item.fragment]["params"]
        if action.lands:
            given |= state.flight.pop(item.fragment)
        return given

    def _owned_struct(self, action: Action) -> dict[str, Any]:
        layout, owned = self.layout, {}
        if action.apply or action.sync:
            owned |= {"outer": layout.outer_struct(action.kind), "momentum": layout.outer_struct(action.kind)}
        if action.flies_on:
            owned |= self._flight_struct(action)
        return owned

    def _flight_struct(self, action: Action) -> dict[str, Any]:
        layout = self.layout
        return {
            "codes": layout.codes_struct(action.kind),
            "inbox": layout.inbox_struct(action.kind, action.parts),
        }

    def _given_struct(self, action: Action) -> dict[str, Any]:
        layout, mesh = self.layout, self.layout.mesh
        keep = jax.ShapeDtypeStruct((layout.config.replicas,), jnp.float32, sharding=per_replica(mesh))
        ids = jax.ShapeDtypeStruct((action.kind[0],), jnp.int32, sharding=whole(mesh))
        given: dict[str, Any] = {
            "ids": ids,
            "part": self._scalar(jnp.int32),
            "taken": self._scalar(jnp.int32),
            "keep": keep,
        }
        if (action.send or action.mix) and not (action.apply or action.sync):
            given["outer"] = layout.outer_struct(action.kind)
        if action.lands:
            given |= self._flight_struct(action)
        return given

    def _out_shardings(self, action: Action) -> dict[str, Any]:
        layout, out = self.layout, {}
        if action.keeps_flight:
            out |= jax.tree.map(lambda s: s.sharding, self._flight_struct(action))
        if action.apply or action.sync:
            outer = layout.outer_shardings(action.kind)
            gram = {g: whole(layout.mesh) for g in {n.split("/")[0] for n in outer}}
            out |= {"outer": outer, "momentum": outer, "finite": whole(layout.mesh), "gram": gram}
        return out

    def _scalar(self, dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((), dtype, sharding=whole(self.layout.mesh))


def _ids(fragment: Fragment) -> np.ndarray:
    return np.array(fragment.layers, np.int32)
