"""A worker process of `evaluate`: scores what it is given, and tells its parent how far it is.

It ends with its parent, and when it shows no progress: another goes on with its work.
"""

import sys
import time
from typing import TYPE_CHECKING, Any

from repro import disk
from repro.diloco.jax_settings import start_jax
from repro.errors import EXIT_INTERRUPTED, Interrupted
from repro.evaluation.tasks import Asked, EvalSpec
from repro.files import folder_at
from repro.pool import LOOK_S, Parent, failure, worker_parser
from repro.runs.folder import RunFolder
from repro.runs.liveness import Progress, watch_progress
from repro.stopping import Stop, end_now

if TYPE_CHECKING:
    import argparse

REPORT_SECONDS = 10.0


def main() -> int:
    """Score until nothing is left; 42 when asked to stop, with every score saved."""
    parser = worker_parser()
    parser.add_argument("--root", type=folder_at, required=True)
    parser.add_argument("--cache", type=disk.local, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--source", required=True)
    args = parser.parse_args()
    parent = Parent(args)
    stop = Stop(lambda sentence: parent.tell(ended="interrupted", reason=sentence), with_parent=True)
    progress = Progress()
    stop.free(_saved)
    watch_progress(progress, LOOK_S, lambda: end_now(progress.sentence("a worker of evaluate")))
    start_jax(args.cache)
    for job in parent.jobs(idle=progress.mark):
        try:
            outcome = _scored(job, args, stop, _Report(job["run_id"], progress, parent))
        except Interrupted as message:
            parent.tell(ended="interrupted", reason=str(message))
            return EXIT_INTERRUPTED
        except Exception as error:
            kind, reason = failure(error)
            if kind == "crashed":
                print(reason, file=sys.stderr, flush=True)
            outcome = {"ended": kind, "reason": reason}
        stop.free(_saved)
        parent.tell(**outcome)
    return 0


def _scored(job: dict[str, Any], args: "argparse.Namespace", stop: Stop, report: "_Report") -> dict[str, Any]:
    """Do one job; busy when another process is at that run."""
    from repro.evaluation.evaluate import evaluate_run

    result = evaluate_run(
        RunFolder(args.root, job["run_id"]),
        EvalSpec(job["name"], tuple(Asked(**asked) for asked in job["asked"]), job["parameters"]),
        job["step"],
        args.cache,
        batch=args.batch,
        source=args.source,
        report=report,
        unsaved=lambda flag: stop.busy() if flag else stop.free(_saved),
        stop_asked=stop,
        wait=False,
    )
    return {"ended": "busy" if result is None else "finished"}


def _saved() -> str:
    """What is told at the end where nothing is unsaved."""
    return "a worker was asked to stop; what it scored is saved."


class _Report:
    """Says how far an evaluation is, every ten seconds; each batch is a sign of progress."""

    def __init__(self, run_id: str, progress: Progress, parent: Parent) -> None:
        self._run_id, self._progress, self._parent = run_id, progress, parent
        self._start = self._said = time.monotonic()
        progress.mark("starting")

    def __call__(self, done: int, count: int) -> None:
        self._progress.mark("scoring")
        now = time.monotonic()
        if now - self._said >= REPORT_SECONDS:
            self._said = now
            left = (now - self._start) * (count - done) / max(done, 1)
            self._parent.tell(text=f"{self._run_id}: {done} of {count} continuations, {left:.0f} s left")


if __name__ == "__main__":
    sys.exit(main())
