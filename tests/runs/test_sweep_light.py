"""What a sweep does when its runs fail, its workers die and others work at the same runs; nothing is trained."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import light_sweep
import pytest
import torture
from held_runs import holding

from repro.corpus.prepare import prepare
from repro.files import read_json
from repro.runs.folder import RunFolder, open_folder

ROOT = Path(__file__).parents[2]
COUNT = 4


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Run folders in which all but the first four smoke runs are finished."""
    prepare("smoke", tmp_path / "cache")
    torture.leave_out_all_but(torture.planned(COUNT), tmp_path / "runs")
    return tmp_path / "runs"


def start(root: Path, *words: str, host: str | None = None, **options: str) -> subprocess.Popen:
    command = [sys.executable, light_sweep.__file__, "run", "table5", "--scale", "smoke", "--root", str(root)]
    command += ["--cache", str(root.parent / "cache"), "--takeover-after", "2", "--workers", "1", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | options | ({"REPRO_HOST": host} if host else {})
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, encoding="utf-8")


def ended(process: subprocess.Popen) -> tuple[int, str]:
    text = process.communicate(timeout=200)[1]
    return process.returncode, text


def entries(root: Path) -> dict[str, list[dict]]:
    found = {run.run_id: RunFolder(root, run.run_id).provenance() for run in torture.planned(COUNT)}
    return {name: kept["attempts"] if kept else [] for name, kept in found.items()}


def wait_for(condition: Callable[[], object], seconds: float = 100.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_machines_share_the_work(root: Path) -> None:
    both = [start(root, host=name) for name in ("one", "other")]
    assert [ended(process)[0] for process in both] == [0, 0]
    assert all([a["outcome"] for a in found] == ["finished"] for found in entries(root).values())
    holders = {
        json.loads((root / name / "leases" / "000001.json").read_text(encoding="utf-8"))["host"]
        for name in entries(root)
    }
    assert holders == {"one", "other"}


def test_what_failed_is_shown_with_its_reason_and_tried_again_on_request(root: Path) -> None:
    first = torture.planned(COUNT)[0]
    open_folder(root, first.config).write_failure("the loss of step 3 is nan", crashed=False)
    code, text = ended(start(root))
    assert code == 2 and f"{first.run_id} failed before: the loss of step 3 is nan" in text
    found = entries(root)
    assert found.pop(first.run_id) == [] and all(len(one) == 1 for one in found.values())
    code, text = ended(start(root))
    assert code == 2 and "--retry-failed tries it again" in text
    assert ended(start(root, "--retry-failed"))[0] == 0
    assert len(entries(root)[first.run_id]) == 1
    assert RunFolder(root, first.run_id).failure() is None


def test_a_worker_that_starts_late_is_given_one_run_at_a_time(root: Path) -> None:
    code, text = ended(start(root, LIGHT_SWEEP="late"))
    told = [line.split()[0] for line in text.splitlines() if "validation loss 1.0000" in line]
    assert code == 0 and told == [run.run_id for run in torture.planned(COUNT)]


def test_what_a_worker_prints_is_in_the_log_and_no_message(root: Path) -> None:
    torture.leave_out_all_but(torture.planned(1), root)
    code, text = ended(start(root, LIGHT_SWEEP="print"))
    assert code == 0, text
    assert (root / "workers.log").read_text(encoding="utf-8").splitlines()[0] == "not a message"


def test_a_worker_that_is_asked_to_stop_alone_gives_its_run_to_another(root: Path) -> None:
    torture.leave_out_all_but(torture.planned(1), root)
    process = start(root)
    wait_for(lambda: any(entries(root).values()))
    holder = next(found for name in entries(root) if (found := read_json(root / name / "leases" / "000001.json")))
    os.kill(holder["pid"], signal.SIGTERM)
    assert ended(process)[0] == 0
    assert all(RunFolder(root, name).summary() is not None for name in entries(root))


def test_a_crash_is_told_by_its_last_line(root: Path) -> None:
    torture.leave_out_all_but(torture.planned(1), root)
    run = torture.planned(1)[0]
    open_folder(root, run.config).write_failure("Traceback (most recent call last):\n  x\nKeyError: 7\n", crashed=True)
    code, text = ended(start(root))
    assert code == 1 and f"{run.run_id} failed before: KeyError: 7" in text and "Traceback" not in text


def test_a_bug_exits_1_and_is_not_tried_again(root: Path) -> None:
    for attempts in (1, 1):
        code, text = ended(start(root, LIGHT_SWEEP="raise"))
        assert code == 1 and "ZeroDivisionError" in text and "Traceback" not in text
        assert {len(found) for found in entries(root).values()} == {attempts}
    failure = RunFolder(root, torture.planned(1)[0].run_id).failure()
    assert failure is not None and failure["crashed"] and "Traceback" in failure["reason"]


def test_a_run_of_which_workers_die_is_given_up(root: Path) -> None:
    torture.leave_out_all_but(torture.planned(1), root)
    code, text = ended(start(root, LIGHT_SWEEP="die"))
    (run, *_) = torture.planned(1)
    assert code == 1 and "3 workers ended with it before another checkpoint" in text
    assert len(entries(root)[run.run_id]) == 3
    assert (RunFolder(root, run.run_id).failure() or {})["crashed"]


def test_asked_to_stop_it_saves_and_exits_42(root: Path) -> None:
    process = start(root)
    wait_for(lambda: any(entries(root).values()))
    process.send_signal(signal.SIGTERM)
    code, text = ended(process)
    assert code == 42 and "everything reached is saved" in text
    (name, (entry,)) = next((n, found) for n, found in entries(root).items() if found)
    assert entry["outcome"] == "Interrupted"
    assert (read_json(root / name / "leases" / "000001.end") or {})["outcome"] == "interrupted"


def test_a_second_signal_stops_at_once_and_loses_nothing(root: Path) -> None:
    process = start(root, LIGHT_SWEEP="deaf")
    wait_for(lambda: any(entries(root).values()))
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    assert ended(process)[0] == 42
    assert ended(start(root))[0] == 0
    assert all(found[-1]["outcome"] == "finished" for found in entries(root).values())


def test_a_run_that_another_holds_is_waited_for(root: Path) -> None:
    first = torture.planned(COUNT)[0]
    with holding(open_folder(root, first.config), lease_s=2.0) as lease:
        process = start(root)
        wait_for(lambda: sum(bool(found) for found in entries(root).values()) == COUNT - 1)
        assert process.poll() is None and not lease.lost(look=True)
    assert ended(process)[0] == 0
    assert read_json(root / first.run_id / "leases" / "000002.json") is not None
