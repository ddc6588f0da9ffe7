"""Faults that users met with files: each table is one kind, each id one input of it."""

import ast
import errno
import fcntl
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fabricated
import pytest
import sources
import tiny
from fake_hub import fake_hub

from experiments.registry import load
from repro import disk
from repro.commands.cli import main
from repro.corpus import tokenizer
from repro.corpus.recipes import TextRecipe
from repro.corpus.tokenizer import train_pieces
from repro.corpus.web.reading import Reader, SourceFile
from repro.corpus.web.remote import Backoff
from repro.corpus.web.slices import FileJob, records_of, tokenize_file
from repro.errors import UserError
from repro.files import create_bytes, folder_at, read_bytes, write_bytes
from repro.launch.xpk_jobs import EXAMPLE
from repro.runs.folder import RunFolder, open_folder
from repro.runs.leases import take
from repro.runs.takeover import begin
from repro.spec.experiment import expand

ROOT = Path(__file__).parents[2]
SUMMARY = {"steps": 12, "tokens": 96, "validations": {"outer-64": {"loss": 3.5}}, "tokens_per_s": 9.0}


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


def without_encoding(nodes: Iterable[ast.AST]) -> list[int]:
    """Lines of the calls that read or write text and leave its encoding to the locale."""
    return [call.lineno for call in nodes if isinstance(call, ast.Call) and _guesses(call)]


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
    guessing = "open('a'); p.open('w'); p.read_text(); run([], text=True)"
    saying = "p.open('rb'); os.open(p, 1); gzip.open(p); run([], encoding='utf-8')"
    assert [without_encoding(ast.walk(ast.parse(calls))) for calls in (guessing, saying)] == [[1, 1, 1, 1], []]
    found = {str(path): without_encoding(sources.nodes(path)) for path in sources.paths(*sources.SUITE, "tests")}
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


def refuse(monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(call, refused)


NO_LINKS = ("EPERM", "ENOSYS", "EXDEV", "EMLINK", "EOPNOTSUPP", "ENOTSUP")


@pytest.mark.parametrize("name", NO_LINKS)
def test_a_run_is_leased_taken_over_and_finished_without_hard_links(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, "os.link", getattr(errno, name))
    folder = open_folder(tmp_path, tiny.run_config(tiny.synced()))
    one = take(folder, 0)
    assert one is not None and take(folder, 0) is None and not create_bytes(folder.path / "config.json", b"other")
    home = begin(folder.path, one.number)
    write_bytes(home / "checkpoints" / "3" / "data", b"saved")
    write_bytes(home / "metrics" / "part-000000001-000000003.parquet", b"curve")
    one.release("interrupted")
    two = take(folder, 1)
    assert two is not None
    again = begin(folder.path, two.number)
    assert read_bytes(again / "checkpoints" / "3" / "data") == b"saved"
    assert two.folder.write_summary(SUMMARY | {"run_id": folder.run_id})
    assert not RunFolder(tmp_path, folder.run_id, 1).write_summary({"run_id": folder.run_id})
    two.release("finished")
    assert folder.summary() == SUMMARY | {"run_id": folder.run_id}
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


def test_a_name_taken_without_links_is_given_back_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, "os.link", errno.EPERM)
    refuse(monkeypatch, "pathlib.Path.replace", errno.ENOSPC)
    with pytest.raises(UserError, match=r"could not be written \(No space left on device\): free some space"):
        create_bytes(tmp_path / "summary.json", b"{}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["EINVAL", "ENOTSUP", "ENOSYS"])
def test_a_disk_that_cannot_be_waited_for_is_written_to(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, "os.fsync", getattr(errno, name))
    write_bytes(tmp_path / "a", b"1")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"1"}


