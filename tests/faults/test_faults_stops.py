"""Stops that are answered in time, and work that is stuck: each line is a fault that was seen."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest
import tiny
import yaml

from repro.commands.cli import main
from repro.corpus.prepare import prepare
from repro.corpus.tokens import TokenSet, open_tokens
from repro.errors import EXIT_INTERRUPTED
from repro.files import write_json
from repro.launch import failure_policy
from repro.launch.failure_policy import _UNCOUNTED, uncounted
from repro.launch.xpk_program import create_workload
from repro.runs import restarts
from repro.runs.folder import RunFolder, open_folder
from repro.runs.leases import Lease, Watch, newest, take
from repro.runs.liveness import LIMITS_S, Progress, watch_progress
from repro.runs.status import clock_of, states, status_text
from repro.runs.takeover import begin

ROOT = Path(__file__).parents[2]
RUN = tiny.run_config(tiny.synced())
LEASE = 0.3
SOON = MappingProxyType(dict.fromkeys(LIMITS_S, LEASE))


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return open_folder(tmp_path / "runs", RUN)


def state(folder: RunFolder, later: float = 0.0) -> dict:
    at = clock_of(folder.root)
    assert at is not None
    return states(None, folder.root, at + later)[0]


@contextmanager
def held(folder: RunFolder, limits: Mapping[str, float] = SOON, **options: Callable[[str], None]) -> Iterator[Lease]:
    lease = take(folder, newest(folder), LEASE, limits, **options)
    assert lease is not None
    try:
        yield lease
    finally:
        lease.release("failed")


def read(text: TokenSet) -> None:
    with contextlib.suppress(OSError, ValueError):  # a pipe is no shard, as it learns when it wakes
        text.read(0, 8)


def test_a_reader_that_blocks_on_a_shard_is_stalled_and_its_run_is_taken_over(
    folder: RunFolder, tmp_path: Path
) -> None:
    text = open_tokens(prepare("smoke", tmp_path / "cache"))
    shard = text.folder / text.shards[0].file
    shard.unlink()
    os.mkfifo(shard)
    watcher, said = Watch(), []
    with held(folder, on_stall=said.append) as lease:
        lease.mark({"stage": "training", "step": 4, "loss": 2.0, "tokens_per_s": 16.0})
        reader = threading.Thread(target=read, args=(text,), daemon=True)
        reader.start()
        assert state(folder)["state"] == "running"
        until(lambda: state(folder)["state"] == "stalled")
        record = state(folder, later=10_000.0)
        assert (record["state"], record["step"], record["stage"]) == ("stalled", 4, "training")
        assert "seconds_left" not in record
        assert f"stalled since {record['since']}" in status_text(None, folder.root, clock_of(folder.root))
        assert "no progress in training" in said[0]
        until(lambda: watcher.free(folder) == 1)
        with held(folder) as successor:
            until(lease.lost)
            assert lease.lost(look=True)
            assert successor.number == 2 and not successor.lost(look=True) and state(folder)["state"] == "running"
        assert stat.S_ISFIFO(shard.stat().st_mode)
        os.close(os.open(shard, os.O_WRONLY))  # the reader wakes
        reader.join(20)


@pytest.mark.parametrize("phase", [phase for phase in LIMITS_S if phase != "training"])
def test_a_phase_is_healthy_for_as_long_as_its_own_limit(phase: str) -> None:
    """Compilation, validation, saving, scoring and waiting may each take minutes, in which no step is made."""
    progress, waits = Progress("training"), 10.0
    progress.mark(f"{phase} 1/3")
    assert not any(progress.stalled(waits) for _ in range(int(LIMITS_S[phase] / waits)))
    assert LIMITS_S[phase] >= 3600 and progress.stalled(waits + 1)
    progress.mark()
    assert not progress.stalled(waits)


def test_steps_keep_a_lease_alive_and_a_late_one_brings_it_back(folder: RunFolder) -> None:
    watcher = Watch()
    with held(folder) as lease:
        lease.mark({"stage": "training", "step": 1})
        end = time.monotonic() + 4 * LEASE
        while time.monotonic() < end:
            lease.mark()
            assert watcher.free(folder) is None and state(folder)["state"] == "running"
            time.sleep(LEASE / 10)
        until(lambda: state(folder)["state"] == "stalled")
        lease.mark()
        until(lambda: state(folder)["state"] == "running")
        assert not lease.lost(look=True)


def test_a_machine_that_slept_used_nothing_of_its_limit() -> None:
    """Only waits of the watching thread count, whatever the clocks say when it wakes."""
    progress = Progress("training", {"training": 5.0})
    assert [progress.stalled(1.0) for _ in range(6)] == [False] * 5 + [True]


def test_work_without_a_lease_is_watched_too() -> None:
    done, progress = threading.Event(), Progress("scoring", SOON)
    watch_progress(progress, LEASE / 3, done.set)
    assert done.wait(20) and "no progress in scoring" in progress.sentence("x")


@pytest.mark.parametrize(
    ("ahead_s", "silent_s", "seen"),
    [(120.0, 0.0, "running"), (-3600.0, 0.0, "running"), (-3600.0, 10 * LEASE, "stopped"), (3600.0, 1e6, "stopped")],
    ids=["live-and-two-minutes-behind", "live-and-an-hour-ahead", "dead-and-an-hour-ahead", "dead-and-behind"],
)
def test_status_compares_no_clocks_of_machines(
    ahead_s: float, silent_s: float, seen: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ahead_s` is how far the clock of the machine that looks is before that of the one that works."""
    monkeypatch.setenv("REPRO_HOST", "elsewhere")
    with held(folder, LIMITS_S):
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + ahead_s)
        assert state(folder, later=silent_s)["state"] == seen


