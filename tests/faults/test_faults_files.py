"""Faults that users met with files: each table is one kind, each id one input of it."""

import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["my runs", "it's", "a;b", ""], ids=["space", "quote", "semicolon", "empty"])
def test_make_passes_a_path_as_one_word(name: str) -> None:
    words = ["make", "-n", "figure10", "figure9", f"ROOT={name}", f"OUT={name}", "VENV=/nowhere"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    commands = [shlex.split(line) for line in done.stdout.splitlines() if " -m repro " in line]
    assert len(commands) == 3
    for command in commands:
        for option in {"--root", "--out"} & set(command):
            assert command[command.index(option) + 1] == name


# Stand-ins for Python: `-m venv` makes a base, `-m pip` notes that it was called; both may be cut short.
PYTHON = """#!/bin/sh
[ "$1" = -c ] && exit 0
case "$2" in
    venv) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; [ ! -e cut-venv ] || kill -9 $PPID; : > "$3/whole";;
    pip) [ "$3" != --version ] || [ -e "${0%/bin/python}/whole" ] || exit 1
        case "$*" in *uv.txt*) exit 1;; esac
        [ "$3" != install ] || { echo "$*" >> calls; [ ! -e cut-pip ] || kill -9 $PPID; };;
    ensurepip) : > "${0%/bin/python}/whole";;
esac
"""


@pytest.mark.parametrize(
    ("cut", "again"),
    [("cut-venv", "-r pins.txt"), ("cut-pip", "--force-reinstall -r pins.txt"), ("no-pip", "-r pins.txt")],
)
def test_an_interrupted_environment_is_made_whole(tmp_path: Path, cut: str, again: str) -> None:
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(PYTHON, encoding="utf-8")
    python.chmod(0o755)

    def install() -> int:
        words = ["sh", str(ROOT / "requirements" / "install.sh"), "the venv", "pins.txt"]
        path = f"{python.parent}:/usr/bin:/bin"
        return subprocess.run(words, cwd=tmp_path, env={"PATH": path}, capture_output=True).returncode

    (tmp_path / cut).touch()
    assert install() == (0 if cut == "no-pip" else -9)
    (tmp_path / cut).unlink()
    if cut == "no-pip":  # as uv makes it
        (tmp_path / "the venv" / "whole").unlink()
    assert install() == 0
    assert (tmp_path / "the venv" / "whole").exists()
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert calls[-1].endswith(again) and ("--force-reinstall" in again) == ("--force-reinstall" in calls[-1])
