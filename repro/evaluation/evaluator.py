"""Evaluates many runs with worker processes that share the work through the runs' own locks. The parent has no JAX.

Every worker is given all evaluations, each from another place on, and does those that nobody is at. So there is no
queue to lose: kill any of them, or start the command twice.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro import disk
from repro.cores import cores, keep_to
from repro.diloco.jax_settings import pin
from repro.errors import EXIT_INTERRUPTED, Interrupted, UserError
from repro.evaluation.tasks import METRICS, Asked, EvalSpec, read_result
from repro.files import place
from repro.machines.hardware import Hardware, platforms
from repro.machines.seats import check_workers, seats
from repro.runs.folder import RunFolder
from repro.runs.liveness import Progress, watch
from repro.spec.config import RunConfig
from repro.stopping import Stop, end_now
from repro.words import show_what_can_be

REPORT_SECONDS = 10.0
LOOK_SECONDS = 2.0  # between two looks at work that another process holds, or at one's own progress


@dataclass(frozen=True)
class Job:
    """One evaluation of one run."""

    run_id: str
    config: RunConfig
    spec: EvalSpec
    step: int


def pending(jobs: Iterable[Job], root: Path) -> tuple[Job, ...]:
    """Those without a result, each once."""
    found = {(job.run_id, job.spec.id(job.step)): job for job in jobs}
    return tuple(j for j in found.values() if read_result(RunFolder(root, j.run_id), j.spec, j.step) is None)


def evaluate_all(
    jobs: tuple[Job, ...],
    root: Path,
    cache: Path,
    workers: int,
    *,
    batch: int,
    source: str = "packages",
    hardware: Hardware,
) -> int:
    """Do every job; the greatest exit code of the workers. Questions are made first, once for all.

    Each worker has a chip of `hardware` of its own, or cores. Asked to stop, it asks the workers, waits until they have
    saved what they scored, and returns 42; asked again, it kills them.
    """
    own, environment = cores(), {**os.environ, **platforms(hardware, os.environ)}
    check_workers(workers, hardware)
    _make_questions(jobs, cache, source)
    workers = min(workers, len(jobs))
    order = [asdict(job.spec) | {"run_id": job.run_id, "step": job.step} for job in jobs]
    started: list[subprocess.Popen] = []
    with _stops(started) as asked:
        try:
            for index, seat in enumerate(seats(hardware, workers, 1, os.environ)):
                words = ["--root", str(root), "--cache", str(cache), "--batch", str(batch), "--source", source]
                words += ["--cores", ",".join(map(str, own[index::workers]))]
                turn = index * len(order) // workers
                _start(words, order[turn:] + order[:turn], environment | seat, started)
            codes = [worker.wait() for worker in started]
        finally:
            for worker in started:
                worker.terminate()
    if asked:
        print("repro: stopped, everything scored is saved; run the same command to go on.", file=sys.stderr)
        return EXIT_INTERRUPTED
    if min(codes) < 0:
        print("repro: a worker was killed; run the same command to go on.", file=sys.stderr)
    return max(1 if code < 0 else code for code in codes)


def _start(
    words: list[str], jobs: list[dict[str, Any]], environment: dict[str, str], started: list[subprocess.Popen]
) -> None:
    """A worker in a group of its own, so that a Ctrl-C reaches the parent alone, which asks each worker once."""
    command = [sys.executable, "-m", "repro.evaluation.evaluator", *words]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, encoding="utf-8", env=environment, start_new_session=True)
    started.append(worker)
    assert worker.stdin is not None
    with contextlib.suppress(BrokenPipeError), worker.stdin as pipe:  # its exit code tells why it ended
        json.dump(jobs, pipe)


@contextlib.contextmanager
def _stops(workers: list[subprocess.Popen]) -> Iterator[list[int]]:
    """The signals that came: the first asks the workers to save and stop, another kills them."""
    asked: list[int] = []

    def on_signal(number: int, _: Any) -> None:
        asked.append(number)
        for worker in workers:
            worker.send_signal(signal.SIGTERM if len(asked) == 1 else signal.SIGKILL)

    handlers = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _make_questions(jobs: tuple[Job, ...], cache: Path, source: str) -> None:
    from repro.corpus.prepare import token_folder  # numpy: a tenth of a second that finished evaluations don't pay
    from repro.evaluation.questions import make_questions

    wanted = {(job.config.corpus, job.config.model.vocab, asked) for job in jobs for asked in job.spec.asked}
    for corpus, vocab, asked in sorted(wanted, key=str):
        make_questions(asked, token_folder(corpus, cache, vocab=vocab), cache, source)


def main() -> int:
    """A worker: jobs as JSON on standard input, a line for each that it did on standard output.

    42 when it was asked to stop or its parent is gone, and when it shows no progress: another goes on with its work.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=place, required=True)
    parser.add_argument("--cache", type=disk.local, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--cores", required=True)
    args = parser.parse_args()
    show_what_can_be()
    keep_to(int(core) for core in args.cores.split(","))
    stop, progress = Stop(lambda _: None, with_parent=True), Progress()
    stop.free(_nothing)
    watch(progress, LOOK_SECONDS, lambda: end_now(progress.sentence("a worker of evaluate")))
    jobs = json.load(sys.stdin)
    try:
        _configure_jax(args.cache)
        left = [job for job in jobs if not _do(job, args, stop, progress)]
        for job in left:
            while not _do(job, args, stop, progress):
                progress.mark("waiting")
                time.sleep(LOOK_SECONDS)
    except UserError as error:
        print(f"repro: {error}", file=sys.stderr)
        return 2
    except Interrupted:
        return EXIT_INTERRUPTED
    return 0


def _configure_jax(cache: Path) -> None:
    pin()
    import jax

    jax.config.update("jax_compilation_cache_dir", str((cache / "xla").resolve()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def _nothing() -> str:
    """What is to be done before the process ends where nothing is unsaved."""
    return ""


def _do(job: dict[str, Any], args: argparse.Namespace, stop: Stop, progress: Progress) -> bool:
    """Do one job unless it is done; False when another process is at it."""
    from repro.evaluation.evaluate import evaluate_run

    spec = EvalSpec(job["name"], tuple(Asked(**asked) for asked in job["asked"]), job["parameters"])
    folder = RunFolder(args.root, job["run_id"])
    if read_result(folder, spec, job["step"]) is not None:
        return True
    progress.mark("starting")
    shown = _Shown(job["run_id"], progress)
    result = evaluate_run(
        folder,
        spec,
        job["step"],
        args.cache,
        batch=args.batch,
        source=args.source,
        report=shown,
        unsaved=lambda flag: stop.busy() if flag else stop.free(_nothing),
        stop_asked=stop,
        wait=False,
    )
    if result is not None and shown.scored:
        print(f"{line(result)}  {result['seconds']:.0f} s", flush=True)
    return result is not None


def line(result: dict[str, Any]) -> str:
    """A run and its scores in percent, ± standard error."""
    words = [result["run_id"], result["eval_id"]]
    for score in result["scores"]:
        count = f"{score['questions']}" if score["questions"] == score["of"] else f"{score['questions']}/{score['of']}"
        for metric in METRICS:
            error = score[f"{metric}_stderr"]
            shown = f"{100 * score[metric]:.1f}" + ("" if error is None else f"±{100 * error:.1f}")
            words.append(f"{score['task']}[{count}] {metric} {shown}" if metric == METRICS[0] else f"{metric} {shown}")
    return "  ".join(words)


class _Shown:
    """Says how far an evaluation is, every ten seconds; each batch is a sign of progress."""

    def __init__(self, run_id: str, progress: Progress) -> None:
        self._run_id, self._progress, self.scored = run_id, progress, 0
        self._start = self._said = time.monotonic()

    def __call__(self, done: int, count: int) -> None:
        self.scored += 1
        self._progress.mark("scoring")
        now = time.monotonic()
        if now - self._said >= REPORT_SECONDS:
            self._said = now
            left = (now - self._start) * (count - done) / max(done, 1)
            print(f"{self._run_id}: {done} of {count} continuations, {left:.0f} s left", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
