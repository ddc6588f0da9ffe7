"""Exact resume: the whole state of a run at a step, by orbax, asynchronous and atomic.

A checkpoint is a pure function of (config, step), whatever the resources: codes in flight are stored as
rows, not as some layout's packed bytes. What of them had arrived is gathered again on restore, which
gives the same inbox, since every replica's codes are in the checkpoint.
"""

import logging
from pathlib import Path

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from repro import wire
from repro.errors import UserError
from repro.schedule import replica_delays
from repro.state import Layout, TrainState

logging.getLogger("absl").setLevel(logging.ERROR)


class Checkpoints:
    """The newest checkpoints of one run."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep, cleanup_tmp_directories=True, enable_async_checkpointing=True
        )
        self._manager = ocp.CheckpointManager(folder.resolve(), options=options)

    def steps(self) -> list[int]:
        """Steps that can be restored, ascending."""
        return sorted(self._manager.all_steps())

    def save(self, state: TrainState) -> None:
        """Start saving; the state may be donated again when this returns."""
        flight = {str(p): entry["codes"] for p, entry in state.flight.items()}
        tree = {"params": state.params, "adam": state.adam, "outer": state.outer, "codes": flight}
        self._manager.save(state.step, args=ocp.args.StandardSave(tree))

    def restore(self, layout: Layout, step: int) -> TrainState:
        """The state after `step` steps on this layout, which may differ from the one that saved it."""
        params, adam = layout.replica_structs()
        outer = [
            {"params": layout.outer_struct(f.kind), "momentum": layout.outer_struct(f.kind)} for f in layout.fragments
        ]
        codes = {str(p): layout.codes_struct(layout.fragments[p].kind) for p in layout.in_flight(step)}
        abstract = {"params": params, "adam": adam, "outer": outer, "codes": codes}
        try:
            tree = self._manager.restore(step, args=ocp.args.StandardRestore(abstract))
        except (ValueError, OSError, KeyError) as error:
            raise UserError(
                f"the checkpoint of step {step} can't be restored ({str(error).splitlines()[0]}): "
                "delete its folder to go on from the one before."
            ) from error
        flight = {int(p): {"codes": rows, "inbox": _arrived(layout, int(p), rows)} for p, rows in tree["codes"].items()}
        return TrainState(step, tree["params"], tree["adam"], list(tree["outer"]), flight)

    def close(self) -> None:
        """Wait until what was started is on disk."""
        self._manager.wait_until_finished()
        self._manager.close()


def _arrived(layout: Layout, fragment: int, codes: wire.Rows) -> jax.Array:
    """The inbox with every part in it: later programs write the same bytes over those still to come."""
    config = layout.config
    assert config.sync is not None
    parts = min(replica_delays(config.sync, config.replicas))
    struct = layout.inbox_struct(layout.fragments[fragment].kind, parts)

    def gather(codes: wire.Rows) -> jax.Array:
        inbox = jnp.zeros(struct.shape, struct.dtype)
        for part in range(parts):
            inbox = wire.move(codes, inbox, jnp.int32(part), parts, layout.mesh)
        return inbox

    return jax.jit(gather, out_shardings=struct.sharding)(codes)


def restored_or_none(checkpoints: Checkpoints, layout: Layout) -> TrainState | None:
    """The newest state, or None when nothing was saved yet."""
    steps = checkpoints.steps()
    return checkpoints.restore(layout, steps[-1]) if steps else None