@pytest.mark.parametrize("name", ["ENOLCK", "ENOSYS", "ENOTSUP", "EBADF"])
def test_without_locks_the_processes_of_a_machine_still_exclude_each_other(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    number, flock, lock = getattr(errno, name), fcntl.flock, tmp_path / "shared" / ".lock"

    def without(file: int, how: int) -> None:
        if os.path.samestat(os.fstat(file), lock.stat()):
            raise OSError(number, os.strerror(number))
        flock(file, how)

    monkeypatch.setattr("fcntl.flock", without)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for _ in range(2):
        with disk.locked(lock) as first, disk.locked(lock, wait=False) as second:
            assert (first, second) == (True, False)
    assert capsys.readouterr().err.count(f"shared has no locks ({os.strerror(number)}): use it from one machine") == 1


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "free some space"),
        (ValueError("Failed to write [OS error 28: No space left on device]"), "free some space"),
        (ValueError("[OS error 122: Disk quota exceeded]"), "free some space"),
        (OSError(errno.EROFS, "Read-only file system"), "that you may write to"),
        (ValueError("Error acquiring lock: No locks available"), "its file system lacks that"),
        (ValueError("Failed to fsync: Invalid argument"), "its file system lacks that"),
        (ValueError("something else"), "choose another folder"),
        (shutil.Error([("a", "b", "[Errno 28] No space left on device")]), "free some space"),
    ],
    ids=lambda value: str(value)[-25:],
)
def test_advice_fits_the_error(error: Exception, end: str) -> None:
    if os.strerror(errno.EDQUOT) in ("Disk quota exceeded", "Disc quota exceeded") and "quota" in str(error):
        error = ValueError(os.strerror(errno.EDQUOT))
    assert end in disk.advice(error)


LONG = 300 * "n"
LINK = [*SIMULATED, "--plot"]
PATHS = [
    (["train", "pipe"], "pipe is a pipe and no file"),
    (["train", "loop"], "loop can't be a path"),
    (["train", LONG], "can't be a path"),
    (["train", "file"], "file is not JSON"),
    (["train", "."], ". can't be read"),
    (["train", "/dev/null"], "/dev/null is a device and no file"),
    (["train", "~no-such-user/config.json"], "no such home folder"),
    (["train", "nul\0nul"], "holds no NUL"),
    (["status", "--root", "file"], "file is no folder"),
    (["status", "--root", "pipe"], "pipe is no folder"),
    (["status", "--root", "loop"], "loop can't be a path"),
    (["status", "--root", f"a/{LONG}"], "a name has 255 bytes at most"),
    (["status", "--root=~/nothing-here"], "nothing-here: give with --root"),
    (["status", "--root", ""], "an empty path"),
    (["status", "--root", "ftp://x"], "run folders lie on a local path or in gs://"),
    (["status", "--root", "gs://"], "it names no bucket"),
    (["status", "--root", "gs:///runs"], "it names no bucket"),
    (["build", "table5", "--root", "file"], "file is no folder"),
    (["build", "table4", "--out", "file"], "file can't be written"),
    (["build", "table4", "--out", ""], "an empty path"),
    (["build", "table4", "--out", "gs://b/x"], "only run folders may lie in a bucket"),
    (["run", "table5", "--cache", "gs://b/x"], "only run folders may lie in a bucket"),
    (["run", "table5", "--cache", ""], "an empty path"),
    (["collect", "table5", "--to", ""], "an empty path"),
    (["launch", "table5", "--root", ""], "an empty path"),
    (["launch", "table5", "--cache", " "], "an empty path"),
    (["launch", "table5", "--engine", "xpk", "--settings", "pipe"], "pipe is a pipe"),
    (["launch", "table5", "--engine", "xpk", "--settings", "launch.toml", "--run", ""], "give an id or its beginning"),
    (["compile", "table5", "--run", "", "--rule"], "give an id or its beginning"),
    (["compile", "/x", "--rule"], "unknown experiment '/x'"),
    (["compile", "table5", "--rule", "--cache", "gs://b/x"], "only run folders may lie in a bucket"),
    (["prepare", "c4", "--source", ""], "an empty path"),
    (["prepare", "c4", "--source", "loop"], "loop can't be a path"),
    (["prepare", "c4", "--source", "pipes"], "c4-train.00000.json is no regular file"),
    (["prepare", "c4", "--tokenizer", "pipe"], "pipe is a pipe"),
    (["prepare", "smoke", "--cache", "file"], "(Not a directory): choose another"),
    ([*LINK, ""], "an empty path"),
    ([*LINK, f"{LONG}.png"], "can't be a path"),
    (["export", "x", "--out", ""], "an empty path"),
    (["lm-eval", "--root", "loop", "x"], "loop can't be a path"),
]


