"""The hardware that is there: accelerators, cores, and systems that lack what Linux has. Nothing is trained."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import fabricated
import light_sweep
import pytest
import tiny
import torture

from analysis.tables.notes import _attempt
from experiments.registry import load
from repro import cores
from repro.commands.cli import main
from repro.cores import cores_of_worker
from repro.corpus import tokens
from repro.corpus.prepare import prepare
from repro.diloco.jax_settings import check_flags, xla_flags
from repro.errors import UserError
from repro.machines import hardware
from repro.machines.hardware import Hardware
from repro.machines.placement import GIB
from repro.machines.seats import VISIBLE, all_devices, check_workers, parts, seats, worker_resources
from repro.results.estimate import seconds_of
from repro.runs import provenance
from repro.runs.chips import holding
from repro.runs.folder import RunFolder, open_folder
from repro.runs.sweep import Crew
from repro.spec.config import RunConfig
from repro.spec.experiment import expand, unique
from repro.spec.identity import config_text, run_id
from repro.training import processes

ROOT = Path(__file__).parents[2]
# What macOS has of the programs that the Makefile may name; it has no column, fold, nproc or sha256sum of this kind.
POSIX = ("awk", "cat", "cksum", "cut", "env", "make", "mkdir", "printf", "rm", "sed", "sh", "test", "touch")
HIDDEN = ("sched_getaffinity", "sched_setaffinity")
ALONE, DILOCO = tiny.run_config(None, replicas=1, batch=16), tiny.run_config(tiny.synced(), batch=16)


@pytest.fixture
def no_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's calls as on macOS."""
    for name in HIDDEN:
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.delenv("NPROC", raising=False)


def test_macos_counts_cores_and_gives_a_worker_so_many_threads(no_affinity: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    assert cores.cores() == [0, 1, 2]
    cores.keep_to(cores.cores()[::2])
    assert os.environ["NPROC"] == "2"


@pytest.mark.skipif(platform.system() != "Linux", reason="a process is pinned on Linux only")
def test_linux_pins_a_worker_to_its_share():
    code = "from repro.cores import cores, keep_to; first = cores()[:1]; keep_to(first); print(cores() == first)"
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8").stdout == "True\n"
    )


def test_workers_share_the_cores_and_each_has_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("repro.cores.cores", lambda: [3, 5, 7])
    assert [cores_of_worker(i, 2) for i in range(2)] == [[3, 7], [5]]
    assert [cores_of_worker(i, 4) for i in range(4)] == [[3], [5], [7], [3]]  # four accelerators on three cores


def test_macos_takes_a_worker_a_core_and_no_more(no_affinity: None, tmp_path: Path):
    assert hardware.cpu().chips == 3 and Crew(tmp_path, tmp_path, 3).workers == 3
    with pytest.raises(UserError, match="workers=4: this machine offers 3 CPU cores, choose 1 to 3"):
        check_workers(4, hardware.cpu())
    assert provenance.machine()["cores"] == 3


def test_macos_run_finishes(tmp_path: Path):
    """A sweep and its workers in processes that lack the calls."""
    prepare("smoke", tmp_path / "cache")
    (run,) = torture.planned(1)
    torture.leave_out_all_but([run], tmp_path / "runs")
    (tmp_path / "sitecustomize.py").write_text(
        f"import os\nfor name in {HIDDEN}:\n    delattr(os, name)\n", encoding="utf-8"
    )
    command = [sys.executable, light_sweep.__file__, "run", "table5", "--scale", "smoke", "--workers", "1"]
    command += ["--root", str(tmp_path / "runs"), "--cache", str(tmp_path / "cache")]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "LIGHT_STEP_S": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", timeout=100)
    assert done.returncode == 0 and RunFolder(tmp_path / "runs", run.run_id).summary() is not None, done.stderr


