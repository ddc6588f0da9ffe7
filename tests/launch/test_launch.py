"""Jobs on pods: xpk's command lines and manifests as committed, launching twice, and what bash does with a signal.

tests/launch/test_launch_manifests.py (slow) renders the manifests again with xpk itself.
"""

import argparse
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import launch_rig
import pytest
import yaml

from experiments.registry import experiment_names, load, trained
from repro import files
from repro.commands import cli
from repro.diloco.resource_flags import HELP, add_flags, asked, flag_words
from repro.diloco.resources import Resources
from repro.launch import xpk
from repro.launch.engine import NAME_LIMIT, read_settings
from repro.launch.xpk_jobs import EXAMPLE, PodJob, PodSettings, job_for, train_command, xpk_arguments
from repro.machines.placement import chips_of, place
from repro.runs.folder import RunFolder
from repro.spec.experiment import PlannedRun, expand, unique
from repro.spec.identity import run_id

ROOT = Path(__file__).parents[2]
CASES = list(launch_rig.CASES)
RESTARTED = {42, *range(128, 256)}
SETTINGS = PodSettings(**launch_rig.SETTINGS)


def command_line(case: str) -> str:
    """As one would type it, an option a line."""
    arguments = xpk_arguments(launch_rig.job_of(case), launch_rig.REQUEST, launch_rig.settings_of(case))
    starts = [i for i, word in enumerate(arguments) if word.startswith("--")]
    options = [arguments[i:j] for i, j in zip(starts, [*starts[1:], None], strict=True)]
    return " \\\n  ".join(map(shlex.join, [["xpk", *arguments[: starts[0]]], *options])) + "\n"


@pytest.mark.parametrize("case", CASES)
def test_command_lines_are_the_golden_ones(case: str) -> None:
    path = launch_rig.GOLDEN / f"{case}.sh"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(command_line(case), encoding="utf-8")
    assert command_line(case) == path.read_text(encoding="utf-8"), "if that is meant: make test-launch UPDATE_GOLDEN=1"


