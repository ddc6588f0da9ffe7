"""Runs the runs of an experiment on this machine: one worker process a core, side by side. No JAX.

Two processes of one core each beat one of two cores on models this small. The parent holds no state
that matters: what is finished is what has a summary, so a sweep may be killed and started again, and two
sweeps at once share the work (a run's folder is held by one of them).
"""

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

from repro.errors import UserError
from repro.experiment import PlannedRun, unique
from repro.identity import config_text
from repro.progress import Board
from repro.store import RunFolder

EXIT_INTERRUPTED = 42
# XLA on CPU allocates its temporaries anew each step. Kept by the process, they cost no page faults: a third of a step.
# Read by the C library when a process starts, so the parent sets them.
ALLOCATOR = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
    "MALLOC_TOP_PAD_": "200000000",
}
BUSY_WAIT = 2.0  # seconds before a run that another sweep holds is looked at again


@dataclass
class Outcome:
    """What became of a sweep."""

    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    crashed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def pending(runs: Iterable[PlannedRun], root: Path) -> tuple[PlannedRun, ...]:
    """The runs without a summary, each once; UserError when a folder holds another config than its name says."""
    todo = []
    for run in unique(runs):
        folder = RunFolder(root, run.run_id)
        folder.check(run.config)
        if folder.summary() is None:
            todo.append(run)
    return tuple(todo)


def sweep(runs: Iterable[PlannedRun], root: Path, cache: Path, workers: int, *, title: str = "") -> Outcome:
    """Finish every run, `workers` at a time; returns when all are done, failed, or a signal came."""
    todo = pending(runs, root)
    if not todo:
        return Outcome()
    cores = sorted(os.sched_getaffinity(0))
    if not 1 <= workers <= len(cores):
        raise UserError(f"workers={workers}: this machine offers {len(cores)} cores, choose 1 to {len(cores)}.")
    root.mkdir(parents=True, exist_ok=True)
    log = (root / "workers.log").open("a")
    pool = _Pool(todo, root, cache, min(workers, len(todo)), cores, log, title)
    with log:
        return pool.run()


class _Pool:
    """The worker processes and the queue of runs."""

    def __init__(
        self,
        todo: tuple[PlannedRun, ...],
        root: Path,
        cache: Path,
        workers: int,
        cores: list[int],
        log: Any,
        title: str,
    ) -> None:
        self.waiting = deque(todo)
        self.messages: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()
        self.current: dict[int, PlannedRun] = {}
        self.outcome = Outcome()
        self.root = root
        share = [cores[i::workers] for i in range(workers)]
        self.workers = [self._start(i, share[i], cache, log) for i in range(workers)]
        self.board = Board(todo, workers, title)
        self.retry_at: deque[tuple[float, PlannedRun]] = deque()

    def _start(self, index: int, cores: list[int], cache: Path, log: Any) -> subprocess.Popen:
        words = ["--cores", ",".join(map(str, cores)), "--cache", str(cache), "--root", str(self.root)]
        command = [sys.executable, "-m", "repro.worker", *words]
        environment = {**os.environ, **ALLOCATOR, "JAX_PLATFORMS": "cpu"}
        # Its own group, so that a Ctrl-C reaches the parent alone, which asks each worker once.
        worker = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            env=environment,
        )
        threading.Thread(target=self._listen, args=(index, worker), daemon=True).start()
        return worker

    def _listen(self, index: int, worker: subprocess.Popen) -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            self.messages.put((index, json.loads(line)))
        self.messages.put((index, None))

    def run(self) -> Outcome:
        handlers = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
        alive = set(range(len(self.workers)))
        try:
            with self.board:
                while alive:
                    try:
                        index, message = self.messages.get(timeout=0.5)
                    except queue.Empty:
                        self._wake_idle(alive)
                        continue
                    if message is None:
                        alive.discard(index)
                        self._lost(index)
                    else:
                        self._handle(index, message)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return self.outcome

    def _on_signal(self, *_: Any) -> None:
        """First signal: ask the workers to save and stop. A second one reaches them as a kill."""
        self.outcome.interrupted = True
        self.waiting.clear()
        self.board.say("stopping: each worker saves the step it is at (again to stop at once)")
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGTERM)
                if worker.stdin and not worker.stdin.closed:
                    worker.stdin.close()

    def _handle(self, index: int, message: dict[str, Any]) -> None:
        run = self.current.get(index)
        if "ready" in message:
            self._next(index)
        elif run is not None and message.keys() & {"finished", "failed", "crashed", "busy", "interrupted"}:
            del self.current[index]
            self._ended(index, run, message)
        elif run is not None:
            self.board.update(index, run, message)

    def _ended(self, index: int, run: PlannedRun, message: dict[str, Any]) -> None:
        if "finished" in message:
            self.outcome.finished.append(run.run_id)
            self.board.finished(index, run, RunFolder(self.root, run.run_id).summary() or {})
        elif "busy" in message:
            self.retry_at.append((time.monotonic() + BUSY_WAIT, run))
            self.board.idle(index, f"{run.run_id} is being run by another process")
        elif "interrupted" in message:
            self.board.idle(index, message["interrupted"])
            return
        else:
            kind = "failed" if "failed" in message else "crashed"
            getattr(self.outcome, kind)[run.run_id] = message["reason"]
            self.board.failed(index, run, message["reason"])
        self._next(index)

    def _next(self, index: int) -> None:
        """Give the worker a run; close its input when there is nothing left, now or later."""
        worker = self.workers[index]
        now = time.monotonic()
        if not self.waiting and self.retry_at and self.retry_at[0][0] <= now:
            self.waiting.append(self.retry_at.popleft()[1])
        if self.waiting:
            run = self.waiting.popleft()
            self.current[index] = run
            self.board.update(index, run, {"stage": "starting", "step": 0})
            _send(worker, {"run_id": run.run_id, "config": json.loads(config_text(run.config))})
        elif not self.retry_at and worker.stdin and not worker.stdin.closed:
            worker.stdin.close()

    def _wake_idle(self, alive: set[int]) -> None:
        self.board.tick()
        for index in alive - set(self.current):
            if self.retry_at and not self.outcome.interrupted:
                self._next(index)

    def _lost(self, index: int) -> None:
        """A worker ended; if it held a run, the run says so and can be started again."""
        code = self.workers[index].wait()
        run = self.current.pop(index, None)
        if run is not None and not self.outcome.interrupted:
            reason = f"its worker ended with exit code {code}: see {self.root / 'workers.log'}"
            self.outcome.crashed[run.run_id] = reason
            self.board.failed(index, run, reason)


def _send(worker: subprocess.Popen, message: dict[str, Any]) -> None:
    assert worker.stdin is not None
    try:
        worker.stdin.write(json.dumps(message) + "\n")
        worker.stdin.flush()
    except BrokenPipeError:
        pass  # the listener reports the end of the worker


def default_workers() -> int:
    """One a core."""
    return len(os.sched_getaffinity(0))


def corpora(runs: Iterable[PlannedRun]) -> set[tuple[str, int]]:
    """(corpus, vocabulary) pairs that the runs read."""
    return {(run.config.corpus, run.config.model.vocab) for run in runs}
