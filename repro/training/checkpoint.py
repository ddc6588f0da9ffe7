"""Exact resume: the whole state of a run at a step, by orbax, asynchronous, atomic, and verified when it is restored.

A checkpoint is a pure function of (config, step), whatever the resources: codes in flight are stored as
rows, not as some layout's packed bytes. What of them had arrived is gathered again on restore, which
gives the same inbox, since every replica's codes are in the checkpoint. A folder may be a bucket: nothing is
renamed or appended to here, and orbax marks a checkpoint there as complete by a file that it writes last.
"""

import json
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from etils import epath

from repro import disk
from repro.diloco import wire
from repro.diloco.buffers import codes_struct, inbox_struct, outer_struct, replica_structs
from repro.errors import UserError
from repro.spec.schedule import replica_delays
from repro.training import processes
from repro.training.checksums import checksums
from repro.training.state import Layout, TrainState

for name in ("absl", "asyncio"):
    logging.getLogger(name).setLevel(logging.CRITICAL)  # what orbax logs as an error it raises, too

KEEP = 2  # checkpoints of a run: the newest, and the one to fall back to
LONGEST = 100  # characters shown of what a library says
# What tensorstore, orbax and asyncio say of reads and writes that nobody waits for any more, since one of them failed.
LATE = ("Event loop is closed", "Encountered error while reading array index", "coroutine '")
METADATA = "_CHECKPOINT_METADATA"  # orbax's JSON beside the arrays, with the checksums in it


class Damaged(Exception):
    """A checkpoint that can't be read or is not what was saved, and why; raised in all processes together."""


class _Manager(ocp.CheckpointManager):
    """Orbax's, which asks JAX's preemption service nothing.

    `processes.stop_at` asks it, by the loop's count of looks. Asked at each save by the step as well, the service takes
    that for the furthest look of this process, and names one to stop at that may be past: a signal was never heard.
    """

    def reached_preemption(self, step: int) -> bool:
        """Never: who stops a run saves by itself."""
        return False


