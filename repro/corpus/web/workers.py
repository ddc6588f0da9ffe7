"""Tokenizes source files, in this process or in worker processes (`repro.pool`), and tells how far all are together."""

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from repro.corpus.preparing import Progress
from repro.corpus.shards import writing_to
from repro.corpus.web.slices import FileJob, tokenize_file
from repro.errors import UserError
from repro.pool import Parent, Pool, failure, worker_parser
from repro.stopping import Stop

PARTS = 1000  # of a job, in which progress is counted
WORKER = ("-m", "repro.corpus.web.workers")


def tokenize_files(jobs: Sequence[FileJob], workers: int, progress: Progress) -> None:
    """Every job, in this process for one worker; the first UserError ends them all."""
    board = _Board(len(jobs), progress)
    if workers == 1 or len(jobs) <= 1:
        for index, job in enumerate(jobs):
            with writing_to(job.folder):
                tokenize_file(job, lambda fraction, index=index: board.at(index, fraction), say)
            board.at(index, 1.0)
        return
    pool = _Pool(jobs, min(workers, len(jobs)), board)
    pool.run()
    if pool.asked:
        raise KeyboardInterrupt


def say(text: str) -> None:
    """A line for the user beside the progress."""
    print(f"repro: {text}", file=sys.stderr, flush=True)


class _Board:
    """Progress of all jobs together."""

    def __init__(self, jobs: int, progress: Progress) -> None:
        self._progress, self._done = progress, [0.0] * jobs
        self.at(0, 0.0)

    def at(self, index: int, fraction: float) -> None:
        if self._done:
            self._done[index] = fraction
        self._progress("tokens", int(PARTS * sum(self._done)), PARTS * len(self._done))


class _Pool(Pool):
    """The jobs, named by their places; the end of one without success ends all."""

    def __init__(self, jobs: Sequence[FileJob], workers: int, board: _Board) -> None:
        super().__init__({str(index): job for index, job in enumerate(jobs)}, WORKER, [os.environ] * workers)
        self._board = board

    def request(self, index: int, name: str) -> dict[str, Any]:
        return msgspec.to_builtins(self.jobs[name], enc_hook=str)

    def heard(self, index: int, name: str, message: dict[str, Any]) -> None:
        if "say" in message:
            say(message["say"])
        else:
            self._board.at(int(name), message["at"])

    def ended(self, index: int, name: str, message: dict[str, Any]) -> None:
        if message["ended"] == "failed":
            raise UserError(message["reason"])
        if message["ended"] == "crashed":
            raise RuntimeError(f"a worker failed at {self.jobs[name]!r}:\n{message['reason']}")
        self._board.at(int(name), 1.0)

    def died(self, index: int, name: str, code: int) -> NoReturn:
        raise UserError(
            f"a worker ended with code {code} at {self.jobs[name]!r} (-9: probably for want of memory): run the same "
            "command again, with fewer --workers."
        )

    def gave_up(self, index: int, name: str, reason: str) -> NoReturn:
        raise RuntimeError(f"{self.jobs[name]!r}: {reason}")


def main() -> int:
    """A worker: tokenizes what it is told until nothing is left. It ends at once when asked to, or with its parent."""
    parent = Parent(worker_parser().parse_args())
    Stop(lambda _: None, with_parent=True).free(lambda: "")  # what is half written is not taken for a file
    for request in parent.jobs():
        job = msgspec.convert(request, FileJob, dec_hook=lambda kind, value: kind(value))
        try:
            with writing_to(job.folder):
                tokenize_file(job, lambda share: parent.tell(at=share), lambda text: parent.tell(say=text))
            parent.tell(ended="finished")
        except Exception as error:
            kind, reason = failure(error)
            parent.tell(ended=kind, reason=reason)
    return 0


if __name__ == "__main__":
    sys.exit(main())
