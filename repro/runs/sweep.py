"""Runs the runs of an experiment on this machine: worker processes side by side. No JAX.

Each has the accelerators that its runs need, or a core: two processes of one core each beat one of two cores on models
this small. The parent holds no state
that matters: what is finished is what has a summary, so a sweep may be killed and started again, and sweeps
at once, here or on machines that share the folder, share the work: each worker leases the run it does.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repro.diloco.jax_settings import clean
from repro.errors import UnusableFile
from repro.files import is_bucket
from repro.machines.hardware import Hardware, cpu, training_environment
from repro.machines.seats import Part, check_workers, parts
from repro.pool import AGAIN, Pool
from repro.runs.folder import RunFolder
from repro.runs.leases import LEASE_S, Watch, check_lease
from repro.runs.progress import Board
from repro.runs.takeover import saved_steps
from repro.spec.experiment import PlannedRun, unique
from repro.spec.identity import config_text
from repro.words import last_line

WORKER = ("-m", "repro.runs.worker")


@dataclass(frozen=True)
class Crew:
    """Who works at a sweep, where, and how."""

    root: Path
    cache: Path
    workers: int
    lease_s: float = LEASE_S  # a worker's run is taken over when it gives no sign for so long
    retry_failed: bool = False
    hardware: Hardware = field(default_factory=cpu)

    def __post_init__(self) -> None:
        """UserError when this machine can't have so many workers, or a lease is no time."""
        check_workers(self.workers, self.hardware)
        check_lease(self.lease_s)

    @property
    def log(self) -> Path:
        """What the workers of this machine print."""
        return (self.cache if is_bucket(self.root) else self.root) / "workers.log"


@dataclass
class Outcome:
    """What became of a sweep."""

    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    crashed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False

    def add(self, other: "Outcome") -> None:
        """What became of the runs of another."""
        self.finished += other.finished
        self.failed |= other.failed
        self.crashed |= other.crashed
        self.interrupted |= other.interrupted


def pending_runs(runs: Iterable[PlannedRun], root: Path) -> tuple[PlannedRun, ...]:
    """The runs without a summary, each once, but for those that are `unusable`."""
    left_out = unusable(runs := unique(runs), root)
    return tuple(r for r in runs if r.run_id not in left_out and RunFolder(root, r.run_id).summary() is None)


def unusable(runs: Iterable[PlannedRun], root: Path) -> dict[str, str]:
    """Why the folders of some runs can't be used, by run: they hold another config, or what is damaged."""
    reasons = {}
    for run in runs:
        folder = RunFolder(root, run.run_id)
        try:
            if folder.check(run.config) and folder.summary() is None:
                folder.failure()
        except UnusableFile as error:
            reasons[run.run_id] = str(error)
    return reasons


def failed_before(runs: Iterable[PlannedRun], root: Path) -> Outcome:
    """Which runs an earlier sweep gave up, and why: they are tried again on request only."""
    outcome = Outcome()
    for run in runs:
        if (failure := RunFolder(root, run.run_id).failure()) is not None:
            kind = outcome.crashed if failure.get("crashed") else outcome.failed
            kind[run.run_id] = last_line(failure["reason"])
    return outcome


def sweep(runs: Iterable[PlannedRun], crew: Crew, *, title: str = "") -> Outcome:
    """Finish every run, some at a time; returns when all are done, failed, or a signal came."""
    outcome = Outcome()
    todo = parts(pending_runs(runs, crew.root), crew.hardware, crew.workers)
    if todo:
        crew.log.parent.mkdir(parents=True, exist_ok=True)
        with crew.log.open("a", encoding="utf-8") as log:
            for part in todo:
                if not outcome.interrupted:
                    outcome.add(_Pool(part, crew, log, title).outcome_of_all())
    return outcome


class _Pool(Pool):
    """The runs of one part, and what is shown of them."""

    def __init__(self, part: Part, crew: Crew, log: Any, title: str) -> None:
        words = ["--cache", str(crew.cache), "--root", str(crew.root), "--lease", str(crew.lease_s)]
        shared = environment(crew.hardware, smoke=all(run.config.scale == "smoke" for run in part.runs))
        super().__init__(
            {run.run_id: run for run in part.runs},
            (*WORKER, *words, "--memory", str(part.memory or 0)),
            [shared | seat for seat in part.seats],
            log,
        )
        self.outcome, self.crew, self.watch = Outcome(), crew, Watch()
        self.over: dict[int, int] = {}  # the lease that a worker was given its run after
        self.board = Board(part.runs, len(part.seats), title)

    def outcome_of_all(self) -> Outcome:
        """Do the runs."""
        with self.board:
            self.run()
        return self.outcome

    def stopping(self) -> None:
        again, self.outcome.interrupted = self.outcome.interrupted, True
        text = "stopping at once" if again else "stopping: each worker saves the step it is at (again to stop at once)"
        self.board.say(text)

    def request(self, index: int, name: str) -> dict[str, Any] | None:
        if self._folder(name).summary() is not None:
            self._finished(index, name)
        elif (over := self.watch.free(self._folder(name))) is None:
            self.put_off(name)
        else:
            self.over[index] = over
            self.board.update(index, self.jobs[name], {"stage": "starting", "step": 0})
            config = json.loads(config_text(self.jobs[name].config))
            return {"run_id": name, "config": config, "over": over, "retry": self.crew.retry_failed}
        return None

    def heard(self, index: int, name: str, message: dict[str, Any]) -> None:
        self.board.update(index, self.jobs[name], message)

    def ended(self, index: int, name: str, message: dict[str, Any]) -> None:
        if message["ended"] == "finished":
            self._finished(index, name)
        elif message["ended"] in AGAIN:
            self.idle(index, message.get("reason") or f"{name} is being run by another process")
        else:
            self._failed(index, name, last_line(message["reason"]), crashed=message["ended"] == "crashed")

    def idle(self, index: int, text: str) -> None:
        self.board.idle(index, text)

    def reached(self, name: str) -> int:
        return max(saved_steps(self._folder(name).home), default=0)

    def gave_up(self, index: int, name: str, reason: str) -> None:
        reason += f": see {self.crew.log}"
        if name in self.deaths and self.watch.free(self._folder(name)) is not None:
            self._folder(name).write_failure(reason, crashed=True)
        self._failed(index, name, reason, crashed=True)

    def look(self) -> None:
        """A worker of this pool that was stopped with its lease: the others need not wait for it."""
        self.board.tick()
        for index, name in self.current.items():
            number = self.watch.free(self._folder(name)) or 0
            if number > self.over[index] and self._folder(name).summary() is None:
                self.put_off(name)

    def _finished(self, index: int, name: str) -> None:
        if name not in self.outcome.finished:
            self.outcome.finished.append(name)
            self.board.finished(index, self.jobs[name], self._folder(name).summary() or {})

    def _failed(self, index: int, name: str, reason: str, *, crashed: bool) -> None:
        kind = self.outcome.crashed if crashed else self.outcome.failed
        kind[name] = reason
        self.board.failed(index, self.jobs[name], reason)

    def _folder(self, name: str) -> RunFolder:
        return RunFolder(self.crew.root, name)


def environment(hardware: Hardware, *, smoke: bool) -> dict[str, str]:
    """The environment of a process that trains here. UserError for a flag of XLA that may change numbers."""
    return training_environment(hardware, clean(os.environ), smoke=smoke)


def corpora(runs: Iterable[PlannedRun]) -> set[tuple[str, int]]:
    """(corpus, vocabulary) pairs that the runs read."""
    return {(run.config.corpus, run.config.model.vocab) for run in runs}