class Checkpoints:
    """The newest checkpoints of one run. All processes of the run call each method together."""

    def __init__(self, folder: epath.PathLike, keep: int = KEEP, *, read_only: bool = False) -> None:
        """Where it is `read_only`, only `restore` and `steps` may be called; nothing is made or cleaned up then."""
        _LateAnswers.ignore()
        # Orbax wants it absolute; epath would make a local path of a bucket's.
        self.folder = epath.Path(folder.resolve() if isinstance(folder, Path) else folder)
        if read_only:
            options = ocp.CheckpointManagerOptions(read_only=True)
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            options = ocp.CheckpointManagerOptions(
                max_to_keep=keep, cleanup_tmp_directories=True, enable_async_checkpointing=True
            )
        self._manager = _Manager(self.folder, options=options)

    def steps(self) -> list[int]:
        """Steps that were saved, ascending."""
        return sorted(self._manager.all_steps())

    def prepare(self, state: TrainState) -> None:
        """Compile what saving will run, so that the first save holds the loop up no longer than the others."""
        checksums(_parts(_tree(state)))

    def save(self, state: TrainState) -> None:
        """Start saving; the state may be donated again when this returns.

        UserError when the checkpoint before this one could not be written, or when the state is not finite: what
        can't be trained on must not take the place of what can.
        """
        tree = _tree(state)
        sums, finite = checksums(_parts(tree))
        if not finite:
            raise UserError(
                f"the parameters after step {state.step} are not finite: they were not saved, and the run goes on from "
                "the checkpoint before; lower the learning rate."
            )
        args = ocp.args.StandardSave(tree)
        self._written(lambda: self._manager.save(state.step, args=args, custom_metadata={"sums": sums}))

    def restore(self, layout: Layout, step: int) -> TrainState:
        """The state after `step` steps on this layout, which may differ from the one that saved it; or UserError."""
        try:
            return self._restore(layout, step)
        except Damaged as damage:
            raise UserError(
                f"the checkpoint of step {step} in {self.folder} can't be restored ({damage}): "
                "delete its folder to go on from the one before."
            ) from damage

    def newest(self, layout: Layout, warn: Callable[[str], None]) -> TrainState | None:
        """The newest state that is what was saved, None where nothing was saved; UserError when all are damaged.

        Damaged ones after it are reported to `warn` and deleted, since the run will come to their steps again.
        """
        damages: dict[int, Damaged] = {}
        for step in reversed(self.steps()):
            try:
                state = self._restore(layout, step)
            except Damaged as damage:
                damages[step] = damage
                continue
            for bad, damage in damages.items():
                self._manager.delete(bad)
                warn(f"the checkpoint of step {bad} is damaged ({damage}): deleted; going on from step {step}.")
            return state
        if damages:
            reasons = "; ".join(f"step {step}: {damage}" for step, damage in damages.items())
            # An attempt has the checkpoints of those before it, and the next would take them again.
            attempts = self.folder.parent.parent
            named = attempts if attempts.name == "attempts" else self.folder
            raise UserError(
                f"no checkpoint in {self.folder} can be restored ({reasons}): delete {named} to start afresh."
            )
        return None

    def close(self) -> None:
        """Wait until what was started is on disk; UserError when it could not be written."""
        try:
            self._written(self._manager.wait_until_finished)
        finally:
            self._manager.close()

    def _written(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except (ValueError, OSError, jax.errors.JaxRuntimeError) as error:
            raise UserError(
                f"a checkpoint in {self.folder} could not be written ({_first_line(error)}): "
                f"{disk.advice(error)}; the run goes on from the one before."
            ) from error

    def _restore(self, layout: Layout, step: int) -> TrainState:
        saved = self._agreed(lambda: self._sums(step))
        how = ocp.args.StandardRestore(_abstract(layout, step))
        tree = self._agreed(lambda: self._manager.restore(step, args=how))
        if saved and saved["sums"] != checksums(_parts(tree))[0]:
            raise Damaged("its numbers are not those that were saved")
        flight = {int(p): {"codes": rows, "inbox": _arrived(layout, int(p), rows)} for p, rows in tree["codes"].items()}
        return TrainState(step, tree["params"], tree["inner"], list(tree["outer"]), flight)

    def _sums(self, step: int) -> dict[str, Any]:
        """{"sums": ...}; empty for a checkpoint of before there were any, which can't be verified."""
        metadata = json.loads((self.folder / str(step) / METADATA).read_text(encoding="utf-8"))["custom_metadata"]
        return {"sums": metadata["sums"]} if metadata else {}

    def _agreed(self, read: Callable[[], Any]) -> Any:
        """What `read` gives; Damaged in all processes when one of them can't read."""
        reason, value = None, None
        try:
            value = read()
        except Exception as error:  # what a flipped bit makes of a reader: orbax raises Exception itself, too
            reason = f"{type(error).__name__}: {_first_line(error)}"
        if processes.any_of(reason is not None):
            raise Damaged(reason or "another process can't read it")
        return value


class _LateAnswers:
    """Where one of many reads or writes fails, tensorstore answers the others when nobody waits, and a traceback is
    shown for each: this leaves them out, and passes on what else goes wrong where nothing can be raised."""

    def __init__(self, hook: Callable[[Any], Any]) -> None:
        self._hook = hook

    def __call__(self, unraisable: Any) -> None:
        if not str(unraisable.exc_value).startswith(LATE):
            self._hook(unraisable)

    @classmethod
    def ignore(cls) -> None:
        """From now on: they come at any time."""
        warnings.filterwarnings("ignore", "coroutine '.*' was never awaited", RuntimeWarning)
        if not isinstance(sys.unraisablehook, cls):
            sys.unraisablehook = cls(sys.unraisablehook)


def _abstract(layout: Layout, step: int) -> dict[str, Any]:
    recipe, kinds = layout.recipe, [fragment.kind for fragment in layout.fragments]
    params, inner = replica_structs(recipe)
    codes = {str(p): codes_struct(recipe, kinds[p]) for p in layout.in_flight(step)}
    return {"params": params, "inner": inner, "outer": [outer_struct(recipe, kind) for kind in kinds], "codes": codes}


def _tree(state: TrainState) -> dict[str, Any]:
    flight = {str(p): entry["codes"] for p, entry in state.flight.items()}
    return {"params": state.params, "inner": state.inner, "outer": state.outer, "codes": flight}


def _parts(tree: dict[str, Any]) -> dict[str, Any]:
    """The state in the parts that are summed one after the other."""
    named = {f"outer {p}": entry for p, entry in enumerate(tree["outer"])}
    named |= {f"codes {p}": rows for p, rows in tree["codes"].items()}
    return {"params": tree["params"], "inner": tree["inner"], **named}


def _first_line(error: Exception) -> str:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line if len(line) <= LONGEST else line[:LONGEST] + "…"


def _arrived(layout: Layout, fragment: int, codes: wire.Rows) -> jax.Array:
    """The inbox with every part in it: later programs write the same bytes over those still to come."""
    config = layout.config
    assert config.sync is not None
    parts = min(replica_delays(config.sync, config.replicas))
    struct = inbox_struct(layout.recipe, layout.fragments[fragment].kind, parts)

    def gather(codes: wire.Rows) -> jax.Array:
        inbox = jnp.zeros(struct.shape, struct.dtype)
        for part in range(parts):
            inbox = wire.move(codes, inbox, jnp.int32(part), parts, layout.mesh)
        return inbox

    return jax.jit(gather, out_shardings=struct.sharding)(codes)