@pytest.mark.parametrize(("words", "end"), PATHS, ids=[" ".join(words)[:40] for words, _ in PATHS])
def test_a_path_that_cannot_be_is_one_sentence(
    words: list[str], end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipes").mkdir()
    for name in ("c4-train.00000.json", "c4-validation.00000.json"):
        os.mkfifo(tmp_path / "pipes" / name)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    (tmp_path / "launch.toml").write_text(EXAMPLE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    assert main(words) == 2
    printed, sentence = capsys.readouterr()
    assert end in sentence and sentence.count("\n") == 1 and not printed
    assert {path for path in tmp_path.rglob("*") if path.name != "cache"} - before == set() or words[0] == "prepare"


def test_a_home_folder_is_meant_by_its_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert disk.local("~/x") == folder_at("~/x") == tmp_path / "x"
    assert disk.local("./~") == Path("~")


@pytest.mark.parametrize("line", [3 * (1 << 19) * "ä", 300_000 * "a word ", (1 << 20) * "b" + "c"], ids=len)
def test_long_lines_reach_the_tokenizer_in_parts(line: str) -> None:
    parts = list(tokenizer._cut(["short", line, ""]))
    assert parts[0] == "short" and parts[-1] == "" and "".join(parts[1:-1]) == line and len(parts) > 3
    assert all(0 < len(part.encode()) <= tokenizer.LONGEST_LINE for part in parts[1:-1])
    assert " " not in line or all(part.startswith(" ") for part in parts[2:-1])


def test_a_text_of_one_long_line_is_enough() -> None:
    assert train_pieces([70_000 * "the words of one long line "], 290, "it")


LOGIN = b"<!doctype html><title>Sign in</title>" + 100 * b"<p>"
QUICK = Backoff(first=0.001, longest=0.002, attempts=3)
LINES = b"".join(b'{"text": "line %06d"}\n' % i for i in range(4000))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"page": LOGIN}, "it answers with a web page, as for a login"),
        ({"range": "bytes 0-95999/96000"}, "it answers 206 with bytes 0-95999/96000 where all from byte"),
        ({"range": "bytes 48000-50000/96000"}, "it answers 206 with bytes 48000-50000/96000"),
        ({"range": None}, "it answers 206 with no range"),
        ({"size": 91_000}, "it answers with 96000 bytes where 91000 are listed"),
        ({"length": False}, "it says no length"),
        ({"etag": '"another"'}, "changed while it was read (ETag"),
    ],
    ids=["a login page", "another range", "a part", "no range", "another length", "no length", "another version"],
)
def test_a_server_is_not_believed(change: dict[str, Any], reason: str) -> None:
    with fake_hub() as hub:
        hub.files["/file.jsonl"] = LINES
        hub.failures["/file.jsonl"] = ["cut"] if set(change) & {"range", "etag"} else []
        hub.changes = change
        source = SourceFile("train", "file.jsonl", hub.address + "/file.jsonl", "1", change.get("size"))
        with Reader(source, QUICK, lambda _: None) as reader, pytest.raises(UserError, match=re.escape(reason)):
            list(reader.documents())


