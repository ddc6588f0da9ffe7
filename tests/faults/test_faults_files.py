"""Faults that users met with files: each table is one kind, each id one input of it."""

import ast
import io
import shlex
import subprocess
from pathlib import Path

import pytest

from repro.commands.cli import main

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


SOURCES = sorted(
    path for folder in ("repro", "analysis", "experiments", "tests") for path in (ROOT / folder).rglob("*.py")
)


def without_encoding(tree: ast.AST) -> list[int]:
    """Lines of the calls that read or write text and leave its encoding to the locale."""
    return [call.lineno for call in ast.walk(tree) if isinstance(call, ast.Call) and _guesses(call)]


def _guesses(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = {word.arg: getattr(word.value, "value", None) for word in call.keywords}
    if "encoding" in given:
        return False
    if name == "open" and not ast.unparse(call.func).startswith("os."):
        modes = [given.get("mode"), *(arg.value for arg in call.args if isinstance(arg, ast.Constant))]
        modes = [mode for mode in modes if isinstance(mode, str) and set(mode) <= set("rwxabt+")]
        return not any("b" in mode for mode in modes) and not (ast.unparse(call.func) == "gzip.open" and not modes)
    return name in ("read_text", "write_text") or given.get("text") is True or given.get("universal_newlines") is True


def test_every_text_says_its_encoding() -> None:
    assert without_encoding(ast.parse("open('a'); p.open('w'); p.read_text(); run([], text=True)")) == [1, 1, 1, 1]
    assert not without_encoding(ast.parse("p.open('rb'); os.open(p, 1); gzip.open(p); run([], encoding='utf-8')"))
    found = {str(path): without_encoding(ast.parse(path.read_text(encoding="utf-8"))) for path in SOURCES}
    assert not {path: lines for path, lines in found.items() if lines}


LOCALES = {"latin-1": "latin-1", "C": "ascii"}
SIMULATED = ["simulate", "--params", "7e9", "--layers", "8", "--step-time", "1", "--bandwidth", "1"]


@pytest.mark.parametrize("encoding", LOCALES.values(), ids=LOCALES)
@pytest.mark.parametrize(
    "words",
    [["plan", "table5"], SIMULATED, ["build", "table2", "--scale", "paper"], ["build", "table5", "--own"]],
    ids=["plan", "simulate", "build", "build of runs"],
)
def test_what_a_terminal_cannot_show_is_replaced(
    words: list[str], encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr("sys.stdout", terminal)
    out = ["--out", str(tmp_path)] if words[0] == "build" else []
    root = ["--root", str(tmp_path)] if words[:2] == ["build", "table5"] else []
    assert main([*words, *out, *root]) == 0
    terminal.flush()
    shown = terminal.buffer.getvalue().decode(encoding)
    assert "?" in shown or encoding == "latin-1"
    pages = [path for suffix in ("md", "tex", "html", "csv", "txt") for path in tmp_path.glob(f"*.{suffix}")]
    assert len(pages) == {"table2": 1, "table5": 5}.get(words[1], 0) * (words[0] == "build")
    assert all(page.read_text(encoding="utf-8") for page in pages)
