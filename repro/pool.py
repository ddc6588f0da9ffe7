"""Worker processes: the one place that starts them, gives them jobs, hears them, stops them and replaces dead ones.

Used by sweeps, evaluations and preparations, which say what a job is. A worker and its parent exchange lines of JSON on
a pipe of their own, so what is printed in a worker, by whatever library, goes to a log. A worker ends when it is asked
to, when its parent is gone (the pipe ends; `repro.stopping` while it works), and at the second signal at once. The
parent holds no state that matters: it may be killed too. No JAX.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from repro import disk
from repro.cores import cores_of_worker, keep_to
from repro.errors import EXIT_INTERRUPTED, UserError

LOOK_S = 0.5  # between two looks at what no message tells
PUT_OFF_S = 2.0  # before a job that another process is at is looked at again
DEATHS = 3  # workers that may die at a job that comes no further, or before they are ready
AGAIN = {"busy", "lost", "interrupted"}  # ends of a job after which it is still to be done
STDERR = 2


class Pool:
    """Does named jobs, some at a time; a subclass says what a worker is told of one, and what its messages mean.

    A worker has an environment of its own, from `environments`, and its share of the cores. It tells how a job ended
    with `ended` (finished, failed, crashed, busy, lost, interrupted), and anything else before that.
    """

    def __init__(
        self,
        jobs: Mapping[str, Any],
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        log: Any = STDERR,
    ) -> None:
        self.jobs, self.asked = jobs, 0  # signals that came
        self.current: dict[int, str] = {}
        self._waiting, self._later = deque(jobs), deque[tuple[float, str]]()
        self._command, self._environments, self._log = command, environments, log
        self.deaths: dict[str, tuple[int, int]] = {}  # job -> workers that died at it since it reached what it has
        self._false_starts = 0  # workers in a row that ended before they were ready
        self._ready: set[int] = set()
        self._workers: dict[int, _Worker] = {}  # those that live, or have just ended
        self._looked = time.monotonic()

    def run(self) -> None:
        """Until every job has ended, or every worker after a signal: the first asks them to stop, the second kills."""
        with _handled(self._on_signal):
            try:
                for index in range(len(self._environments)):
                    self._start(index)
                while self._workers:
                    by_pipe = {worker.pipe: index for index, worker in self._workers.items()}
                    for pipe in wait(list(by_pipe), LOOK_S):
                        self._receive(by_pipe[pipe])  # pyright: ignore[reportArgumentType]
                    self._look()
            finally:
                for worker in self._workers.values():  # of a pool that an error ends
                    worker.stop(signal.SIGTERM)
                for worker in self._workers.values():
                    worker.process.wait()
        for name in [*self._waiting, *(name for _, name in self._later)] if not self.asked else ():
            self.gave_up(0, name, "no worker could be started")

    def request(self, index: int, name: str) -> dict[str, Any] | None:
        """What worker `index` is told of a job; None when it is done already, or after `put_off`."""
        raise NotImplementedError

    def heard(self, index: int, name: str, message: dict[str, Any]) -> None:
        """A message of a worker that is at a job."""

    def ended(self, index: int, name: str, message: dict[str, Any]) -> None:
        """A job has ended as the message says."""
        raise NotImplementedError

    def died(self, index: int, name: str, code: int) -> None:
        """A worker ended at a job without a word: it stood still, or was killed. Another goes on with the job."""
        reached = self.reached(name)
        count, before = self.deaths.get(name, (0, reached))
        count = count + 1 if reached == before else 1
        self.deaths[name] = count, reached
        ending = "stood still" if code == EXIT_INTERRUPTED else f"ended with exit code {code}"
        if count < DEATHS:
            self._waiting.appendleft(name)
            self.idle(index, f"{name} goes on in a new worker: its last one {ending}")
        else:
            self.gave_up(index, name, f"{count} workers ended with it before another checkpoint, the last {ending}")

    def idle(self, index: int, text: str) -> None:
        """What there is to say of a worker whose job another does, later or elsewhere."""

    def gave_up(self, index: int, name: str, reason: str) -> None:
        """Too many workers of a job died, or none could be started."""
        raise NotImplementedError

    def stopping(self) -> None:
        """A signal came, the workers are about to be told."""

    def reached(self, name: str) -> int:
        """How far a job has come in what is saved: deaths before that count no more."""
        return 0

    def look(self) -> None:
        """Now and then, between messages."""

    def put_off(self, name: str) -> None:
        """Do a job later: another process is at it, or its worker stands still."""
        if not self.asked and all(name != other for _, other in self._later):
            self._later.append((time.monotonic() + PUT_OFF_S, name))

    def _start(self, index: int) -> None:
        own = cores_of_worker(index, len(self._environments))
        self._workers[index] = _Worker(self._command, own, self._environments[index], self._log)
        if self.asked:
            self._workers[index].stop(signal.SIGTERM)

    def _on_signal(self, *_: Any) -> None:
        self.asked += 1
        self.stopping()
        for worker in list(self._workers.values()):
            worker.stop(signal.SIGTERM if self.asked == 1 else signal.SIGKILL)

    def _receive(self, index: int) -> None:
        message = self._workers[index].receive()
        name = self.current.get(index)
        if message is None:
            self._lost(index)
        elif "ready" in message:
            self._false_starts = 0
            self._ready.add(index)
            self._next(index)
        elif name is not None and "ended" in message:
            del self.current[index]
            if message["ended"] in AGAIN:
                self.put_off(name)
            self.ended(index, name, message)
            if message["ended"] != "interrupted":
                self._next(index)
        elif name is not None:
            self.heard(index, name, message)

    def _next(self, index: int) -> None:
        """Give the worker a job that is free; end all when there is nothing left, now or later."""
        while self._later and self._later[0][0] <= time.monotonic():
            self._waiting.append(self._later.popleft()[1])
        while self._waiting and not self.asked:
            name = self._waiting.popleft()
            if (request := self.request(index, name)) is not None:
                self.current[index] = name
                self._workers[index].send(request)
                return
        if not self._later and not self.current:
            for worker in self._workers.values():
                worker.send(None)

    def _look(self) -> None:
        if time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        self.look()
        for index in sorted((self._workers.keys() & self._ready) - self.current.keys()):
            self._next(index)

    def _lost(self, index: int) -> None:
        """A worker ended. Another is started in its place while there is something to do."""
        code = self._workers[index].end()
        del self._workers[index]  # not before it has ended: a second signal reaches it until then
        self._ready.discard(index)
        name = self.current.pop(index, None)
        if self.asked:
            return
        if name is not None:
            self.died(index, name, code)
        elif self._waiting or self._later:
            self._false_starts += 1
        if self._false_starts < DEATHS and (self._waiting or self._later):
            self._start(index)


class _Worker:
    """A process in a group of its own, so that a Ctrl-C reaches the parent alone, which asks each worker once."""

    def __init__(self, command: Sequence[str], own: Sequence[int], environment: Mapping[str, str], log: Any) -> None:
        self.pipe, theirs = Pipe()
        words = ["--pipe", str(theirs.fileno()), "--cores", ",".join(map(str, own))]
        self.process = subprocess.Popen(
            [sys.executable, *command, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            env=dict(environment),
        )
        theirs.close()

    def send(self, message: dict[str, Any] | None) -> None:
        """A job, or None: nothing is left. One that has ended is heard of elsewhere."""
        with contextlib.suppress(OSError):
            self.pipe.send_bytes(json.dumps(message).encode())

    def receive(self) -> dict[str, Any] | None:
        """The next message; None when it has ended. The last one of a killed worker may be cut."""
        try:
            return json.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            return None

    def stop(self, number: signal.Signals) -> None:
        """Ask it, or kill it; one that is stopped by a signal hears it too."""
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.send_signal(signal.SIGCONT)
            self.send(None)

    def end(self) -> int:
        """Its exit code, once it has closed its pipe."""
        self.pipe.close()
        return self.process.wait()


class Parent:
    """What a worker knows of the process that started it: jobs come from there, and messages go there."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Keeps this process to its cores, before JAX counts them."""
        keep_to(int(core) for core in args.cores.split(","))
        os.set_inheritable(args.pipe, False)
        self._pipe, self._lock = Connection(args.pipe), threading.Lock()

    def tell(self, **message: Any) -> None:
        """From any thread; a parent that is gone is no failure of the job, and `Stop` notices it."""
        with self._lock, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._pipe.send_bytes(json.dumps(message).encode())

    def jobs(self, idle: Callable[[], None] = lambda: None) -> Iterator[dict[str, Any]]:
        """Says that this worker is ready; what it is told to do, until nothing is left. Calls `idle` now and then."""
        self.tell(ready=True)
        while True:
            try:
                while not self._pipe.poll(LOOK_S):
                    idle()
                request = json.loads(self._pipe.recv_bytes())
            except (EOFError, OSError):
                return
            if request is None:
                return
            yield request


def worker_parser() -> argparse.ArgumentParser:
    """The parser of a worker's command line, with what every worker is given."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pipe", type=int, required=True)
    parser.add_argument("--cores", required=True)
    return parser


def failure(error: Exception) -> tuple[str, str]:
    """How a job ended that raised: failed, with a sentence on what the user can mend, or crashed, with the trace."""
    if isinstance(error, OSError):
        return "failed", f"{error}: {disk.advice(error)}."
    return ("failed", str(error)) if isinstance(error, UserError) else ("crashed", traceback.format_exc())


@contextlib.contextmanager
def _handled(handler: Any) -> Iterator[None]:
    """Signals that ask a command to stop go to `handler`, where this is the main thread, which alone hears them."""
    own = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, handler) for n in (signal.SIGTERM, signal.SIGINT) if own}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
