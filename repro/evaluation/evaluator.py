"""Evaluates many runs with worker processes that share the work through the runs' own locks. The parent has no JAX.

What another command is at is looked at again later, so there is no queue to lose: kill any process, or start the
command twice.
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro.errors import EXIT_BUG, EXIT_INTERRUPTED, EXIT_USER_ERROR
from repro.evaluation.tasks import METRICS, EvalSpec, read_result
from repro.machines.hardware import Hardware, scoring_environment
from repro.machines.seats import check_workers, seats
from repro.pool import AGAIN, Pool
from repro.runs.chips import holding
from repro.runs.folder import RunFolder
from repro.spec.config import RunConfig
from repro.words import last_line

WORKER = ("-m", "repro.evaluation.worker")


@dataclass(frozen=True)
class Job:
    """One evaluation of one run."""

    run_id: str
    config: RunConfig
    spec: EvalSpec
    step: int


def pending_jobs(jobs: Iterable[Job], root: Path) -> tuple[Job, ...]:
    """Those without a result, each once."""
    distinct = {(job.run_id, job.spec.id(job.step)): job for job in jobs}
    return tuple(j for j in distinct.values() if read_result(RunFolder(root, j.run_id), j.spec, j.step) is None)


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
    """Do every job; 1 when a program failed, 2 when a job can't be done. Questions are made first, once for all.

    Each worker has a chip of `hardware` of its own, or cores. Asked to stop, it asks the workers, waits until they have
    saved what they scored, and returns 42; asked again, it kills them.
    """
    check_workers(workers, hardware)
    _make_questions(jobs, cache, source)
    words = ["--root", str(root), "--cache", str(cache), "--batch", str(batch), "--source", source]
    shared = scoring_environment(hardware, os.environ)
    each = seats(hardware, min(workers, len(jobs)), 1, os.environ)
    own = [shared | seat for seat in each]
    pool = _Pool({f"{job.run_id} {job.spec.id(job.step)}": job for job in jobs}, (*WORKER, *words), own)
    pool.root = root
    with holding(hardware, each):
        pool.run()
    if pool.asked:
        _say("stopped, everything scored is saved; run the same command to go on.")
        return EXIT_INTERRUPTED
    return EXIT_BUG if "crashed" in pool.kinds else EXIT_USER_ERROR if "failed" in pool.kinds else 0


class _Pool(Pool):
    """The evaluations, and what is said of them."""

    root: Path

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.kinds: set[str] = set()  # how jobs ended
        self._reasons: set[str] = set()  # told already: one may keep every job from being done

    def request(self, index: int, name: str) -> dict[str, Any] | None:
        job = self.jobs[name]
        if self._result(job) is not None:
            return None
        return asdict(job.spec) | {"run_id": job.run_id, "step": job.step}

    def heard(self, index: int, name: str, message: dict[str, Any]) -> None:
        _say(message["text"])

    def ended(self, index: int, name: str, message: dict[str, Any]) -> None:
        self.kinds.add(message["ended"])
        if message["ended"] == "finished":
            if (result := self._result(self.jobs[name])) is not None:
                print(f"{score_line(result)}  {result['seconds']:.0f} s", flush=True)
        elif message["ended"] not in AGAIN and (reason := last_line(message["reason"])) not in self._reasons:
            self._reasons.add(reason)
            _say(reason)

    def idle(self, index: int, text: str) -> None:
        _say(text)

    def gave_up(self, index: int, name: str, reason: str) -> None:
        self.ended(index, name, {"ended": "crashed", "reason": f"{name}: {reason}"})

    def _result(self, job: Job) -> dict[str, Any] | None:
        return read_result(RunFolder(self.root, job.run_id), job.spec, job.step)


def _say(text: str) -> None:
    print(f"repro: {text}", file=sys.stderr, flush=True)


def _make_questions(jobs: tuple[Job, ...], cache: Path, source: str) -> None:
    from repro.corpus.prepare import token_folder  # numpy: a tenth of a second that finished evaluations don't pay
    from repro.evaluation.questions import make_questions

    wanted = {(job.config.corpus, job.config.model.vocab, asked) for job in jobs for asked in job.spec.asked}
    for corpus, vocab, asked in sorted(wanted, key=str):
        make_questions(asked, token_folder(corpus, cache, vocab=vocab), cache, source)


def score_line(result: dict[str, Any]) -> str:
    """A run and its scores in percent, ± standard error."""
    words = [result["run_id"], result["eval_id"]]
    for score in result["scores"]:
        count = f"{score['questions']}" if score["questions"] == score["of"] else f"{score['questions']}/{score['of']}"
        for metric in METRICS:
            error = score[f"{metric}_stderr"]
            share = f"{100 * score[metric]:.1f}" + ("" if error is None else f"±{100 * error:.1f}")
            words.append(f"{score['task']}[{count}] {metric} {share}" if metric == METRICS[0] else f"{metric} {share}")
    return "  ".join(words)
