"""The one training loop: every method, every scale. It owns the I/O; the mathematics is in `diloco`.

The host asks the schedule what a step does, hands the step to the device, and only then reads the loss
of the step before it, so that the device never waits. A run can be cut anywhere: it goes on from its
last checkpoint, and ends with the same bits as an uncut run on the same layout.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from repro.corpus.tokens import Batches, TokenSet
from repro.diloco.jax_settings import in_force, pin
from repro.diloco.mesh import batch_sharding
from repro.diloco.optim import learning_rate
from repro.diloco.resources import Resources
from repro.errors import Interrupted, UserError
from repro.spec.config import RunConfig
from repro.spec.shapes import parameter_count
from repro.spec.validation import declared_windows, validation_id, validation_interval
from repro.training import processes, similarity
from repro.training.checkpoint import Checkpoints
from repro.training.metrics import MetricsLog, UnwrittenLog
from repro.training.scored import compile_flush
from repro.training.state import Layout, TrainState, start
from repro.training.step import BLOCK, Stepper, Sync
from repro.training.timing import Timing
from repro.training.validate import Validator

Report = Callable[[dict[str, Any]], None]
Note = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Pace:
    """How often the loop saves, validates and reports: it changes no number."""

    checkpoint_every: int  # steps
    validate_every: int  # steps; after the last step too
    report_seconds: float = 0.5
    log_every: int = 20  # steps between two moments at which several processes tell each other losses and stop signs

    @classmethod
    def of(cls, config: RunConfig) -> "Pace":
        """Eight checkpoints a run, six steps apart at least, and the validations of its scale."""
        return cls(max(6, config.steps // 8), validation_interval(config))


class Written(Protocol):
    """Where a run writes: its id, and the folders of its checkpoints and logs."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    @property
    def checkpoints(self) -> Path:
        """Checkpoints, one folder a step."""
        ...

    @property
    def metrics(self) -> Path:
        """Parquet parts with a row a step."""
        ...

    @property
    def syncs(self) -> Path:
        """Parquet parts with a row an outer gradient."""
        ...


@dataclass
class _Fetched:
    """The device's answer for one step, or for `count` steps of one call, not read yet."""

    step: int  # the last
    loss: jax.Array  # (M,), or (count or more, M)
    applied: dict[int, Sync]
    count: int = 0  # 0: a call that is a step
    seconds: float = 0.0  # since the start, when it was there
    before: float = 0.0  # the same of the answer before it

    def steps(self) -> list[tuple[int, float]]:
        """(step, seconds since the start) of each: the steps of one call share its time."""
        count = self.count or 1
        share = (self.seconds - self.before) / count
        return [(self.step - k, self.seconds - k * share) for k in reversed(range(count))]