@pytest.fixture(autouse=True)
def bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in buckets may be named; nothing here opens one."""
    monkeypatch.setattr(files, "_bucket", lambda: None)


def manifest(case: str) -> dict[str, Any]:
    return yaml.safe_load((launch_rig.GOLDEN / f"{case}.yaml").read_text(encoding="utf-8"))


def pod(case: str) -> dict[str, Any]:
    (job,) = manifest(case)["spec"]["replicatedJobs"]
    return job["template"]["spec"]["template"]["spec"]


def container(case: str) -> dict[str, Any]:
    (found,) = pod(case)["containers"]
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_manifest_is_one_jobset_of_the_runs_slices(case: str) -> None:
    found, job = manifest(case), launch_rig.job_of(case)
    assert (found["apiVersion"], found["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert found["metadata"]["name"] == job.name
    assert found["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "multislice-queue"
    (slices,) = found["spec"]["replicatedJobs"]
    hosts = slices["template"]["spec"]
    resources = job.placement.resources
    assert slices["replicas"] == job.run.config.replicas * resources.data == job.placement.slices
    assert hosts["parallelism"] == hosts["completions"]
    chips = slices["replicas"] * hosts["parallelism"] * container(case)["resources"]["limits"]["google.com/tpu"]
    assert chips == resources.devices == job.chips
    assert pod(case)["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": job.placement.topology.partition(":")[2],
    }


@pytest.mark.parametrize("case", CASES)
def test_a_pod_runs_the_trainer_with_the_rules_resources(case: str) -> None:
    job, settings = launch_rig.job_of(case), launch_rig.settings_of(case)
    script = container(case)["command"][2]
    line = train_command(job, launch_rig.REQUEST, settings)
    assert f"({line}) & PID=$!;" in script
    args = cli._parser().parse_args(shlex.split(line)[4:])
    assert (str(args.config), args.experiment, args.scale, args.cluster) == (job.run.run_id, "table5", "paper", True)
    assert Resources(**asked(args)) == job.placement.resources
    environment = {entry["name"]: entry["value"] for entry in container(case)["env"]}
    assert environment == {"JAX_PLATFORMS": "tpu,cpu", "JAX_COMPILATION_CACHE_DIR": "gs://my-bucket/xla"}
    assert container(case)["image"] == settings.image


@pytest.mark.parametrize("case", CASES)
def test_only_pre_emption_and_signals_restart_a_jobset(case: str) -> None:
    spec = manifest(case)["spec"]
    assert spec["failurePolicy"]["maxRestarts"] == SETTINGS.restarts
    (rule,) = spec["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"]["rules"]
    codes = rule["onExitCodes"]
    assert (rule["action"], codes["operator"]) == ("FailJob", "NotIn")
    assert codes["containerName"] == container(case)["name"]
    assert set(codes["values"]) == RESTARTED
    assert cli.EXIT_INTERRUPTED in RESTARTED and not RESTARTED & {0, 1, cli.EXIT_USER_ERROR}
    assert pod(case)["restartPolicy"] == "Never"
    assert pod(case)["terminationGracePeriodSeconds"] == SETTINGS.grace_s


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_pods_shell_gives_the_signal_to_python_and_its_exit_code_back(tmp_path: Path) -> None:
    """The script of the manifest itself, with a program in Python's place; it looks every five seconds."""
    stub = "import os, signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(42))\nprint('up', flush=True)\n"
    program(
        tmp_path / "python", stub + "code = os.environ['CODE']\ntime.sleep(60) if code == '' else sys.exit(int(code))"
    )
    script = container("35m-dp")["command"]
    pods = {}
    for code in ("", "0", "1", "2"):
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CODE": code}
        pods[code] = subprocess.Popen(script, env=environment, stdout=subprocess.PIPE, encoding="utf-8")
    for found in pods.values():
        assert found.stdout is not None
        while found.stdout.readline().strip() != "up":
            pass
    pods[""].send_signal(signal.SIGTERM)
    ended = {code: found.communicate(timeout=30) and found.returncode for code, found in pods.items()}
    assert ended == {"": 42, "0": 0, "1": 1, "2": 2}


def every_run() -> list[PlannedRun]:
    return [run for spec in trained("all") for run in expand(spec, "paper")]


def late(run: PlannedRun) -> PlannedRun:
    """The run with the largest seed, whose id is as long as one can be."""
    config = replace(run.config, seed=2**31 - 1)
    return replace(run, config=config, run_id=run_id(config))


def test_workload_names_are_xpks_and_one_to_one() -> None:
    placement = launch_rig.job_of("35m-dp").placement
    found: dict[str, str] = {}
    for run in [*every_run(), *map(late, every_run())]:
        name = PodJob(run, placement).name
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) and len(name) <= NAME_LIMIT
        assert found.setdefault(name, run.run_id) == run.run_id


def test_every_run_of_table_5_gets_slices_that_its_batch_can_be_laid_on() -> None:
    runs = unique(expand(load("table5"), "paper"))
    jobs = [job_for(run, SETTINGS) for run in runs]
    assert len(jobs) == 26
    for job in jobs:
        assert chips_of(job.placement.topology) * job.placement.slices == job.chips
        assert job.placement == place(job.run.config) and job.placement.topology != "v5e:2x2"  # xpk has none


OTHER = {f.name: {bool: not f.default, int: 3}.get(type(f.default)) for f in fields(Resources)}
OTHER |= {"remat": "full", "attention": "flash"}


@pytest.mark.parametrize("changed", [(), *((name,) for name in OTHER), tuple(OTHER)], ids=str)
def test_resources_come_back_from_their_words(changed: tuple[str, ...]) -> None:
    resources = replace(Resources(), **{name: OTHER[name] for name in changed})
    parser = argparse.ArgumentParser()
    add_flags(parser.add_argument_group("x"))
    assert Resources(**asked(parser.parse_args(flag_words(resources)))) == resources


