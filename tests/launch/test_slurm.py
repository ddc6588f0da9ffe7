"""Jobs of Slurm: the scripts as committed, launching twice, and what a script does when its tasks end or are stopped.

The programs of Slurm are stand-ins (tests/support/slurm_stand_in.py); the scripts are run as they are.
"""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import slurm_stand_in

from experiments.registry import load
from repro.commands import cli, launch, run
from repro.diloco.resource_flags import asked
from repro.diloco.resources import Resources, local_resources
from repro.errors import EXIT_INTERRUPTED
from repro.launch.engine import Request, job_name
from repro.launch.slurm import EXAMPLE, SlurmSettings, script
from repro.runs.folder import RunFolder
from repro.spec.experiment import PlannedRun, expand, unique

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "launch"
SETTINGS = SlurmSettings(**tomllib.loads(EXAMPLE))
IMAGE = dict(
    checkout=None,
    container="/shared/images/train.sqsh",
    account=None,
    cpus_per_task=8,
    sbatch=("--qos=high", "--mem=0"),
)
CASES = {"slurm-checkout": SETTINGS, "slurm-container": replace(SETTINGS, **IMAGE)}


def run_of(beginning: str, scale: str = "paper") -> PlannedRun:
    return next(run for run in unique(expand(load("table5"), scale)) if run.run_id.startswith(beginning))


RUN = run_of("1b-stream-h100")


def golden(name: str, text: str) -> None:
    if os.environ.get("UPDATE_GOLDEN") == "1":
        (GOLDEN / name).write_text(text, encoding="utf-8")
    assert text == (GOLDEN / name).read_text(encoding="utf-8"), "if that is meant: make test-launch UPDATE_GOLDEN=1"


@pytest.mark.parametrize("case", CASES)
def test_scripts_are_the_golden_ones(case: str) -> None:
    golden(f"{case}.sbatch", script(RUN, Request("table5", "paper", 1), CASES[case]))


def test_the_local_script_is_the_golden_one_and_dry(tmp_path: Path) -> None:
    """What `launch` on this machine does is `run` with the same options."""
    words = ["launch", "table5", "--scale", "mini", "--workers", "2", "--root", "my runs", "--dry-run"]
    assert cli.main([*words, "--out", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "run.sh").read_text(encoding="utf-8")
    golden("local.sh", text)
    args = cli._parser().parse_args(shlex.split(text.splitlines()[1])[4:])
    assert (args.command, args.experiment, args.workers) == (run.run, "table5", 2) and args.root == Path("my runs")
    assert launch.local_script(Request("table5", "mini", 1), launch.LocalSettings("r", "c", None, None, 9.0)) == (
        "#!/bin/sh\nexec python -m repro run table5 --scale mini --seeds 1 --root r --cache c --takeover-after 9.0\n"
    )


@pytest.mark.parametrize("case", CASES)
def test_a_script_asks_for_what_the_run_needs_and_runs_the_trainer(case: str) -> None:
    settings = CASES[case]
    text = (GOLDEN / f"{case}.sbatch").read_text(encoding="utf-8")
    assert subprocess.run(["bash", "-n"], input=text, encoding="utf-8", check=False).returncode == 0
    tasks = int(slurm_stand_in.option(text, "nodes")) * int(slurm_stand_in.option(text, "ntasks-per-node"))
    assert tasks == settings.devices == local_resources(RUN.config, tasks).devices
    (line,) = (line for line in text.splitlines() if line.startswith("srun "))
    words = shlex.split(line)
    args = cli._parser().parse_args(words[words.index("repro") + 1 :])
    assert (str(args.config), args.experiment, args.scale, args.cluster) == (RUN.run_id, "table5", "paper", True)
    assert (args.restarts, args.meet_within) == (settings.restarts, settings.meet_within_s)
    assert not re.search("google|gs://|gcloud|project|zone", text)


def test_the_page_prints_the_example_and_good_tasks() -> None:
    page = (ROOT / "docs" / "slurm.md").read_text(encoding="utf-8")
    assert all(f"    {line}" in page for line in EXAMPLE.splitlines())
    (line,) = (line for line in page.splitlines() if line.startswith("    srun") and " train " in line)
    words = shlex.split(line)
    args = cli._parser().parse_args(words[words.index("repro") + 1 :])
    resources = Resources(**asked(args))
    resources.check(RUN.config)
    assert str(args.config) == RUN.run_id
    nodes, gpus = (int(words[words.index(name) + 1]) for name in ("--nodes", "--gpus-per-node"))
    assert resources.devices == nodes * gpus


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-ins on the PATH; returns their folder. A task has one device."""
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
    for name, value in slurm_stand_in.install(tmp_path / "slurm", first_job()).items():
        monkeypatch.setenv(name, value)
    return tmp_path / "slurm"


def first_job() -> int:
    """The number of a job whose port for JAX is free: 61440 plus the last 12 bits of the job's number."""
    for number in range(os.getpid(), os.getpid() + 4096):
        with socket.socket() as probe:
            try:
                probe.bind(("localhost", 61440 + number % 4096))
            except OSError:
                continue
        return number
    raise AssertionError("no port is free")


def toml(folder: Path, **changed: Any) -> Path:
    """A launch.toml for this machine."""
    values = {"time": "0:10:00", "nodes": 2, "gpus_per_node": 0, "checkout": str(ROOT), "python": sys.executable}
    values |= {"root": str(folder / "runs"), "cache": str(folder / "cache"), **changed}
    path = folder / "launch.toml"
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in values.items() if value is not None]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def launching(settings: Path, beginning: str, *words: str) -> list[str]:
    scale = ["launch", "table5", "--engine", "slurm", "--scale", "smoke", "--settings", str(settings)]
    return [*scale, "--run", beginning, *words]


