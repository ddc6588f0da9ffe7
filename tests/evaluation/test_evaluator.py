"""Evaluations by worker processes: deaths, refusals and signals, with stand-ins that score nothing."""

import os
import signal
from pathlib import Path

import pytest
from fabricated import planned

from repro import pool
from repro.evaluation import evaluator
from repro.evaluation.evaluator import Job, evaluate_all
from repro.evaluation.tasks import choose
from repro.machines.hardware import cpu

STAND_IN = """
import os, pathlib, time
from repro.pool import Parent, worker_parser
parser = worker_parser()
for name in ("root", "cache", "batch", "source"):
    parser.add_argument(f"--{name}")
args = parser.parse_args()
parent = Parent(args)
for job in parent.jobs():
    print('{"ended": "crashed", "reason": "no message"}', flush=True)
    notes = pathlib.Path(args.root, job["run_id"])
    with notes.open("a") as file:
        file.write("x")
    tried = len(notes.read_text())
"""
FINISHED = 'parent.tell(ended="finished")'


@pytest.fixture
def evaluate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two evaluations by workers that do what is said; the exit code, and how often each was tried."""
    monkeypatch.setattr(evaluator, "_make_questions", lambda *_: None)
    monkeypatch.setattr(pool, "PUT_OFF_S", 0.01)
    monkeypatch.setattr(pool, "LOOK_S", 0.05)
    jobs = tuple(Job(run.run_id, run.config, choose(run.config), run.config.steps) for run in planned()[:2])

    def act(text: str, workers: int = 1) -> tuple[int, list[int]]:
        monkeypatch.setattr(evaluator, "WORKER", ("-c", f"{STAND_IN}    {text}\n"))
        code = evaluate_all(jobs, tmp_path, tmp_path, workers, batch=1, hardware=cpu())
        notes = [tmp_path / job.run_id for job in jobs]
        return code, [len(note.read_text(encoding="utf-8")) if note.exists() else 0 for note in notes]

    return act


def test_a_worker_that_dies_is_replaced_and_its_evaluation_goes_on(evaluate, capfd) -> None:
    assert evaluate(f"os.kill(os.getpid(), 9) if tried == 1 else {FINISHED}") == (0, [2, 2])
    assert capfd.readouterr().err.count("goes on in a new worker: its last one ended with exit code -9") == 2


def test_an_evaluation_of_which_three_workers_died_is_given_up(evaluate, capfd) -> None:
    assert evaluate("os._exit(3)", workers=min(2, cpu().chips)) == (1, [3, 3])
    assert capfd.readouterr().err.count("3 workers ended with it before another checkpoint") == 2


def test_what_another_process_is_at_is_asked_for_again(evaluate) -> None:
    assert evaluate(f'parent.tell(ended="busy") if tried < 3 else {FINISHED}') == (0, [3, 3])


def test_one_reason_for_all_is_one_sentence(evaluate, capfd) -> None:
    assert evaluate('parent.tell(ended="failed", reason="no questions here.")') == (2, [1, 1])
    assert capfd.readouterr().err.count("repro: no questions here.") == 1


def test_a_signal_stops_the_workers_and_leaves_none(evaluate, monkeypatch, capfd) -> None:
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if text.isdecimal():
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(evaluator, "_say", say)
    assert evaluate("parent.tell(text=str(os.getpid())); time.sleep(60)") == (42, [1, 0])
    pid, last = said
    assert last.startswith("stopped, everything scored is saved")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
