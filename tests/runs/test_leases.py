"""Who may work at a run: one of many, until it ends, dies or gives no sign; and what it leaves to the next."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import tiny

from experiments.registry import load
from repro.errors import UserError
from repro.runs import leases
from repro.runs.folder import RunFolder, open_folder
from repro.runs.leases import Lease, Watch, newest, take
from repro.runs.provenance import Attempt, history
from repro.runs.status import states
from repro.runs.takeover import attempt_path, begin, drop_ahead
from repro.spec.experiment import expand, unique
from repro.spec.identity import config_text

ROOT = Path(__file__).parents[2]
RUN = tiny.run_config(tiny.synced())
LEASE = 0.6
HOLDER = """
import sys, time
from pathlib import Path
from repro.runs.leases import Watch, take
from repro.runs.folder import RunFolder
folder = RunFolder(Path(sys.argv[1]), sys.argv[2])
lease = take(folder, Watch().free(folder), float(sys.argv[3]))
print(lease.number, flush=True)
sys.stdin.readline()
print(lease.lost(), flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return open_folder(tmp_path, RUN)


def hold(folder: RunFolder, host: str | None = None, lease_s: float = LEASE) -> subprocess.Popen:
    """Another process that leases the run, and says at a line of input whether it has lost it."""
    words = [sys.executable, "-c", HOLDER, str(folder.root), folder.run_id, str(lease_s)]
    environment = os.environ | ({"REPRO_HOST": host} if host else {})
    process = subprocess.Popen(
        words, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    )
    assert process.stdout is not None and process.stdout.readline().strip().isdecimal()
    return process


def end(process: subprocess.Popen) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def lease(folder: RunFolder) -> Iterator[Lease]:
    found = take(folder, 0, LEASE)
    assert found is not None
    yield found
    found.release("failed")


def free_after(watch: Watch, folder: RunFolder, seconds: float = 20.0) -> float:
    """How long it took until the run was free."""
    start = time.monotonic()
    while watch.free(folder) is None:
        assert time.monotonic() - start < seconds
        time.sleep(0.01)
    return time.monotonic() - start


def test_of_many_at_once_one_gets_the_run(folder: RunFolder) -> None:
    got: list[Lease | None] = []
    ready = threading.Barrier(16)

    def go() -> None:
        ready.wait()
        got.append(take(folder, 0))

    threads = [threading.Thread(target=go) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (lease,) = filter(None, got)
    assert len(got) == 16 and lease.number == newest(folder) == 1
    lease.release("failed")


def test_numbers_grow_and_a_released_run_is_free(folder: RunFolder) -> None:
    for number in (1, 2, 3):
        lease = take(folder, lease_s=LEASE)
        assert lease is not None and lease.number == number and Watch().free(folder) is None
        lease.release("finished")
        assert Watch().free(folder) == number


def test_a_run_in_other_hands_is_busy(folder: RunFolder, lease: Lease) -> None:
    assert take(folder) is None


def test_a_beating_lease_outlives_its_length(folder: RunFolder, lease: Lease) -> None:
    watch, until = Watch(), time.monotonic() + 2.5 * LEASE
    while time.monotonic() < until:
        assert watch.free(folder) is None and not lease.lost()
        time.sleep(0.05)


def test_a_dead_process_of_this_machine_is_known_at_once(folder: RunFolder) -> None:
    process = hold(folder, lease_s=1000.0)
    assert Watch().free(folder) is None
    process.kill()
    process.wait()
    assert Watch().free(folder) == 1
    process.communicate()


def test_another_process_of_the_same_number_is_another_process(folder: RunFolder, lease: Lease) -> None:
    path = folder.path / "leases" / "000001.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"process": "1"}), encoding="utf-8")
    assert Watch().free(folder) == 1


def test_a_dead_machine_is_known_after_its_lease(folder: RunFolder) -> None:
    process = hold(folder, host="elsewhere")
    end(process)
    assert free_after(Watch(), folder) >= LEASE


def test_a_lease_that_a_failing_machine_left_unreadable_ends_with_its_length(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_S", LEASE)
    (folder.path / "leases").mkdir()
    (folder.path / "leases" / "000004.json").write_bytes(b"")
    assert free_after(Watch(), folder) >= LEASE
    assert Watch().settle(folder) == 4


def test_a_stopped_worker_that_wakes_knows_that_it_has_lost(folder: RunFolder) -> None:
    process = hold(folder)
    process.send_signal(signal.SIGSTOP)
    free_after(Watch(), folder)
    successor = take(folder, 1, LEASE)
    assert successor is not None and successor.number == 2
    process.send_signal(signal.SIGCONT)
    assert process.communicate("\n", timeout=60)[0].strip() == "True"
    assert not successor.lost(look=True)
    successor.release("failed")


def test_a_finished_run_is_lost_to_all_others(folder: RunFolder, lease: Lease) -> None:
    assert not lease.lost(look=True)
    assert RunFolder(folder.root, folder.run_id, 7).write_summary({"run_id": folder.run_id, "steps": 1})
    assert lease.lost(look=True)
    assert not lease.folder.write_summary({"run_id": folder.run_id, "steps": 2})
    assert folder.summary() == {"run_id": folder.run_id, "steps": 1}


def save(home: Path, step: int, content: str = "") -> None:
    """An invented checkpoint, with the part of the curve that ends there."""
    for name in (f"checkpoints/{step}/data", f"metrics/part-000000001-{step:09d}.parquet"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content or str(step), encoding="utf-8")


def test_an_attempt_goes_on_from_the_furthest_and_touches_none_other(folder: RunFolder) -> None:
    save(folder.path, 3)  # trained without a lease
    one = begin(folder.path, 1)
    save(one, 6)
    (one / "checkpoints/9.orbax-checkpoint-tmp-1").mkdir()
    assert folder.checkpoints == one / "checkpoints"
    two = begin(folder.path, 2)
    assert sorted(p.name for p in (two / "checkpoints").iterdir()) == ["3", "6"]
    assert json.loads((two / "from.json").read_text(encoding="utf-8")) == {"attempt": 1, "step": 6}
    save(one, 9)  # the first wakes, saves and deletes
    (one / "checkpoints/3/data").unlink()
    assert (two / "checkpoints/3/data").read_text(encoding="utf-8") == "3"
    assert not (two / "checkpoints/9").exists()
    save(two, 7)
    three = begin(folder.path, 3)  # what the woken one saved is as good as any other
    assert json.loads((three / "from.json").read_text(encoding="utf-8")) == {"attempt": 1, "step": 9}
    assert not two.exists() and one.exists()


def test_sound_checkpoints_of_attempts_before_are_there_to_fall_back_to(folder: RunFolder) -> None:
    """Those where the curve of the furthest has a part that ends there: rows after them are written again."""
    one = begin(folder.path, 1)
    save(one, 3)
    two = begin(folder.path, 2)
    save(two, 6)
    save(two, 9)
    for step in (3, 6):  # as the newest two are kept
        shutil.rmtree(two / "checkpoints" / str(step))
    save(two, 12)
    save(attempt_path(folder.path, 1), 4)  # where no part of the second's curve ends
    three = begin(folder.path, 3)
    assert sorted(int(p.name) for p in (three / "checkpoints").iterdir()) == [3, 9, 12]
    assert not one.exists() and two.exists()


def test_what_was_found_damaged_is_not_taken_again(folder: RunFolder) -> None:
    save(begin(folder.path, 1), 3)
    two = begin(folder.path, 2)
    save(two, 9)
    three = begin(folder.path, 3)
    shutil.rmtree(three / "checkpoints/9")  # damaged: it goes on from 3, and is stopped before it reaches 9 again
    drop_ahead(folder.path, 3, 3)
    save(three, 6)
    four = begin(folder.path, 4)
    assert json.loads((four / "from.json").read_text(encoding="utf-8")) == {"attempt": 3, "step": 6}
    assert sorted(p.name for p in (four / "checkpoints").iterdir()) == ["3", "6"] and not two.exists()


def test_a_half_made_attempt_counts_for_nothing(folder: RunFolder) -> None:
    save(begin(folder.path, 1), 6)
    save(attempt_path(folder.path, 2), 6, "half")
    assert folder.checkpoints == attempt_path(folder.path, 1) / "checkpoints"
    three = begin(folder.path, 3)
    assert (three / "checkpoints/6/data").read_text(encoding="utf-8") == "6"
    RunFolder(folder.root, folder.run_id, 3).write_summary({"run_id": folder.run_id, "steps": 6})
    assert [p.name for p in (folder.path / "attempts").iterdir()] == ["000003"]


def test_a_late_end_of_an_attempt_changes_no_other_record(folder: RunFolder) -> None:
    first, second = (Attempt(replace(folder, attempt=n), {"commit": str(n)}) for n in (1, 2))
    second.end("finished")
    first.end("lost")
    found = history(folder)
    assert [(a["commit"], a["outcome"]) for a in found["attempts"]] == [("1", "lost"), ("2", "finished")]
    assert found["restarts"] == 1
    assert found["seconds"] == pytest.approx(sum(a["seconds"] for a in found["attempts"]), abs=0.01)


def test_of_a_killed_attempt_the_last_beat_says_how_long_it_ran(folder: RunFolder) -> None:
    process = hold(folder)
    Attempt(replace(folder, attempt=1), {})
    assert history(folder)["attempts"][0]["outcome"] == "running"
    time.sleep(LEASE)
    end(process)
    (entry,) = history(folder)["attempts"]
    assert entry["outcome"] == "killed" and 0 < entry["seconds"] < 60


def test_status_tells_running_stopped_and_failed(folder: RunFolder, lease: Lease) -> None:
    def state() -> dict:
        return states(None, folder.root, time.time())[0]

    lease.mark({"stage": "training", "step": 4, "loss": 2.0, "tokens_per_s": 16.0})
    deadline = time.monotonic() + 20
    while state()["step"] != 4:
        assert time.monotonic() < deadline
    found = state()
    left = (RUN.steps - 4) * RUN.batch * RUN.model.seq_len / 16.0
    assert found["state"] == "running" and found["seconds_left"] == round(left)
    assert states(None, folder.root, time.time() + 100)[0]["state"] == "stopped"
    lease.release("failed")
    save(begin(folder.path, 1), 3)
    found = state()
    assert (found["state"], found["step"], found["attempts"]) == ("stopped", 3, 1) and found["checkpoint_age_s"] <= 60
    lease.folder.write_failure("first\nlast line", crashed=True)
    assert (state()["state"], state()["reason"]) == ("failed", "last line")


def test_two_thousand_runs_in_two_seconds(tmp_path: Path) -> None:
    """Seconds of processor time, which other work on the machine doesn't lengthen."""
    text, at = config_text(RUN), time.time()
    runs = [RunFolder(tmp_path, f"run-{i:04d}") for i in range(2000)]
    for run in runs:
        path = run.path
        (path / "leases").mkdir(parents=True)
        (path / "config.json").write_text(text, encoding="utf-8")
        holder = {"host": "elsewhere", "pid": 1, "process": "1", "lease_s": 60.0}
        (path / "leases" / "000001.json").write_text(json.dumps(holder), encoding="utf-8")
        (path / "leases" / "000001.beat").write_text(json.dumps({"beat": 1}), encoding="utf-8")
    (runs[-1].path / "leases" / "000001.end").write_text("{}", encoding="utf-8")
    watch, start = Watch(), time.process_time()
    found = [(run, over) for run in runs if (over := watch.free(run))]
    lease = take(*found[0])
    taking = time.process_time() - start
    assert lease is not None and lease.number == 2 and lease.folder.run_id == runs[-1].run_id and len(found) == 1
    start = time.process_time()
    shown = states(None, tmp_path, at)
    status = time.process_time() - start
    lease.release("failed")
    assert len(shown) == 2000 and all(record["state"] == "running" for record in shown)
    start = time.process_time()
    planned = states(unique(expand(load("table5"), "smoke", 170))[:2000], tmp_path, at)
    expected = time.process_time() - start
    assert len(planned) == 2000 and all(record["state"] == "missing" for record in planned)
    print(f"taking among 2,000 runs {taking:.2f} s, status {status:.2f} s, of what is planned {expected:.2f} s")
    assert taking < 2 and status < 2 and expected < 2


def test_no_hard_links_no_space_no_lease(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.link", full)
    with pytest.raises(UserError, match="could not be written"):
        take(folder, 0)
    assert newest(folder) == 0 and list((folder.path / "leases").iterdir()) == []