def test_a_source_that_changed_between_two_runs_is_read_anew(tmp_path: Path) -> None:
    (tmp_path / tokenizer.MODEL).write_bytes(train_pieces([10 * "the words of the line 0123456789 "], 300, "it"))
    recipe = TextRecipe("c4", "en", 40 * "0", None, "train", 300, shard_bytes=20_000)
    model = tokenizer.describe((tmp_path / tokenizer.MODEL).read_bytes(), "it", None)

    def stop(_: float) -> None:
        if len(list(tmp_path.glob("*.record.json"))) == 2:
            raise KeyboardInterrupt

    with fake_hub() as hub:
        hub.files["/file.jsonl"] = LINES
        file = SourceFile("train", "file.jsonl", hub.address + "/file.jsonl", "1")
        job = FileJob(tmp_path, 0, file, recipe, model, False, QUICK, None)
        with pytest.raises(KeyboardInterrupt):
            tokenize_file(job, stop, lambda _: None)
        changed = LINES.replace(b"line 00", b"part 00")  # of the same length, under another ETag
        hub.files["/file.jsonl"], hub.changes = changed, {"first_etag": '"another"'}
        said: list[str] = []
        tokenize_file(job, lambda _: None, said.append)
    assert len(said) == 1 and "it changed since its first" in said[0]
    assert records_of(job)[-1]["source"]["sha256"] == hashlib.sha256(changed).hexdigest()
    shards = [shard["shard"] for record in records_of(job) for shard in record["shards"].values()]
    assert sum(shard["documents"] for shard in shards) == 4000


CONFIG_OF_A_SCALE = b'{"scale": "huge", "steps": 1, "batch": 1, "seed": 0, "model": {"seq_len": 8}}'
CONFIG_OF_ANOTHER = b'{"model_type": "llama", "hidden_size": 64}'
FULL_SUMMARY = {"run_id": "RUN", "steps": 24, "tokens_per_s": 9.0}


def _loss(text: str, name: str = "outer-32") -> bytes:
    return json.dumps(FULL_SUMMARY | {"validations": {name: {"loss": "X"}}}).replace('"X"', text).encode()


FOREIGN = {
    "another tool's config": ("tool/config.json", CONFIG_OF_ANOTHER),
    "a config of another scale": ("tool/config.json", CONFIG_OF_A_SCALE),
    "a config that is a list": ("tool/config.json", b"[]"),
    "half a config": ("tool/config.json", b'{"steps": '),
    "another config": ("RUN/config.json", CONFIG_OF_ANOTHER),
    "a summary with its id only": ("RUN/summary.json", b'{"run_id": "RUN"}'),
    "a summary that is a list": ("RUN/summary.json", b"[]"),
    "an empty summary": ("RUN/summary.json", b""),
    "a loss that is no number": ("RUN/summary.json", _loss("NaN")),
    "a loss that is a text": ("RUN/summary.json", _loss('"3"')),
    "a summary without the loss that is shown": ("RUN/summary.json", _loss("3", "outer-7")),
    "a provenance that is a list": ("RUN/provenance.json", b"[]"),
    "an attempt that is a list": ("RUN/provenance/000001.json", b"[]"),
    "a failure without a reason": ("RUN/failure.json", b"{}"),
}


@pytest.mark.parametrize(("name", "content"), FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_file_is_named_and_passed_over(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = (run for run in expand(load("table5"), "smoke")[:2])
    fabricated.finish(good, tmp_path)
    fabricated.finish(bad, tmp_path)
    if "failure" in name:
        (tmp_path / bad.run_id / "summary.json").unlink()
    write_bytes(tmp_path / name.replace("RUN", bad.run_id), content.replace(b"RUN", bad.run_id.encode()))
    where = ["--root", str(tmp_path)]
    assert main(["status", *where]) == 0
    shown = capsys.readouterr()
    assert (f"{good.run_id}" in shown.out and "1 finished" in shown.out) or "2 finished" in shown.out
    assert main(["collect", "table5", "--scale", "smoke", *where, "--to", str(tmp_path / "to")]) == 0
    collected = capsys.readouterr()
    taken = 2 if name.startswith("tool") else 1
    assert f"{taken} taken" in collected.out
    named = [line for line in (shown.out + shown.err + collected.err).splitlines() if name.split("/")[-1] in line]
    assert named or bad.run_id in collected.err


def test_a_table_is_built_beside_a_damaged_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = expand(load("table3"), "mini")[0]
    write_bytes(fabricated.finish(run, tmp_path, loss=3.5).path / "summary.json", b"[]")
    words = ["build", "table3", "--scale", "mini", "--own", "--root", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    printed, named = capsys.readouterr()
    assert "not run" in printed and f"passed over: {tmp_path / run.run_id / 'summary.json'} is no result" in named