def test_one_module_alone_asks_for_cores():
    asked = re.compile(r"sched_[gs]etaffinity|cpu_count|\bnproc\b")
    found = [path.name for path in ROOT.glob("repro/**/*.py") if asked.search(path.read_text(encoding="utf-8"))]
    assert found == ["cores.py"]


def make(folder: Path, *words: str) -> str:
    """What make says with the programs of POSIX alone, in a copy of the Makefile and the pins."""
    programs = folder / "programs"
    if not programs.exists():
        programs.mkdir(parents=True)
        for name in POSIX:
            (programs / name).symlink_to(shutil.which(name) or f"/usr/bin/{name}")
        shutil.copy(ROOT / "Makefile", folder)
        shutil.copytree(ROOT / "requirements", folder / "requirements")
    done = subprocess.run(
        [shutil.which("make") or "make", *words],
        cwd=folder,
        env={"PATH": str(programs)},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def test_macos_make_help_lists_every_target_with_its_text(tmp_path: Path):
    text = make(tmp_path, "help")
    documented = re.findall(r"^([a-z0-9%-]+):.*## (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(documented) > 20
    assert all(
        re.search(rf"^  {re.escape(name)} +{re.escape(words)}$", text, re.MULTILINE) for name, words in documented
    )


def stamps(text: str) -> Sequence[str]:
    return re.findall(r"touch .*/\.[a-z]+-(\S+)", text)


@pytest.mark.parametrize("target", ["env", "test", "notebooks", "xpk"])
def test_macos_the_stamp_of_an_environment_changes_with_its_pins(tmp_path: Path, target: str):
    before = stamps(make(tmp_path, "-n", target))
    pins = tmp_path / "requirements" / {"env": "run", "notebooks": "notebook"}.get(target, target)
    with pins.with_suffix(".txt").open("a", encoding="utf-8") as file:
        file.write("# another\n")
    after = stamps(make(tmp_path, "-n", target))
    assert before and all(before) and before[-1] != after[-1]


def test_a_stamp_is_never_empty(tmp_path: Path):
    make(tmp_path, "help")
    (tmp_path / "programs" / "cksum").unlink()
    command = [shutil.which("make") or "make", "-n", "env"]
    done = subprocess.run(command, cwd=tmp_path, env={"PATH": str(tmp_path / "programs")}, capture_output=True)
    assert done.returncode != 0


SMOKE_FLAGS, MINI_FLAGS = xla_flags("", smoke=True), xla_flags("", smoke=False)

# Accelerators. There are none here: a program that prints what JAX would have found stands in for the child that asks.

H100 = {"platform": "cuda", "kind": "NVIDIA H100", "devices": 8, "chips": 8, "memory": 75 * GIB}
V3 = {"platform": "tpu", "kind": "TPU v3", "devices": 8, "chips": 4, "memory": 15 * GIB}
CPU = {"platform": "cpu", "kind": "cpu", "devices": 1, "chips": 1, "memory": None}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A machine with these device files, on which the child does what the code says; no child may be started before."""
    for name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hardware, "DEV", tmp_path)
    monkeypatch.setattr(hardware, "PROBE", ("no-such-program",))
    monkeypatch.setattr(hardware, "_has_plugin", lambda: False)

    def arrange(*files: str, code: str | None = None, **environment: str) -> None:
        for name in files:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).touch()
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        if code is not None:
            monkeypatch.setattr(hardware, "PROBE", (sys.executable, "-c", code))

    return arrange


def answer(found: dict[str, Any]) -> str:
    return f"print('a banner of a driver')\nprint({json.dumps(found)!r})"


@pytest.mark.parametrize(
    ("files", "environment"),
    [((), {}), (("nvidia0",), {"JAX_PLATFORMS": "cpu"}), (("accel0",), {"JAX_PLATFORMS": "cpu,tpu"})],
    ids=["no device file", "JAX_PLATFORMS=cpu on a GPU machine", "cpu first"],
)
def test_where_only_the_cpu_can_be_meant_nothing_is_asked(
    machine: Callable[..., None], files: tuple[str, ...], environment: dict[str, str]
):
    machine(*files, **environment)
    assert hardware.find() == hardware.cpu()


@pytest.mark.parametrize("file", ["nvidia0", "nvidiactl", "dxg", "kfd", "accel0", "vfio/0"])
def test_the_accelerators_that_are_there_are_taken(machine: Callable[..., None], file: str):
    machine(file, code=answer(H100))
    found = hardware.find()
    assert (found, found.words, found.note) == (Hardware(**H100), "8 x NVIDIA H100 (cuda)", "")


def test_a_plugin_or_jax_platforms_is_asked_without_a_device_file(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    machine(code=answer(V3), JAX_PLATFORMS="tpu")
    assert hardware.find() == Hardware(**V3)
    monkeypatch.delenv("JAX_PLATFORMS")
    assert hardware.find().is_cpu
    monkeypatch.setattr(hardware, "_has_plugin", lambda: True)
    assert hardware.find() == Hardware(**V3)


def test_an_accelerator_that_jax_has_no_plugin_for_is_told(machine: Callable[..., None]):
    machine("nvidia0", code=answer(CPU))
    assert hardware.find().is_cpu and "nvidia0 shows an accelerator that this JAX can't use" in hardware.find().note
    machine(JAX_PLATFORMS="cuda,cpu")
    assert hardware.find().note == ""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("assert False", "JAX_PLATFORMS=cuda: JAX has no such device here (it has no plugin for that platform):"),
        ("raise RuntimeError('no CUDA driver. (set JAX_PLATFORMS= )')", "JAX has no such device here (no CUDA driver)"),
        ("import time; time.sleep(9)", "JAX did not find its devices in 0.3 seconds: set JAX_PLATFORMS=cpu"),
    ],
    ids=["no plugin", "no driver", "a device that doesn't answer"],
)
def test_a_device_that_is_not_there_is_one_sentence(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, code: str, said: str
):
    monkeypatch.setattr(hardware, "PROBE_S", 0.3 if "sleep" in code else 60.0)
    machine(code=code, JAX_PLATFORMS="cuda")
    with pytest.raises(UserError) as error:
        hardware.find()
    assert said in str(error.value) and "\n" not in str(error.value)


def test_the_child_tells_what_jax_finds():
    """The real one, with simulated devices."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    environment.pop("JAX_NUM_CPU_DEVICES")
    found = hardware._ask(hardware.PROBE, environment)
    assert found == {"platform": "cpu", "kind": "cpu", "devices": 8, "chips": 8, "memory": None}


@pytest.mark.parametrize(
    ("found", "count", "width", "environment", "expected"),
    [
        (H100, 8, 1, {}, {"CUDA_VISIBLE_DEVICES": "7"}),
        (H100, 4, 2, {}, {"CUDA_VISIBLE_DEVICES": "6,7"}),
        (H100, 1, 8, {}, {}),
        (H100, 8, 1, {"CUDA_VISIBLE_DEVICES": "8,9,10,11,12,13,14,GPU-5"}, {"CUDA_VISIBLE_DEVICES": "GPU-5"}),
        (H100 | {"platform": "rocm"}, 8, 1, {}, {"HIP_VISIBLE_DEVICES": "7"}),
        (V3, 1, 4, {}, {}),
        (
            V3,
            2,
            2,
            {},
            {
                "TPU_VISIBLE_CHIPS": "2,3",
                "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,2,1",
                "TPU_PROCESS_BOUNDS": "1,1,1",
                "TPU_PROCESS_ADDRESSES": "localhost:8477",
                "TPU_PROCESS_PORT": "8477",
                "CLOUD_TPU_TASK_ID": "0",
                "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
            },
        ),
        (CPU | {"chips": 8}, 8, 1, {}, {}),
    ],
    ids=["a GPU", "two GPUs", "all GPUs", "what is visible is divided", "AMD", "all of a TPU", "half a TPU", "cores"],
)
def test_each_worker_sees_its_own_devices(
    found: dict[str, Any], count: int, width: int, environment: dict[str, str], expected: dict[str, str]
):
    shares = seats(Hardware(**found), count, width, environment)
    assert len(shares) == count and shares[-1] == expected
    if expected:
        assert len({tuple(share.items()) for share in shares}) == count


def test_two_sweeps_on_the_same_devices_know_of_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in (*VISIBLE["cuda"], *VISIBLE["tpu"], "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    gpus, two = Hardware(**H100), [{"CUDA_VISIBLE_DEVICES": "0,1"}]
    with holding(gpus, [{}]):
        said = r"^cuda device 0 is taken by another sweep .* by CUDA_VISIBLE_DEVICES\.$"
        with pytest.raises(UserError, match=said), holding(gpus, two):
            pass
        with holding(Hardware(**V3), [{}]):
            pass
        with holding(Hardware(**CPU), [{}, {}]):
            pass
        monkeypatch.setenv("SLURM_JOB_ID", "7")  # each job may number its own from 0
        with holding(gpus, two):
            pass
        monkeypatch.delenv("SLURM_JOB_ID")
    with holding(gpus, two), holding(gpus, [{"CUDA_VISIBLE_DEVICES": name} for name in ("2", "3")]):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,1")
        with pytest.raises(UserError, match=r"^cuda device 1 is taken"), holding(gpus, [{}]):
            pass
        with holding(gpus, [{"CUDA_VISIBLE_DEVICES": "4"}]):  # what is refused holds nothing
            pass


@pytest.mark.parametrize(
    ("scale", "found", "expected"),
    [
        ("mini", H100, [(12, 8, "0")]),
        ("paper", H100, [(23, 8, "0"), (2, 2, "0,1"), (1, 1, "0,1,2,3")]),
        ("mini", H100 | {"devices": 1, "chips": 1}, [(12, 1, None)]),
        ("mini", CPU | {"devices": 2, "chips": 2, "memory": GIB}, [(12, 2, None)]),
    ],
)
def test_a_run_takes_the_fewest_devices_that_hold_it(
    scale: str, found: dict[str, Any], expected: list[tuple], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    where = Hardware(**found)
    groups = parts(unique(expand(load("table5"), scale)), where, where.chips)
    assert [(len(p.runs), len(p.seats), p.seats[0].get("CUDA_VISIBLE_DEVICES")) for p in groups] == expected
    per_chip = where.devices // where.chips
    for part in groups:
        names = part.seats[0].get("CUDA_VISIBLE_DEVICES")
        devices = (len(names.split(",")) if names else where.chips if not where.is_cpu else 1) * per_chip
        for run in part.runs:
            assert worker_resources(run.config, devices, part.memory).devices == devices


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (CPU | {"chips": 16, "memory": 10**15}, "4b-dp-s0-6f992faa would take 16 CPU cores 8"),
        (V3, "4b-stream-h100-s0-618208c0 takes about 26 GiB on each of 8 devices, and one gives out 15"),
        (
            H100 | {"devices": 1, "chips": 1},
            "1b-diloco-h30-s0-1836d6b0 takes about 103 GiB on a device, and one gives out 75",
        ),
    ],
    ids=["4B on cores", "4B on a small TPU", "1B on a GPU"],
)
def test_what_cannot_fit_is_refused_with_a_way_out(found: dict[str, Any], said: str):
    where = Hardware(**found)
    with pytest.raises(UserError) as error:
        parts(unique(expand(load("table5"), "paper")), where, where.chips)
    assert said in str(error.value) and str(error.value).endswith("or choose a smaller scale (--scale mini).")


def test_macos_refuses_more_descriptors_than_it_said(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(tokens.resource, "getrlimit", lambda _: (256, 2**63 - 1))
    monkeypatch.setattr(tokens.resource, "setrlimit", refuse)
    assert not tokens.may_map(20_000)


@pytest.mark.parametrize("command", ["run", "evaluate", "launch"])
def test_a_command_whose_devices_are_not_there_is_one_sentence_and_writes_nothing(
    command: str, machine: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    machine(code="assert False", JAX_PLATFORMS="cuda")
    root = tmp_path / "runs"
    for run in fabricated.planned("smoke"):
        if command == "evaluate":
            fabricated.finish(run, root)
    before = sorted(root.rglob("*"))
    assert main([command, "table5", "--scale", "smoke", "--root", str(root), "--cache", str(tmp_path / "cache")]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and "JAX_PLATFORMS=cuda: JAX has no such device here" in err
    assert sorted(root.rglob("*")) == before and not (tmp_path / "cache").exists()


@pytest.mark.parametrize("command", ["run", "launch"])
def test_paper_scale_on_cores_is_one_sentence_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
):
    words = ["table5", "--scale", "paper", "--root", str(tmp_path / "runs"), "--cache", str(tmp_path / "cache")]
    assert main([command, *words]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "years or more, and JAX has no accelerator here" in err
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_on_two_gpus_gives_each_worker_one_and_says_so(tmp_path: Path):
    prepare("smoke", tmp_path / "cache")
    runs = torture.planned(2)
    torture.leave_out_all_but(runs, tmp_path / "runs")
    command = [sys.executable, light_sweep.__file__, "run", "table5", "--scale", "smoke"]
    command += ["--root", str(tmp_path / "runs"), "--cache", str(tmp_path / "cache")]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cuda,cpu", "XLA_FLAGS": ""}
    environment |= {"LIGHT_DEVICES": json.dumps(H100 | {"devices": 2, "chips": 2}), "LIGHT_STEP_S": "0.05"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", timeout=100)
    assert done.returncode == 0, done.stderr
    assert "2 runs to train on 2 x NVIDIA H100 (cuda), 2 side by side: how long it takes is not known" in done.stderr
    entries = [(RunFolder(tmp_path / "runs", run.run_id).provenance() or {})["attempts"][0] for run in runs]
    seen = sorted((entry["environment"] for entry in entries), key=lambda shown: shown["CUDA_VISIBLE_DEVICES"])
    common = {"JAX_PLATFORMS": "cuda,cpu", "XLA_FLAGS": ""}
    assert seen == [{**common, "CUDA_VISIBLE_DEVICES": "0"}, {**common, "CUDA_VISIBLE_DEVICES": "1"}]


@pytest.mark.parametrize(
    ("hardware_found", "smoke", "given", "expected"),
    [
        (CPU, True, "", SMOKE_FLAGS),
        (CPU, False, "--xla_dump_to=x", f"--xla_dump_to=x {MINI_FLAGS}"),
        (H100, True, "--xla_dump_to=x", "--xla_dump_to=x"),
    ],
    ids=["smoke", "mini", "a GPU compiles in earnest"],
)
def test_how_hard_xla_tries_follows_scale_and_platform(
    hardware_found: dict[str, Any], smoke: bool, given: str, expected: str
):
    found = hardware.training_environment(Hardware(**hardware_found), {"XLA_FLAGS": given}, smoke=smoke)
    assert found["XLA_FLAGS"] == expected
    assert found["JAX_PLATFORMS"] == ("cpu" if hardware_found is CPU else "cuda,cpu")
    assert ("MALLOC_TOP_PAD_" in found) == (hardware_found is CPU)


@pytest.mark.parametrize(
    ("platforms", "simulated", "expected"),
    [("cpu", False, True), ("tpu,cpu", False, False), ("tpu,cpu", True, True)],
    ids=["cpu", "a pod", "simulated devices"],
)
def test_train_tries_as_hard_as_a_sweep(
    monkeypatch: pytest.MonkeyPatch, platforms: str, simulated: bool, expected: bool
):
    monkeypatch.setattr(os, "environ", {"JAX_PLATFORMS": platforms})
    hardware.train_here(smoke=True, simulated=simulated)
    asked = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": SMOKE_FLAGS}
    assert os.environ == (asked if expected else {"JAX_PLATFORMS": platforms})


@pytest.mark.parametrize(
    ("config", "devices", "mesh"),
    [
        (DILOCO, 8, (2, 1, 4)),
        (DILOCO, 2, (2, 1, 1)),
        (DILOCO, 1, (1, 1, 1)),
        (ALONE, 8, (1, 8, 1)),
    ],
    ids=["M=2 on 8", "M=2 on 2", "M=2 on 1", "data-parallel on 8"],
)
def test_train_takes_every_device(config: RunConfig, devices: int, mesh: tuple[int, int, int]):
    found = all_devices(config, devices, None)
    assert (found.replica, found.data, found.fsdp) == mesh
    found.check(config)


def test_devices_that_would_be_idle_are_one_sentence():
    with pytest.raises(UserError, match=r"laid on 4 of the 7 devices here.* say so with --replica 2 --data 1 --fsdp 2"):
        all_devices(DILOCO, 7, None)


def test_train_of_what_no_device_holds_is_one_sentence():
    with pytest.raises(UserError, match=r"takes about .* GiB on each of 8 devices, and one gives out 0"):
        all_devices(DILOCO, 8, 1000)


def _train(tmp_path: Path) -> int:
    (tmp_path / "config.json").write_text(config_text(ALONE), encoding="utf-8")
    words = [str(tmp_path / "config.json"), "--root", str(tmp_path / "runs"), "--cache", str(tmp_path / "cache")]
    return main(["train", *words])


def _export(tmp_path: Path) -> int:
    run = expand(load("table5"), "smoke")[0]
    open_folder(tmp_path / "runs", run.config)
    return main(["export", run.run_id, "--root", str(tmp_path / "runs"), "--cache", str(tmp_path / "cache")])


@pytest.mark.parametrize("command", [_train, _export], ids=["train", "export"])
def test_jax_platforms_cuda_without_a_gpu_is_one_sentence(
    command: Callable[[Path], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """JAX asserts that it has a platform; a process in which it has started already is made to."""

    def devices() -> None:
        raise AssertionError

    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr("jax.devices", devices)
    monkeypatch.setattr("repro.commands.train.Stop", lambda _: MagicMock())  # it would answer the signals of the tests
    assert command(tmp_path) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "JAX_PLATFORMS=cuda: JAX has no such device here" in err
    assert not (tmp_path / "runs" / run_id(ALONE)).exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "F1130 22:14:45.6 1 parse_flags_from_env.cc:234] Unknown flags in XLA_FLAGS: --xla_dump_so",
            "(Unknown flags in XLA_FLAGS: --xla_dump_so)",
        ),
        (
            "E1130 22:14:50.1 1 x.cc:63] Couldn't interpret value abc for flag xla_dump_to.\nF1130 1 1 x.cc:1] Check",
            "(Couldn't interpret value abc for flag xla_dump_to.)",
        ),
    ],
    ids=["a flag that isn't there", "a value that is none"],
)
def test_xla_flags_that_end_the_process_are_told(monkeypatch: pytest.MonkeyPatch, text: str, said: str):
    check_flags.cache_clear()
    code = f"import os, sys\nsys.stderr.write({text!r})\nsys.stderr.flush()\nos.abort()"
    monkeypatch.setattr("repro.diloco.jax_settings.READS_FLAGS", (sys.executable, "-c", code))
    for flags in ("", SMOKE_FLAGS, f"{MINI_FLAGS} --xla_force_host_platform_device_count=8"):
        check_flags(flags)
    with pytest.raises(UserError) as error:
        check_flags("--xla_dump_so=1")
    assert said in str(error.value)


def test_a_sweep_with_flags_that_xla_ends_at_marks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """What ends the process is XLA itself, not a stand-in."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=x --xla_dump_no_such_thing=1")
    words = ["run", "table5", "--scale", "smoke", "--root", str(tmp_path / "runs"), "--cache", str(tmp_path / "c")]
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "in XLA_FLAGS: --xla_dump_no_such_thing=1)" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("as_json", [False, True], ids=["for a person", "--json"])
def test_what_train_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
):
    def attempt(*args: Any) -> None:
        args[4]({"stage": "training", "step": 2, "loss": 3.25, "tokens_per_s": 1500.0})

    monkeypatch.setattr("repro.runs.attempt.attempt", attempt)
    monkeypatch.setattr("repro.commands.train.Stop", lambda _: MagicMock())
    config = ALONE
    path, name = tmp_path / "config.json", run_id(config)
    path.write_text(config_text(config), encoding="utf-8")
    words = ["train", str(path), "--replica", "1", "--root", str(tmp_path / "runs"), *["--json"] * as_json]
    assert main(words) == 0
    out, err = capsys.readouterr()
    if as_json:
        told = [json.loads(line) for line in out.splitlines()]
        assert told[1]["loss"] == 3.25 and told[-1] == {"finished": name} and not err
        return
    first, training, last = err.splitlines()
    assert not out and first == f"{name}  starting on 1 x cpu (cpu), replica 1 x data 1 x fsdp 1  0/{config.steps}"
    assert training == f"{name}  training  2/{config.steps}  loss 3.250  1.5k tokens/s"
    assert last.startswith(f"{name}  finished: ")


def test_train_without_flags_takes_all_eight_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    taken = []
    monkeypatch.setattr("repro.runs.attempt.attempt", lambda *args: taken.append(args[1]))
    monkeypatch.setattr("repro.commands.train.Stop", lambda _: MagicMock())
    path = tmp_path / "config.json"
    path.write_text(config_text(DILOCO), encoding="utf-8")
    assert main(["train", str(path), "--root", str(tmp_path / "runs")]) == 0
    assert (taken[0].replica, taken[0].data, taken[0].fsdp) == (2, 1, 4)
    assert "  starting on 8 x cpu (cpu), replica 2 x data 1 x fsdp 4  0/" in capsys.readouterr().err


def test_the_estimate_is_made_of_times_on_cores_alone():
    run = expand(load("table5"), "mini")[0]
    record = {"config": json.loads(config_text(run.config)), "summary": {"processor_seconds": 9.0}}
    assert seconds_of([run], [record]) == 9.0
    assert seconds_of([run], [record | {"made": {"mesh": {"device": "cpu"}}}]) == 9.0
    assert seconds_of([run], [record | {"made": {"mesh": {"device": "NVIDIA H100", "platform": "gpu"}}}]) is None


@pytest.mark.parametrize(
    ("mesh", "said"),
    [
        ({"replica": 1, "data": 1, "fsdp": 1, "device": "cpu"}, "on the CPU: 2 cores of a Xeon"),
        (
            {"replica": 2, "data": 1, "fsdp": 4, "device": "NVIDIA H100", "platform": "gpu"},
            "on 8 x NVIDIA H100 (gpu) beside 2 cores of a Xeon",
        ),
    ],
    ids=["a record from before", "accelerators"],
)
def test_pages_say_on_what_a_run_was_trained(mesh: dict[str, Any], said: str):
    assert _attempt({"cores": 2, "processor": "a Xeon", "mesh": mesh}, False).endswith(said)


def test_provenance_says_on_what_a_run_was_trained():
    assert processes.facts() == {"processes": 1, "platform": "cpu", "device": "cpu"}
