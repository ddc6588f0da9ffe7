"""Worker processes for jobs that write files: one job at a time each, and none survives the process that started it.

A pool of the standard library would hang when a worker is killed for its memory, and would leave workers behind
that go on writing when the parent is killed. Jobs and the function travel by pickle to fresh interpreters.
"""

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from repro.corpus.preparing import Progress
from repro.corpus.shards import writing_to
from repro.corpus.web.remote import Say
from repro.errors import UserError

PARTS = 1000  # of a job, in which progress is counted
Work = Callable[[Any, Callable[[float], None], Say], None]


def run_jobs(stage: str, jobs: Sequence[Any], work: Work, folder: Path, workers: int, progress: Progress) -> None:
    """work(job, report, say) for every job, in this process for one worker; the first UserError ends them all."""
    board = _Board(stage, len(jobs), progress)
    if workers == 1 or len(jobs) <= 1:
        for index, job in enumerate(jobs):
            with writing_to(folder):
                work(job, lambda fraction, index=index: board.at(index, fraction), say)
            board.at(index, 1.0)
        return
    context = multiprocessing.get_context("spawn")
    members = [_Member(context, work, folder) for _ in range(min(workers, len(jobs)))]
    try:
        _serve(members, jobs, board)
    finally:
        for member in members:
            member.process.terminate()
        for member in members:
            member.process.join()


def say(text: str) -> None:
    """A line for the user beside the progress."""
    print(f"repro: {text}", file=sys.stderr, flush=True)


class _Board:
    """Progress of all jobs together."""

    def __init__(self, stage: str, jobs: int, progress: Progress) -> None:
        self._stage, self._progress, self._done = stage, progress, [0.0] * jobs
        self.at(0, 0.0)

    def at(self, index: int, fraction: float) -> None:
        if self._done:
            self._done[index] = fraction
        self._progress(self._stage, int(PARTS * sum(self._done)), PARTS * len(self._done))


class _Member:
    def __init__(self, context: Any, work: Work, folder: Path) -> None:
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_member, args=(theirs, work, folder), daemon=True)
        self.process.start()
        theirs.close()
        self.index = 0


def _serve(members: list[_Member], jobs: Sequence[Any], board: _Board) -> None:
    waiting = iter(enumerate(jobs))
    busy = {member.connection: member for member in members}
    for member in members:
        _give(member, next(waiting, None))
    while busy:
        for connection in wait(list(busy)):
            member = busy[connection]
            kind, value = _received(member, jobs)
            if kind == "at":
                board.at(member.index, value)
            elif kind == "say":
                say(value)
            else:
                board.at(member.index, 1.0)
                if not _give(member, next(waiting, None)):
                    del busy[connection]


def _give(member: _Member, item: tuple[int, Any] | None) -> bool:
    if item is not None:
        member.index = item[0]
        member.connection.send(item[1])
    return item is not None


def _received(member: _Member, jobs: Sequence[Any]) -> tuple[str, Any]:
    try:
        kind, value = member.connection.recv()
    except (EOFError, ConnectionResetError):
        member.process.join()
        raise UserError(
            f"a worker ended with code {member.process.exitcode} at {jobs[member.index]!r} (-9: probably for"
            " want of memory): run the same command again, with fewer --workers."
        ) from None
    if kind == "refused":
        raise UserError(value)
    if kind == "crashed":
        raise RuntimeError(f"a worker failed at {jobs[member.index]!r}:\n{value}")
    return kind, value


def _member(connection: Connection, work: Work, folder: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, and terminates
    threading.Thread(target=_die_with_parent, daemon=True).start()

    def tell(kind: str) -> Callable[[Any], None]:
        return lambda value: connection.send((kind, value))

    while True:
        job = connection.recv()
        try:
            with writing_to(folder):
                work(job, tell("at"), tell("say"))
        except UserError as error:
            tell("refused")(str(error))
        except Exception:
            tell("crashed")(traceback.format_exc())
        else:
            tell("done")(None)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