def test_every_resource_has_a_help_text() -> None:
    assert set(HELP) == {field.name for field in fields(Resources)}


RENDERED = """\
kind: JobSet
    rules:
      - action: FailJobSet
        onJobFailureReasons:
        - PodFailurePolicy
                values: [42,127,128,129]
"""
FAKE = f"""
import pathlib, sys
RENDERED = {RENDERED!r}
"""
FAKE += """
words = sys.argv[1:]
path = pathlib.Path(__file__).with_name("workloads") / words[words.index("--workload") + 1]
if "--dry-run" in words:
    pathlib.Path(words[words.index("--output-manifest-file") + 1]).write_text(RENDERED)
    sys.exit(0)
if path.exists():
    if input("overwrite it?") != "n":
        path.unlink()
    print(f"[XPK] {path.name} already exists, XPK will not create this workload. Please pick a new workload name")
    sys.exit(1)
path.touch()
"""


@pytest.fixture
def pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A launch by a program that keeps workloads as xpk does, with a folder for the bucket."""
    (tmp_path / "workloads").mkdir()
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr(xpk, "folder_at", lambda _: tmp_path / "runs")
    keys = {key: value for key, value in launch_rig.SETTINGS.items() if isinstance(value, str)}
    (tmp_path / "launch.toml").write_text(
        "".join(f'{key} = "{value}"\n' for key, value in keys.items()), encoding="utf-8"
    )
    stand_in = program(tmp_path / "xpk", FAKE)
    words = ["launch", "table5", "--engine", "xpk", "--scale", "paper", "--settings", str(tmp_path / "launch.toml")]
    return [*words, "--xpk", str(stand_in)]


def workloads(tmp_path: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "workloads").iterdir()}


def test_launching_twice_launches_once(pods: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*pods, "--run", "35m-d"]
    assert cli.main(words) == 0
    first = workloads(tmp_path)
    assert len(first) == 2
    assert capsys.readouterr().out.count("launched") == 2
    assert cli.main(words) == 0
    assert workloads(tmp_path) == first
    assert capsys.readouterr().out.count("left alone") == 2


def test_what_is_finished_or_failed_is_not_launched(
    pods: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done, failed, new = [r.run_id for r in unique(expand(load("table5"), "paper"))][:3]
    RunFolder(tmp_path / "runs", done).write_summary({"run_id": done})
    RunFolder(tmp_path / "runs", failed).write_failure("Traceback:\n  a line\nloss is NaN at step 7\n", crashed=True)
    words = [*pods, "--run", done, "--run", failed, "--run", new]
    assert cli.main(words) == 2
    assert list(workloads(tmp_path)) == [f"r-{new}"]
    assert "failed before: loss is NaN at step 7 (--retry-failed launches it again)" in capsys.readouterr().out
    assert cli.main([*words, "--retry-failed"]) == 0
    assert set(workloads(tmp_path)) == {f"r-{new}", f"r-{failed}"}


def test_a_dry_run_writes_a_manifest_of_each_run_and_starts_nothing(pods: list[str], tmp_path: Path) -> None:
    assert cli.main([*pods, "--dry-run", "--out", str(tmp_path / "out"), "--run", "4b"]) == 0
    assert sorted(path.stem[:5] for path in (tmp_path / "out").iterdir()) == ["4b-dp", "4b-st"]
    assert not workloads(tmp_path) and not list((tmp_path / "runs").iterdir())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("clustr = 'x'", "unknown setting 'clustr': did you mean 'cluster'?"),
        ("cluster = 3", "cluster=3: give a name of letters"),
        ("slices = 0", "slices=0: give a whole number from 1"),
        ("slices = true", "slices=True: give a whole number"),
        ("root = 'runs'", "root='runs': give gs://BUCKET/PATH, as pods on several machines share a bucket"),
        ("cache = 'tokens'", "cache='tokens': give an absolute path"),
        ("topology = 'v5e'", "topology 'v5e': name the chip and the sides"),
        ("topology = 'v9:4x4'", "the chip is one of"),
        ("cluster = ", "is not TOML"),
        ("project = ''", "project='': give a name of letters"),
    ],
)
def test_bad_settings_are_one_sentence(
    text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "launch.toml"
    values = {k: v for k, v in launch_rig.SETTINGS.items() if isinstance(v, str) and not text.startswith(f"{k} ")}
    path.write_text("".join(f'{key} = "{value}"\n' for key, value in values.items()) + text, encoding="utf-8")
    assert cli.main(["launch", "table5", "--engine", "xpk", "--scale", "paper", "--settings", str(path)]) == 2
    error = capsys.readouterr().err
    assert sentence in error and "Traceback" not in error


def test_without_settings_the_error_says_what_to_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "launch.toml"
    assert cli.main(["launch", "table5", "--engine", "xpk", "--settings", str(path)]) == 2
    error = capsys.readouterr().err
    assert "isn't there, and no flag gives project, zone, cluster, image, root, cache" in error
    path.write_text(error.partition("\n\n")[2], encoding="utf-8")  # the example itself is good
    assert read_settings(xpk.ENGINE, path, {}) == SETTINGS
    assert read_settings(xpk.ENGINE, path, {"zone": "elsewhere"}) == replace(SETTINGS, zone="elsewhere")


def test_without_xpk_the_error_says_how_to_get_it(pods: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*pods, "--xpk", "/nowhere/xpk"]) == 2
    assert "xpk isn't at /nowhere/xpk: `make xpk` installs it there" in capsys.readouterr().err


def test_what_xpk_says_is_told(pods: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(tmp_path / "xpk", "print('[XPK] no such cluster')\nraise SystemExit(3)")
    assert cli.main([*pods, "--run", "35m-dp"]) == 2
    assert "xpk created no workload (exit code 3: no such cluster)" in capsys.readouterr().err


def test_pod_flags_without_the_engine_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["launch", "table5", "--zone", "x"]) == 2
    assert "--zone without effect: --engine xpk takes it, not local" in capsys.readouterr().err


def test_a_run_that_the_code_does_not_know_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "35m-dp-s1-01234567", "--experiment", "table5", "--scale", "paper"]) == 2
    assert "may be another version of this code" in capsys.readouterr().err


def page_commands(page: str) -> list[list[str]]:
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    return [shlex.split(line, comments=True) for line in lines if re.match(r"    [a-z.]\S* (?!=)", line)]


@pytest.mark.parametrize(("page", "count"), [("pod.md", 9), ("slurm.md", 8)])
def test_the_pages_commands_are_good(page: str, count: int) -> None:
    parsed, makefile = 0, (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in page_commands(page):
        if "repro" in line:
            args = cli._parser().parse_args(line[line.index("repro") + 1 :])
            assert (getattr(args, "experiment", None) or "table5") in experiment_names()
            parsed += 1
        elif line[0] == "make":
            target, variables = line[1], [word.partition("=")[0] for word in line[2:]]
            assert re.search(rf"^({target}|%-{target.partition('-')[2]}):", makefile, re.M), target
            assert all(f"$({name})" in makefile or f"$(if $({name})" in makefile for name in variables)
            parsed += 1
    assert parsed >= count


def test_the_page_launches_what_is_golden() -> None:
    """Its launch commands, with the settings that it prints, give the golden command lines."""
    page = (ROOT / "docs" / "pod.md").read_text(encoding="utf-8")
    assert all(f"    {line}" in page for line in EXAMPLE.splitlines())
    (shown,) = (line for line in page_commands("pod.md") if "launch" in line and "--slices" in line)
    args = cli._parser().parse_args(shown[3:])
    case = "1b-stream-h100-four-slices"
    asked_for = {"topology": args.topology, "slices": args.slices, "capacity": args.capacity}
    assert (args.run, asked_for) == ([launch_rig.CASES[case][0]], launch_rig.CASES[case][1])
