"""The sweep as a user meets it: processes, signals, two at once, failures."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.registry import load
from repro.corpus.prepare import prepare
from repro.runs.folder import RunFolder, open_folder
from repro.runs.sweep import pending_runs, unusable
from repro.spec.experiment import expand

ROOT = Path(__file__).parents[2]


def command(root: Path, cache: Path, *words: str) -> list[str]:
    """`repro run` on the smallest experiment there is: two runs would do, the tables' own are used."""
    return [
        sys.executable,
        "-m",
        "repro",
        "run",
        "table5",
        "--scale",
        "smoke",
        "--root",
        str(root),
        "--cache",
        str(cache),
        *words,
    ]


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """A cache with the smoke corpus, and compiled programs of the module's runs."""
    folder = tmp_path_factory.mktemp("cache")
    prepare("smoke", folder)
    return folder


def finish_all_but(root: Path, keep: int) -> list[str]:
    """Pretend that all but the first `keep` runs are finished; the ids of those that are not."""
    runs = expand(load("table5"), "smoke")
    for run in runs[keep:]:
        RunFolder(root, run.run_id).write_summary({"run_id": run.run_id})
    return [run.run_id for run in runs[:keep]]


def environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | {"JAX_PLATFORMS": "cpu"}


def test_pending_leaves_out_what_has_a_summary(tmp_path):
    left = finish_all_but(tmp_path, 3)
    assert [run.run_id for run in pending_runs(expand(load("table5"), "smoke"), tmp_path)] == left


@pytest.mark.compiles
def test_interrupted_killed_and_finished(tmp_path, cache):
    """SIGTERM saves and exits 42; kill -9 of everything loses nothing; the third call finishes."""
    root = tmp_path / "runs"
    (run_id,) = finish_all_but(root, 1)
    first = start(root, cache)
    wait_for(lambda: attempts(root, run_id) == 1, first)
    first.send_signal(signal.SIGTERM)
    assert first.wait(600) == 42
    assert RunFolder(root, run_id).summary() is None
    second = start(root, cache)
    wait_for(lambda: attempts(root, run_id) == 2, second)
    second.kill()
    second.wait()
    third = subprocess.run(
        command(root, cache), cwd=ROOT, env=environment(), capture_output=True, encoding="utf-8", timeout=600
    )
    assert third.returncode == 0, third.stderr
    summary = RunFolder(root, run_id).summary()
    assert summary is not None and summary["steps"] == 24
    assert subprocess.run(command(root, cache), cwd=ROOT, env=environment()).returncode == 0


def start(root: Path, cache: Path) -> subprocess.Popen:
    return subprocess.Popen(command(root, cache), cwd=ROOT, env=environment(), stderr=subprocess.DEVNULL)


def wait_for(condition, process: subprocess.Popen, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, process.returncode
        time.sleep(0.05)


def attempts(root: Path, run_id: str) -> int:
    found = RunFolder(root, run_id).provenance()
    return len(found["attempts"]) if found else 0


@pytest.mark.compiles
def test_two_at_once_share_the_work(tmp_path, cache):
    root = tmp_path / "runs"
    (run_id,) = finish_all_but(root, 1)
    both = [start(root, cache) for _ in range(2)]
    assert [process.wait(600) for process in both] == [0, 0]
    assert attempts(root, run_id) == 1


@pytest.mark.compiles
@pytest.mark.parametrize("damage", ["shorter", "changed"])
def test_a_damaged_shard_is_one_sentence(tmp_path, damage):
    """By size when it is opened, by checksum before a run: nothing is trained on it."""
    root, bad = tmp_path / "runs", tmp_path / "cache"
    folder = prepare("smoke", bad)
    shard = next(folder.glob("train*.bin"))
    content = bytearray(shard.read_bytes())
    content[50] ^= 1
    shard.write_bytes(content[:-2] if damage == "shorter" else content)
    finish_all_but(root, 2)
    done = subprocess.run(
        command(root, bad), cwd=ROOT, env=environment(), capture_output=True, encoding="utf-8", timeout=600
    )
    assert done.returncode == 2
    assert "is damaged" in done.stderr and "Traceback" not in done.stderr
    failures = list(root.glob("*/failure.json"))
    assert len(failures) == 2 and "damaged" in json.loads(failures[0].read_text(encoding="utf-8"))["reason"]


def test_a_folder_of_another_config_is_left_out_and_named(tmp_path):
    runs = expand(load("table5"), "smoke")
    open_folder(tmp_path, runs[0].config).path.rename(tmp_path / runs[1].run_id)
    assert set(runs) - set(pending_runs(runs, tmp_path)) == {runs[1]}
    assert "holds another config" in unusable(runs, tmp_path)[runs[1].run_id]


def test_too_many_workers(tmp_path, cache):
    finish_all_but(tmp_path, 1)
    done = subprocess.run(
        command(tmp_path, cache, "--workers", "999"), cwd=ROOT, env=environment(), capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 2 and "workers=999" in done.stderr and "Traceback" not in done.stderr