def train(
    config: RunConfig,
    resources: Resources,
    paths: Written,
    tokens: TokenSet,
    held_out: TokenSet,
    *,
    pace: Pace | None = None,
    report: Report = lambda _: None,
    note: Note = lambda _: None,
    fell_back: Callable[[int], None] = lambda _: None,
    begun: Callable[[], None] = lambda: None,
    stop_asked: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Train to the end, from the newest sound checkpoint if there is one, and return the summary.

    `note` takes what belongs in the provenance: JAX's settings, damaged checkpoints, how long the start and the saves
    took; `fell_back` the step gone on from where newer checkpoints were damaged. `begun` is called before the first
    step: from then on something can be lost. Raises UserError for a run that can't start, can't be saved or whose loss
    or outer gradient stops being finite, and Interrupted when `stop_asked` says so, with the state saved: it is asked
    before each program, each step and each batch of a validation.
    """
    pin()
    note({"settings": in_force()})
    timing = Timing()
    layout = Layout.of(config, resources)
    check_vocabulary(config, tokens)
    # Example i of replica r has one global index, so a device's share of the batch is itself a replica of smaller ones.
    shares = config.replicas * resources.shares
    batches = Batches(tokens, config.model.seq_len, config.batch, shares, config.seed, repeat=config.repeat_data)
    batches.require(config.steps)
    checkpoints = Checkpoints(paths.checkpoints)
    try:
        loop = _Loop(
            layout, paths, batches, held_out, checkpoints, pace or Pace.of(config), report, timing, note, fell_back
        )
        return loop.run(begun, stop_asked)
    finally:
        try:
            with timing.of("saving"):
                checkpoints.close()
        finally:
            note(timing.facts())


def check_vocabulary(config: RunConfig, tokens: TokenSet) -> None:
    """UserError when the prepared tokens don't fit the model."""
    if tokens.tokenizer.vocab > config.model.vocab:
        raise UserError(
            f"{tokens.folder} has a vocabulary of {tokens.tokenizer.vocab} and the model {config.model.vocab}: "
            "prepare the corpus with the model's vocabulary."
        )


class _Loop:
    """One attempt at one run."""

    def __init__(
        self,
        layout: Layout,
        paths: Written,
        batches: Batches,
        held_out: TokenSet,
        checkpoints: Checkpoints,
        pace: Pace,
        report: Report,
        timing: Timing | None = None,
        note: Note = lambda _: None,
        fell_back: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.layout, self.paths, self.batches, self.checkpoints = layout, paths, batches, checkpoints
        self.fell_back = fell_back
        self.pace, self.report, self.timing, self.note = pace, report, timing or Timing(), note
        self.windows = declared_windows(layout.config.scale, layout.config.model.seq_len)
        self.stepper, self.validator = Stepper(layout), Validator(layout, held_out, self.windows)

    def run(self, begun: Callable[[], None], stop_asked: Callable[[], bool]) -> dict[str, Any]:
        config, self.stop_asked, self.looks = self.layout.config, stop_asked, 0
        self.processor_started = time.process_time()  # compilation counts: it is part of what a run costs
        self.report({"stage": "restoring", "step": max(self.checkpoints.steps(), default=0)})
        with self.timing.of("restore"):
            state = self._first_state()
        log = MetricsLog if processes.is_first() else UnwrittenLog
        self.log, self.syncs = log(self.paths.metrics, state.step), log(self.paths.syncs, state.step)
        self.unlogged: list[_Fetched] = []
        with self.timing.of("programs"):
            self._compile(state.step)
            self.checkpoints.prepare(state)
        self._leave_if_asked(state.step)
        begun()
        self.timing.loop_begins()
        self.started, self.first_step, self.reported, self.arrived = time.monotonic(), state.step, 0.0, 0.0
        self._catch_up(state)
        pending: _Fetched | None = None
        while state.step < config.steps:
            fetched = self._advance(state)
            if pending:
                self._arrived(pending)
            pending, step = fetched, state.step
            validate = self._is_validated(step)
            talk = processes.alone() or step % self.pace.log_every == 0
            stop = self._stop()
            save = step % self.pace.checkpoint_every == 0 or step == config.steps
            if validate or save or stop:
                self._arrived(pending)
                pending = None
                row = self._log()
                stop = stop or (validate and not self._validated(state, row))
                if save or stop:
                    self._save(state)
            elif talk and self.unlogged:
                self._log()
            if stop:
                raise self._interrupted(step)
        return self._summary(state)

    def _advance(self, state: TrainState) -> _Fetched:
        """Hand the next step to the device, or several up to where something is due on the host."""
        step, every = state.step, self.pace.checkpoint_every
        due = min(step - step % each + each for each in (every, self.pace.validate_every))
        count = self.stepper.free(step, min(due, self.layout.config.steps))
        if not count:
            loss, applied = self.stepper(state, self._tokens(step + 1))
            return _Fetched(state.step, loss, applied)
        loss = self.stepper.block(state, self._block(step, count), count)
        return _Fetched(state.step, loss, {}, count)

    def _stop(self) -> bool:
        """Whether to stop here, in all processes; each comes to the same looks in the same order."""
        self.looks += 1
        return processes.stop_at(self.looks, self.stop_asked())

    def _leave_if_asked(self, step: int) -> None:
        """Interrupted where nothing is unsaved since `step`."""
        if self._stop():
            raise self._interrupted(step)

    def _interrupted(self, step: int) -> Interrupted:
        steps = self.layout.config.steps
        return Interrupted(f"{self.paths.run_id} stopped after step {step} of {steps}; it is saved.")

    def _first_state(self) -> TrainState:
        """The newest sound checkpoint, or step 0."""
        warnings: list[str] = []
        state = self.checkpoints.newest(self.layout, warnings.append)
        for text in warnings:
            self.report({"stage": "restoring", "step": state.step if state else 0, "warning": text})
        if warnings:
            self.note({"warnings": warnings})
            if state:
                self.fell_back(state.step)
        return state or start(self.layout)

    def _compile(self, step: int) -> None:
        keys = list(self.stepper.programs(step + 1, self.layout.config.steps))
        for done, key in enumerate(keys):
            self.report({"stage": f"compiling {done + 1}/{len(keys)}", "step": step})
            self._leave_if_asked(step)
            self.stepper.compile(key)
        compile_flush(self.layout)

    def _tokens(self, step: int) -> jax.Array:
        config, spread = self.layout.config, self.layout.resources.shares
        rows = config.batch // config.replicas
        shape = config.replicas, rows, config.model.seq_len + 1

        def block(index: processes.Index) -> np.ndarray:
            share = (index[1].start or 0) * spread // rows
            replicas = range(*index[0].indices(config.replicas))
            return np.stack([self.batches.batch(step - 1, r * spread + share) for r in replicas])

        return processes.placed(shape, batch_sharding(self.layout.mesh), block)

    def _block(self, step: int, count: int) -> np.ndarray:
        """Tokens of the `count` steps after `step` for one device, int32 (BLOCK, M, B/M, S+1)."""
        config = self.layout.config
        rows = config.batch // config.replicas
        block = np.zeros((BLOCK, config.replicas, rows, config.model.seq_len + 1), np.int32)
        for k in range(count):
            for m in range(config.replicas):
                block[k, m] = self.batches.batch(step + k, m)
        return block

    def _arrived(self, fetched: _Fetched) -> None:
        """Wait for a step; UserError when a gradient that all processes have seen ends the run."""
        step = fetched.step
        for p, sync in fetched.applied.items():
            if not bool(sync.finite):
                raise UserError(
                    f"the outer gradient of fragment {p} ({self._fragment_name(p)}) applied at step {step} is not "
                    "finite: it was not applied; lower the learning rate, or look at the curve in metrics/."
                )
            products = {group: np.asarray(g) for group, g in sync.gram.items()}
            for record in similarity.similarity_rows(step, sync.taken, p, self.layout.fragments[p], products):
                self.syncs.add(record)
        fetched.loss.block_until_ready()
        fetched.before, self.arrived = self.arrived, time.monotonic() - self.started
        fetched.seconds = self.arrived
        if step - (fetched.count or 1) == self.first_step:
            self.report({"stage": "first step", "step": step, "start_s": self.timing.first_step_is_there()})
        self.unlogged.append(fetched)

    def _log(self) -> dict[str, Any]:
        """Log the steps that have arrived, and return the last row; UserError when a loss ends the run."""
        steps = [step for fetched in self.unlogged for step in fetched.steps()]
        for (step, seconds), losses in zip(steps, self._losses(), strict=True):
            row = self._row(step, seconds, losses)
            self.log.add(row)
            self._report(step, float(losses.mean()))
        self.unlogged = []
        return row

    def _losses(self) -> np.ndarray:
        """(steps, M) of those that have arrived."""
        if any(fetched.count for fetched in self.unlogged):  # all on one device
            return np.concatenate([np.atleast_2d(f.loss)[: f.count or 1] for f in self.unlogged])
        return processes.rows_on_host([fetched.loss for fetched in self.unlogged])

    def _row(self, step: int, seconds: float, losses: np.ndarray) -> dict[str, Any]:
        config = self.layout.config
        if not np.isfinite(losses).all():
            raise UserError(f"the loss of step {step} is {losses.tolist()}: lower the learning rate.")
        row = {"step": step, "learning_rate": learning_rate(config.inner, step, config.steps)}
        row |= {f"loss_{m}": float(x) for m, x in enumerate(losses)}
        return row | {"seconds": seconds, "validation_loss": None}

    def _fragment_name(self, p: int) -> str:
        fragment = self.layout.fragments[p]
        layers = f"layers {', '.join(map(str, fragment.layers))}" if fragment.layers else ""
        return " and ".join(filter(None, [layers, "embedding" if fragment.embed else ""]))

    def _report(self, step: int, loss: float) -> None:
        now = time.monotonic()
        if now - self.reported < self.pace.report_seconds and step < self.layout.config.steps:
            return
        self.reported = now
        config = self.layout.config
        rate = (step - self.first_step) / max(now - self.started, 1e-9)
        tokens_per_s = rate * config.batch * config.model.seq_len
        self.report({"stage": "training", "step": step, "loss": loss, "tokens_per_s": tokens_per_s})

    def _catch_up(self, state: TrainState) -> None:
        """Make the validation of the step restored, if the run was asked to stop in it."""
        row = self.log.reopen(state.step, "validation_loss") if self._is_validated(state.step) else None
        if processes.any_of(row is not None):
            if not self._validated(state, row or {}):
                raise self._interrupted(state.step)
            self.log.close_part(state.step)

    def _is_validated(self, step: int) -> bool:
        return step > 0 and (step % self.pace.validate_every == 0 or step == self.layout.config.steps)

    def _validated(self, state: TrainState, row: dict[str, Any]) -> bool:
        """Whether the validation loss is in the row; False when the run was asked to stop meanwhile."""
        self.report({"stage": "validating", "step": state.step})
        try:
            row["validation_loss"] = self.validator.losses(state, look=lambda: self._leave_if_asked(state.step))
        except Interrupted:
            return False
        return True

    def _save(self, state: TrainState) -> None:
        self.report({"stage": "saving", "step": state.step})
        self.log.close_part(state.step)
        self.syncs.close_part(state.step)
        with self.timing.of("saving"):
            self.checkpoints.save(state)

    def _summary(self, state: TrainState) -> dict[str, Any]:
        config = self.layout.config
        losses = {w: self._last_loss(state, w) for w in self._parameter_kinds()}
        loss = losses["outer"]
        if not math.isfinite(loss):
            raise UserError(f"the validation loss after step {state.step} is {loss}: lower the learning rate.")
        seconds = time.monotonic() - self.started
        steps = state.step - self.first_step
        return {
            "run_id": self.paths.run_id,
            "steps": state.step,
            "tokens": config.tokens,
            "flops": config.flops,
            "params_by_rule": config.model.params_by_rule,
            "params": parameter_count(config.model),
            "validations": {validation_id(w, self.windows): self.validator.record(x) for w, x in losses.items()},
            "in_domain": list(self.batches.tokens.in_domain),
            "seconds": seconds,
            "processor_seconds": time.process_time() - self.processor_started if self.first_step == 0 else None,
            "tokens_per_s": steps * config.batch * config.model.seq_len / max(seconds, 1e-9),
        }

    def _last_loss(self, state: TrainState, which: str) -> float:
        self.report({"stage": "validating", "step": state.step})
        return self.validator.losses(state, which, look=lambda: self._leave_if_asked(state.step))

    def _parameter_kinds(self) -> tuple[str, ...]:
        return ("outer", "first", "average") if self.layout.config.sync else ("outer",)
