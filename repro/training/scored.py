"""What is validated, scored and exported of a state: one replica's worth of parameters, beside a state that stays.

After the last step of a run with a final flush the outer copy is another one, for which every fragment was exchanged
once more. It is made here whenever it is asked for and is never kept, so a checkpoint, and with it a longer run, has no
part in it.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from repro.diloco import buffers, wire
from repro.diloco.mesh import replicated, tree_shardings
from repro.diloco.program import build_flush, on_device
from repro.diloco.recipe import Recipe
from repro.errors import UserError
from repro.spec.actions import Action, Involved, flush_involved
from repro.training.state import Fragments, Layout, TrainState
from repro.training.step import values_in

Tree = Any
PROGRAMS_KEPT = 16  # of one process


def evaluated_parameters(layout: Layout, state: TrainState, which: str) -> Tree:
    """One replica's worth of parameters: the outer copy, the first replica, or the average (Table 3).

    Of a run with a final flush the outer copy after the last step is the flushed one. UserError where an outer gradient
    of the flush isn't finite.
    """
    which = which if layout.config.sync else "first"
    outer = state.outer
    if which == "outer" and (items := _flush(layout, state.step)):
        outer = _flushed(layout, state, items)
    return _evaluated(layout.fragments, which, layout.resources.outer_on_host)(state.params, outer)


def compile_flush(layout: Layout) -> None:
    """Compile the final flush of a run that has one, so that its end waits for no compilation."""
    if items := _flush(layout, layout.config.steps):
        _compiled_flush(layout.recipe, _key(items))


def lowered_flush(recipe: Recipe, key: tuple[Action, ...]) -> Any:
    """The program of a final flush of these fragments, lowered for the recipe's mesh."""
    params, _ = buffers.replica_structs(recipe)
    owned, given = (buffers.structs(recipe, key, role) for role in ("owned", "given"))
    outer = tree_shardings(recipe.mesh, [of_fragment["outer"] for of_fragment in owned])
    program = jax.jit(build_flush(recipe, key), out_shardings=(outer, replicated(recipe.mesh)))
    return program.lower(params, owned, given)


@lru_cache(maxsize=PROGRAMS_KEPT)
def _compiled_flush(recipe: Recipe, key: tuple[Action, ...]) -> Any:
    return lowered_flush(recipe, key).compile()


def _flush(layout: Layout, step: int) -> tuple[Involved, ...]:
    config = layout.config
    return flush_involved(config.sync, layout.fragments, config.replicas, step, config.steps)


def _key(items: tuple[Involved, ...]) -> tuple[Action, ...]:
    return tuple(item.action for item in items)


def _flushed(layout: Layout, state: TrainState, items: tuple[Involved, ...]) -> list[dict[str, Tree]]:
    """The outer copy with every fragment exchanged once more, in new buffers on the device."""
    owned, given = (tuple(values_in(state, item, role) for item in items) for role in ("owned", "given"))
    outer, finite_P = _compiled_flush(layout.recipe, _key(items))(state.params, owned, given)
    if not np.all(finite_P):
        raise UserError(
            f"the outer gradient of fragment {int(np.argmin(finite_P))} in the flush after step {state.step} is not "
            "finite: lower the learning rate, or look at the curve in metrics/."
        )
    return [{"params": rows} for rows in outer]


@lru_cache(maxsize=PROGRAMS_KEPT)
def _evaluated(fragments: Fragments, which: str, outer_on_host: bool) -> Callable[[Tree, list[dict[str, Tree]]], Tree]:
    def evaluated(params: Tree, outer: list[dict[str, Tree]]) -> Tree:
        if which == "first":
            return jax.tree.map(lambda x: x[0], params)
        if which == "average":
            return jax.tree.map(lambda x: jnp.mean(x, axis=0), params)
        return assemble(fragments, on_device(outer) if outer_on_host else outer)

    return jax.jit(evaluated)


def assemble(fragments: Fragments, outer: list[dict[str, Tree]]) -> Tree:
    """The outer parameters as one tree: fragments that synchronised at different moments, side by side."""
    order = np.argsort([i for f in fragments for i in f.layers])
    copies: list[wire.Rows] = [entry["params"] for entry in outer]
    groups: Tree = {"embed": {}, "layers": {}}
    for name in sorted({name for rows in copies for name in rows}):
        group, leaf = name.split("/")
        pieces = [rows[name] for rows in copies if name in rows]
        groups[group][leaf] = jnp.concatenate(pieces)[order] if group == "layers" else pieces[0]
    return groups
