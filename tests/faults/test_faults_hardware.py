"""The hardware that is there: accelerators, cores, and systems that lack what Linux has. Nothing is trained."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import light_sweep
import pytest
import torture

from repro import cores
from repro.corpus.prepare import prepare
from repro.errors import UserError
from repro.evaluation.evaluator import check_workers
from repro.runs import provenance
from repro.runs.folder import RunFolder
from repro.runs.sweep import Crew, default_workers

ROOT = Path(__file__).parents[2]
# What macOS has of the programs that the Makefile may name; it has no column, fold, nproc or sha256sum of this kind.
POSIX = ("awk", "cat", "cksum", "cut", "env", "make", "mkdir", "printf", "rm", "sed", "sh", "test", "touch")
HIDDEN = ("sched_getaffinity", "sched_setaffinity")


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


def test_macos_takes_a_worker_a_core_and_no_more(no_affinity: None, tmp_path: Path):
    assert default_workers() == 3 and Crew(tmp_path, tmp_path, 3).workers == 3
    check_workers(3)
    with pytest.raises(UserError, match="workers=4: this machine offers 3 cores"):
        check_workers(4)
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
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
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