def test_where_the_clock_of_the_files_can_not_be_asked_status_says_when_it_saw_the_last_sign(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refused)
    assert clock_of(folder.root) is None
    with held(folder):
        (record,) = states(None, folder.root, None)
        assert record["state"] == "unclear" and abs(time.time() - _seconds(record["last_sign"])) < 60
        assert f"last sign at {record['last_sign']}" in status_text(None, folder.root, None)


def _seconds(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S"))


DEAF = """
import hashlib, signal, sys
from repro import stopping

signal.signal(signal.SIGINT, signal.default_int_handler)  # as at a terminal: what runs in the background may ignore it

def deaf(rounds):  # as in a compilation: no instruction of Python until it ends
    print("deaf", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", rounds)

stopping.PATIENCE_S = 0.2
what = sys.argv[1]
if what == "command":
    with stopping.interruptible("interrupted; run the same command to go on."):
        deaf(2**28)
stop = stopping.Stop(lambda sentence: print(sentence, flush=True))
if what == "free":
    stop.free(lambda: "released")
    deaf(2**28)
deaf(2**20)
print("saved" if stop() else "heard nothing", flush=True)
stop.free(lambda: "released")
deaf(2**28)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("what", "out", "err"),
    [
        ("free", "deaf\nreleased\n", ""),
        ("busy", "deaf\nsaved\ndeaf\nreleased\n", ""),
        ("command", "deaf\n", "repro: interrupted; run the same command to go on.\n"),
    ],
    ids=["where-nothing-is-unsaved", "where-something-is", "in-any-other-command"],
)
def test_a_stop_is_answered_while_the_main_thread_hears_nothing(
    what: str, out: str, err: str, number: signal.Signals
) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", DEAF, what], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )
    assert child.stdout is not None
    first = child.stdout.readline()
    time.sleep(0.05)
    child.send_signal(number)
    rest, error = child.communicate(timeout=30)
    assert (child.returncode, first + rest, error) == (EXIT_INTERRUPTED, out, err)


def test_a_worker_whose_parent_dies_in_a_compilation_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PARENT, ORPHAN], cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8", timeout=30
    )
    until(lambda: not _lives(int(done.stdout)))


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid)
"""
ORPHAN = """
import hashlib
from repro.stopping import Stop
Stop(lambda _: None, with_parent=True).free(lambda: "")
print("deaf", flush=True)
hashlib.pbkdf2_hmac("sha256", b"", b"", 2**28)
"""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


ABORTS = """
import os, threading
from repro.stopping import explain_abort
explain_abort("another process of the run was lost")
threading.Thread(target=os.abort).start()
threading.Event().wait()
"""


def test_a_sentence_stands_beside_an_abort_of_a_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ABORTS], cwd=ROOT, stderr=subprocess.PIPE, encoding="utf-8", timeout=30
    )
    assert done.returncode == -signal.SIGABRT
    assert "repro: another process of the run was lost\n" in done.stderr


