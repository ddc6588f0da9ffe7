"""Runs the runs of an experiment on this machine: worker processes side by side. No JAX.

Each has the accelerators that its runs need, or a core: two processes of one core each beat one of two cores on models
this small. The parent holds no state
that matters: what is finished is what has a summary, so a sweep may be killed and started again, and sweeps
at once, here or on machines that share the folder, share the work: each worker leases the run it does.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repro.cores import cores
from repro.diloco.jax_settings import clean
from repro.errors import EXIT_INTERRUPTED, UnusableFile
from repro.files import is_bucket
from repro.machines.hardware import Hardware, cpu, training_environment
from repro.machines.seats import Part, check_workers, parts
from repro.runs.folder import RunFolder
from repro.runs.leases import LEASE_S, Watch, check_lease
from repro.runs.progress import Board
from repro.runs.takeover import saved_steps
from repro.spec.experiment import PlannedRun, unique
from repro.spec.identity import config_text

BUSY_WAIT = 2.0  # seconds before a run that another sweep holds is looked at again
DEATHS = 3  # workers that may die at a run between two checkpoints before it counts as their cause
WORKER = ("-m", "repro.runs.worker")
LOOK_SECONDS = 0.5
ENDINGS = {"finished", "failed", "crashed", "busy", "lost", "interrupted"}


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
        """What workers write to standard error, of this machine."""
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


def pending(runs: Iterable[PlannedRun], root: Path) -> tuple[PlannedRun, ...]:
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
            kind[run.run_id] = failure["reason"].strip().splitlines()[-1]
    return outcome


def sweep(runs: Iterable[PlannedRun], crew: Crew, *, title: str = "") -> Outcome:
    """Finish every run, some at a time; returns when all are done, failed, or a signal came."""
    outcome = Outcome()
    todo = parts(pending(runs, crew.root), crew.hardware, crew.workers)
    if todo:
        crew.log.parent.mkdir(parents=True, exist_ok=True)
        with crew.log.open("a", encoding="utf-8") as log:
            for part in todo:
                if not outcome.interrupted:
                    outcome.add(_Pool(part, crew, log, title).run())
    return outcome


class _Pool:
    """The worker processes and the queue of runs."""

    def __init__(self, part: Part, crew: Crew, log: Any, title: str) -> None:
        self.waiting = deque(part.runs)
        self.later: deque[tuple[float, PlannedRun]] = deque()  # held by others, with when to look again
        self.messages: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()
        self.current: dict[int, PlannedRun] = {}
        self.over: dict[int, int] = {}  # the lease that a worker was given its run after
        self.ready: set[int] = set()  # workers that listen
        self.deaths: dict[str, tuple[int, int]] = {}  # run -> workers that died at it since it came to a step, step
        self.outcome, self.crew, self.log, self.watch = Outcome(), crew, log, Watch()
        count = len(part.seats)
        self.environment = environment(crew.hardware, smoke=all(run.config.scale == "smoke" for run in part.runs))
        self.part, self.cores = part, [cores()[i::count] for i in range(count)]
        self.workers = [self._start(i) for i in range(count)]
        self.board = Board(part.runs, count, title)
        self.looked = time.monotonic()
        self.false_starts = 0  # workers in a row that ended before they were ready

    def _start(self, index: int) -> subprocess.Popen:
        share, crew = ",".join(map(str, self.cores[index])), self.crew
        words = ["--cores", share, "--cache", str(crew.cache), "--root", str(crew.root), "--lease", str(crew.lease_s)]
        words += ["--memory", str(self.part.memory or 0)]
        # Its own group, so that a Ctrl-C reaches the parent alone, which asks each worker once.
        worker = subprocess.Popen(
            [sys.executable, *WORKER, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            encoding="utf-8",
            start_new_session=True,
            env=self.environment | self.part.seats[index],
        )
        threading.Thread(target=self._listen, args=(index, worker), daemon=True).start()
        return worker

    def _listen(self, index: int, worker: subprocess.Popen) -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            if line.endswith("\n"):  # the last words of a killed one may be cut
                self.messages.put((index, json.loads(line)))
        self.messages.put((index, None))

    def run(self) -> Outcome:
        handlers = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
        alive = set(range(len(self.workers)))
        try:
            with self.board:
                while alive:
                    with contextlib.suppress(queue.Empty):
                        index, message = self.messages.get(timeout=LOOK_SECONDS)
                        if message is not None:
                            self._handle(index, message)
                        elif not self._lost(index):
                            alive.discard(index)
                    self._look(alive)
                self._give_up()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return self.outcome

    def _on_signal(self, *_: Any) -> None:
        """First signal: ask the workers to save and stop; the second kills them, with what they saved before."""
        again, self.outcome.interrupted = self.outcome.interrupted, True
        self.waiting.clear()
        self.later.clear()
        text = "stopping at once" if again else "stopping: each worker saves the step it is at (again to stop at once)"
        self.board.say(text)
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGKILL if again else signal.SIGTERM)
                worker.send_signal(signal.SIGCONT)  # to one that is stopped too
                _close(worker)

    def _handle(self, index: int, message: dict[str, Any]) -> None:
        run = self.current.get(index)
        if "ready" in message:
            self.false_starts = 0
            self.ready.add(index)
            self._next(index)
        elif run is not None and message.keys() & ENDINGS:
            del self.current[index]
            self._ended(index, run, message)
        elif run is not None:
            self.board.update(index, run, message)

    def _ended(self, index: int, run: PlannedRun, message: dict[str, Any]) -> None:
        if "finished" in message:
            self._finished(index, run)
        elif "busy" in message or "lost" in message:
            self._put_off(run)
            self.board.idle(index, message.get("lost") or f"{run.run_id} is being run by another process")
        elif "interrupted" in message:
            self.board.idle(index, message["interrupted"])
            return
        else:
            self._failed(index, run, message["reason"], crashed="crashed" in message)
        self._next(index)

    def _finished(self, index: int, run: PlannedRun) -> None:
        if run.run_id not in self.outcome.finished:
            self.outcome.finished.append(run.run_id)
            self.board.finished(index, run, self._folder(run).summary() or {})

    def _failed(self, index: int, run: PlannedRun, reason: str, *, crashed: bool) -> None:
        kind = self.outcome.crashed if crashed else self.outcome.failed
        kind[run.run_id] = reason
        self.board.failed(index, run, reason)

    def _put_off(self, run: PlannedRun) -> None:
        if not self.outcome.interrupted and all(run is not other for _, other in self.later):
            self.later.append((time.monotonic() + BUSY_WAIT, run))

    def _next(self, index: int) -> None:
        """Give the worker a run that is free; close its input when there is nothing left, now or later."""
        while self.later and self.later[0][0] <= time.monotonic():
            self.waiting.append(self.later.popleft()[1])
        while self.waiting:
            run = self.waiting.popleft()
            if self._folder(run).summary() is not None:
                self._finished(index, run)
            elif (over := self.watch.free(self._folder(run))) is None:
                self._put_off(run)
            else:
                self.current[index], self.over[index] = run, over
                self.board.update(index, run, {"stage": "starting", "step": 0})
                request = {"run_id": run.run_id, "config": json.loads(config_text(run.config))}
                _send(self.workers[index], {**request, "over": over, "retry": self.crew.retry_failed})
                return
        if not self.later and not self.current:
            for worker in self.workers:
                _close(worker)

    def _look(self, alive: set[int]) -> None:
        """Now and then: whether a worker stands still, and whether what others held is free."""
        if time.monotonic() - self.looked < LOOK_SECONDS:
            return
        self.looked = time.monotonic()
        self.board.tick()
        for index, run in self.current.items():
            # A worker of this pool that was stopped with its lease: the others need not wait for it.
            number = self.watch.free(self._folder(run)) or 0
            if number > self.over[index] and self._folder(run).summary() is None:
                self._put_off(run)
        for index in sorted((alive & self.ready) - set(self.current)):
            if not self.outcome.interrupted:
                self._next(index)

    def _lost(self, index: int) -> bool:
        """A worker ended. Another is started in its place, and its run goes on; False when there is nothing left."""
        code = self.workers[index].wait()
        self.ready.discard(index)
        run = self.current.pop(index, None)
        if self.outcome.interrupted:
            return False
        if run is not None:
            self._died(index, run, code)
        elif self.waiting or self.later:
            self.false_starts += 1
        if self.false_starts >= DEATHS or not (self.waiting or self.later):
            return False
        self.workers[index] = self._start(index)
        return True

    def _give_up(self) -> None:
        """What is left when no worker can be started."""
        for run in [*self.waiting, *(run for _, run in self.later)]:
            self._failed(0, run, f"no worker could be started: see {self.crew.log}", crashed=True)

    def _died(self, index: int, run: PlannedRun, code: int) -> None:
        folder = self._folder(run)
        reached = max(saved_steps(folder.home), default=0)
        count, step = self.deaths.get(run.run_id, (0, reached))
        count = count + 1 if step == reached else 1
        self.deaths[run.run_id] = count, reached
        if count < DEATHS:
            self.waiting.appendleft(run)
            self.board.idle(index, f"{run.run_id} goes on in a new worker: its last one {_ending(code)}")
            return
        reason = f"{count} workers ended with it before another checkpoint, the last {_ending(code)}"
        reason += f": see {self.crew.log}"
        if self.watch.free(folder) is not None:
            folder.write_failure(reason, crashed=True)
        self._failed(index, run, reason, crashed=True)

    def _folder(self, run: PlannedRun) -> RunFolder:
        return RunFolder(self.crew.root, run.run_id)


def _ending(code: int) -> str:
    """How a worker ended that told nothing: a stop that it was asked for it tells."""
    return "stood still" if code == EXIT_INTERRUPTED else f"ended with exit code {code}"


def _close(worker: subprocess.Popen) -> None:
    """Tell a worker that there is nothing left for it."""
    if worker.stdin and not worker.stdin.closed:
        with contextlib.suppress(BrokenPipeError):
            worker.stdin.close()


def _send(worker: subprocess.Popen, message: dict[str, Any]) -> None:
    assert worker.stdin is not None
    try:
        worker.stdin.write(json.dumps(message) + "\n")
        worker.stdin.flush()
    except BrokenPipeError:
        pass  # the listener reports the end of the worker


def environment(hardware: Hardware, *, smoke: bool) -> dict[str, str]:
    """Of a process that trains here. UserError for a flag of XLA that may change numbers."""
    return training_environment(hardware, clean(os.environ), smoke=smoke)


def corpora(runs: Iterable[PlannedRun]) -> set[tuple[str, int]]:
    """(corpus, vocabulary) pairs that the runs read."""
    return {(run.config.corpus, run.config.model.vocab) for run in runs}