def jobs(cluster: Path) -> dict[str, str]:
    """Number → state."""
    return {home.name: (home / "state").read_text(encoding="utf-8") for home in (cluster / "jobs").glob("*")}


def test_launching_twice_launches_once_and_failed_runs_are_named(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = [run.run_id for run in unique(expand(load("table5"), "smoke")) if run.config.replicas == 2]
    new, done, failed = planned[:3]
    RunFolder(tmp_path / "runs", done).write_summary({"run_id": done})
    RunFolder(tmp_path / "runs", failed).write_failure("loss is NaN at step 7", crashed=False)
    words = launching(toml(tmp_path), new, "--run", done, "--run", failed)
    assert cli.main(words) == 2
    (job,) = jobs(cluster)
    out = capsys.readouterr().out
    assert f"{new}: launched ({job_name(new)}, job {job})\n{done}: finished\n" in out
    assert f"{failed}: failed before: loss is NaN at step 7 (--retry-failed launches it again)\n" in out
    assert cli.main([*words, "--retry-failed"]) == 0
    out = capsys.readouterr().out
    assert f"{new}: there already, left alone ({job_name(new)})\n" in out and len(jobs(cluster)) == 2
    (cluster / "jobs" / job / "state").write_text("ENDED", encoding="utf-8")
    assert cli.main(launching(toml(tmp_path), new)) == 0 and len(jobs(cluster)) == 3


def test_a_dry_run_writes_scripts_and_asks_slurm_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    new = run_of("", "smoke").run_id
    assert cli.main(launching(toml(tmp_path), new, "--dry-run", "--out", str(tmp_path / "out"))) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == [f"{new}.sbatch"]
    assert not (tmp_path / "runs").exists()


def test_without_slurm_or_where_it_fails_one_sentence(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = launching(toml(tmp_path), run_of("", "smoke").run_id)
    (cluster / "bin" / "sbatch").write_text(
        "#!/bin/sh\necho 'sbatch: error: no such partition' >&2\nexit 1\n", encoding="utf-8"
    )
    assert cli.main(words) == 2
    said = "sbatch failed (exit code 1: sbatch: error: no such partition): mend it and launch again"
    assert said in capsys.readouterr().err
    monkeypatch.setenv("PATH", "/nowhere")
    assert cli.main(words) == 2
    assert "squeue can't be run (No such file or directory): launch where Slurm's" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (dict(time="soon"), "time='soon': give [DAYS-]HOURS:MINUTES:SECONDS"),
        (dict(time=24), "time=24: give [DAYS-]HOURS"),
        (dict(nodes=0), "nodes=0: give a whole number from 1"),
        (dict(gpus_per_node=-1), "gpus_per_node=-1: give a whole number from 0"),
        (dict(root="gs://b/runs"), "root='gs://b/runs': give an absolute path"),
        (dict(cache="/a b"), "cache='/a b': give an absolute path"),
        (dict(partition="--x"), "partition='--x': give a name of letters"),
        (dict(container="image"), "give one of them, the repository on the shared file system or an image"),
        (dict(checkout=None), "checkout=None with container=None: give one of them"),
        (dict(python="-c"), "python='-c': give the path of a Python"),
        (dict(platform="tpu"), "platform='tpu': give cuda or rocm"),
        (dict(sbatch=["--x; rm"]), "give a list of options of sbatch"),
        (dict(zone="us-west4-a"), "unknown setting 'zone'"),
        (dict(time=None), "lacks time: write it as below"),
        (dict(nodes=7), "devices of nodes=7 with gpus_per_node=0: choose others"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_bad_settings_are_one_sentence(
    changed: dict[str, Any], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*launching(toml(tmp_path, **changed), run_of("", "smoke").run_id), "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert sentence in error and "Traceback" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["launch.toml"]


# A trainer that ends at once with a code, or waits for the signal and leaves with 42. Tasks write into one log: a line
# is one write, for `print` makes several of it where PYTHONUNBUFFERED is set, and those of two tasks mix.
TRAINER = """\
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.1 * int(os.environ["SLURM_PROCID"])), sys.exit(42)))
os.write(1, f"up {os.environ['JAX_PLATFORMS']}\\n".encode())
code = os.environ["CODE"]
time.sleep(60) if code == "wait" else os.kill(os.getpid(), 6) if code == "abort" else sys.exit(int(code))
"""


def stand_in_trainer(folder: Path) -> str:
    path = folder / "trainer"
    path.write_text(f"#!{sys.executable}\n{TRAINER}", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def signalled(cluster: Path, job: str, running: subprocess.Popen[str]) -> None:
    """As Slurm stops a job: the tasks get the signal; here the shell of the script gets it too."""
    for pid in (cluster / "jobs" / job / "tasks").read_text(encoding="utf-8").split():
        os.kill(int(pid), signal.SIGTERM)
    running.send_signal(signal.SIGTERM)


def until(condition: Any) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("code", "ended", "state"),
    [
        ("0", 0, "RUNNING"),
        ("1", 1, "RUNNING"),
        ("2", 2, "RUNNING"),
        ("127", 127, "RUNNING"),
        ("42", 42, "PENDING"),
        ("abort", 134, "PENDING"),
        ("wait", 42, "PENDING"),
        ("cancelled", 42, "COMPLETING"),
    ],
)
def test_only_what_was_stopped_or_lost_is_queued_again(
    code: str, ended: int, state: str, cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODE", "wait" if code == "cancelled" else code)
    new = run_of("", "smoke").run_id
    assert cli.main(launching(toml(tmp_path, python=stand_in_trainer(tmp_path)), new)) == 0
    (job,) = jobs(cluster)
    running, log = slurm_stand_in.start(cluster, job), tmp_path / "runs" / f"{new}.log"
    if code in ("wait", "cancelled"):
        until(lambda: log.read_text(encoding="utf-8").count("up cpu\n") == 2)
        if code == "cancelled":
            (cluster / "jobs" / job / "state").write_text("COMPLETING", encoding="utf-8")
        signalled(cluster, job, running)
    assert running.wait(60) == ended
    assert jobs(cluster) == {job: state}


@pytest.mark.compiles
def test_a_run_is_stopped_queued_again_and_finished(
    cluster: Path, tmp_path: Path, smoke_tokens: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trainer itself in two processes, which meet as JAX finds them in what Slurm says."""
    run = next(run for run in unique(expand(load("table5"), "smoke")) if run.config.replicas == 2)
    words, folder = launching(toml(tmp_path, cache=str(smoke_tokens.parents[1])), run.run_id), tmp_path / "runs"
    assert cli.main(words) == 0
    (job,) = jobs(cluster)
    running = slurm_stand_in.start(cluster, job)
    log = folder / f"{run.run_id}.log"
    until(lambda: (folder / run.run_id / "config.json").is_file() or running.poll() is not None)
    assert running.poll() is None, log.read_text(encoding="utf-8")
    signalled(cluster, job, running)  # while the programs are compiled
    assert running.wait(240) == EXIT_INTERRUPTED, log.read_text(encoding="utf-8")
    assert jobs(cluster) == {job: "PENDING"}
    assert slurm_stand_in.start(cluster, job).wait(240) == 0, log.read_text(encoding="utf-8")
    made = RunFolder(folder, run.run_id)
    assert made.summary() is not None and made.failure() is None
    attempts = (made.provenance() or {})["attempts"]
    assert [(each["outcome"], each["mesh"]["processes"]) for each in attempts] == [("interrupted", 2), ("finished", 2)]
    capsys.readouterr()
    assert cli.main(words) == 0
    assert capsys.readouterr().out == f"{run.run_id}: finished\n"