MANIFESTS = sorted((ROOT / "tests" / "golden" / "launch").glob("*.yaml"))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_pre_emptions_use_up_no_restarts_and_127_ends_the_run(path: Path) -> None:
    spec = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
    assert spec["failurePolicy"]["rules"] == [
        {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]},
        {"action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["BackoffLimitExceeded"]},
    ]
    (rule,) = spec["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"]["rules"]
    final = set(range(1, 256)) - set(rule["onExitCodes"]["values"])
    assert rule["action"] == "FailJob" and {1, 2, 126, 127} <= final and not final & {42, 134, 137, 143}


def test_a_manifest_of_another_xpk_is_refused() -> None:
    for path in MANIFESTS:
        with pytest.raises(ValueError, match="another failure policy than is known"):
            uncounted(path.read_text(encoding="utf-8").replace("FailJobSet", "Fail"))


def test_what_is_applied_is_edited_and_the_rest_is_kubectl(tmp_path: Path) -> None:
    rendered, real = tmp_path / "rendered.yaml", tmp_path / "kubectl"
    golden = MANIFESTS[0].read_text(encoding="utf-8")
    before = golden.replace(f"{_UNCOUNTED.format('      ', '        ')}", "").replace("[42,128,", "[42,127,128,")
    assert before != golden and uncounted(before) == golden
    rendered.write_text(before, encoding="utf-8")
    real.write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    real.chmod(0o755)
    for words in (["apply", "-f", str(rendered)], ["get", "workloads"]):
        done = subprocess.run(
            [sys.executable, failure_policy.__file__, str(real), *words],
            stdout=subprocess.PIPE,
            encoding="utf-8",
            timeout=30,
        )
        assert (done.returncode, done.stdout) == (0, " ".join(words) + "\n")
    assert rendered.read_text(encoding="utf-8") == golden


def test_a_launch_applies_the_edited_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through an xpk that renders as it does and calls the kubectl that it finds."""
    golden = MANIFESTS[0].read_text(encoding="utf-8")
    before = golden.replace(_UNCOUNTED.format("      ", "        "), "").replace("[42,128,", "[42,127,128,")
    (tmp_path / "rendered.yaml").write_text(before, encoding="utf-8")
    for name, text in (("kubectl", 'cp "$3" applied.yaml'), ("xpk", "kubectl apply -f rendered.yaml")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert create_workload(str(tmp_path / "xpk"), ["workload", "create"])
    assert (tmp_path / "applied.yaml").read_text(encoding="utf-8") == golden


def _attempt(folder: RunFolder, number: int, reached: int | None = None) -> None:
    home = begin(folder.path, number)
    if reached is not None:
        (home / "checkpoints" / str(reached)).mkdir(parents=True)


def test_starts_without_a_new_checkpoint_are_counted_in_the_folder(folder: RunFolder) -> None:
    counted = []
    for number, reached in enumerate((None, None, 6, None, 9, None, None), start=1):
        counted.append(restarts.fruitless(folder, number))
        _attempt(folder, number, reached)
    assert counted == [0, 1, 2, 0, 1, 0, 1] and restarts.fruitless(folder, 8) == 2
    with held(folder):
        restarts.give_up(folder)  # of lease 1, as this folder has no others: what came before it counts no more
    write_json(folder.path / "given_up.json", {"lease": 8})
    assert [restarts.fruitless(folder, number) for number in (9, 10)] == [0, 1]


def test_starts_that_did_not_meet_are_counted_once_and_wait_longer(folder: RunFolder) -> None:
    for start in range(3):
        before = restarts.unmet(folder)
        assert before == start
        for _ in range(4):  # processes of one start
            restarts.note_unmet(folder, before)()
    assert [restarts.patience(300.0, k) for k in (0, 1, 3, 9)] == [300.0, 600.0, 2400.0, 3600.0]
    assert restarts.patience(7200.0, 5) == 7200.0
    restarts.forget_unmet(folder)
    assert restarts.unmet(folder) == 0


def test_a_run_that_is_started_in_vain_is_given_up(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for before in range(3):
        restarts.note_unmet(folder, before)()
    words = ["train", str(folder.path / "config.json"), "--root", str(folder.root), "--cluster", "--restarts", "3"]
    assert main(words) == 2
    assert "was started 3 times in a row without a new checkpoint" in capsys.readouterr().err
    assert not (folder.failure() or {})["crashed"] and restarts.unmet(folder) == 0
