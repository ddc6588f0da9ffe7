"""README and docs name what is there: files, tests, functions, fields of a config, commands, lines of algorithms."""

import argparse
import ast
import re
import shlex
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import sources
from sources import ROOT, SUITE, paths, tree

from experiments.registry import experiment_names
from repro.commands.cli import _parser
from repro.spec.config import RunConfig

PAPER_TEXT = ROOT.parent / "shared" / "reference" / "paper.txt"
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in (ROOT / "README.md", ROOT / "data" / "MINI.md", *sorted((ROOT / "docs").glob("*.md")))
}
TOPS = "repro|analysis|experiments|tests|data|docs|requirements"  # what git holds; build/ and cache/ are made
SYMBOLS = {"τ": r"\tau", "α": r"\alpha", "Δ": r"\Delta", "1/M Σ": r"\frac{1}{M}\sum", "t_p": "t_{p}"}
ELSEWHERE = {"source.skipped"}  # a place in a manifest of tokens

pages = pytest.mark.parametrize("page", PAGES)


def text(page: str) -> str:
    return PAGES[page].read_text(encoding="utf-8")


@cache
def names_in(path: Path) -> frozenset[str]:
    """Functions, classes, constants and `Class.attribute` of a file."""
    names = {node.name for node in tree(path).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in tree(path).body:
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        for part in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(part, ast.FunctionDef):
                names.add(f"{node.name}.{part.name}")
            elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                names.add(f"{node.name}.{part.target.id}")
    return frozenset(names)


TESTS = {path.stem: path for path in ROOT.glob("tests/**/test_*.py")}
MODULES = paths(*SUITE)


@pages
def test_every_file_is_there(page: str) -> None:
    """A Python file is named by its path from the top; a link leads to a file, and to a title in it."""
    there = re.findall(rf"(?<![\w./<-])((?:{TOPS})/[\w./*-]*[\w*/]|[\w/]+\.py\b)", text(page))
    assert [name for name in there if not list(ROOT.glob(name))] == []
    links = re.findall(r"\]\((?!https?:)([^)#]+)(?:#([^)]*))?\)", text(page))
    assert [link for link, _ in links if not (PAGES[page].parent / link).exists()] == []
    for link, anchor in links:
        titles = (PAGES[page].parent / link).read_text(encoding="utf-8") if anchor else ""
        heads = {
            re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.+)$", titles, re.M)
        }
        assert not anchor or anchor in heads, f"{link} has no {anchor}"


def test_every_file_that_code_names_is_there() -> None:
    """In docstrings, comments and help: a file may move."""
    plain = [ROOT / name for name in ("Makefile", "pyproject.toml", ".ci/run", "repro/launch/Dockerfile")]
    gone = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (*plain, *MODULES, *paths("tests"))
        for name in re.findall(rf"(?<![\w./<\"'-])((?:{TOPS})/[\w./*-]*[\w*/])", sources.text(path))
        if not list(ROOT.glob(name))
    ]
    assert gone == []


@pages
def test_every_test_is_there(page: str) -> None:
    named = re.findall(r"\b(test_\w+)(?:\.py)?::(test_\w+)", text(page))
    assert [f"{file}::{name}" for file, name in named if name not in names_in(TESTS[file])] == []
    assert [name for name in re.findall(r"`(test_\w+)`", text(page)) if name not in TESTS] == []


@pages
def test_every_name_with_a_dot_is_a_field_or_in_a_module(page: str) -> None:
    """`sync.every` of a config, `wire.part_bytes` of a module, `Resources.fence` of a class."""
    words = re.findall(r"`([A-Za-z_]+(?:\.[A-Za-z_]\w*)+)`", text(page))
    asked = [word for word in words if Path(word).suffix not in endings() and word not in ELSEWHERE]
    assert [word for word in asked if not (_field(word) or _named(word))] == []


@cache
def endings() -> frozenset[str]:
    """The endings of names of files: of the suite's and of those that runs and exports leave."""
    ours = [path for top in TOPS.split("|") for path in (ROOT / top).rglob("*.*")]
    return frozenset(path.suffix for path in (*ROOT.glob("*.*"), *ours)) | {".safetensors", ".model", ".json", ".jsonl"}


def _field(word: str) -> bool:
    """Whether a dotted word leads through the fields of a run's config."""
    at: Any = RunConfig
    for part in word.split("."):
        kinds = [at, *get_args(at)]
        config = next((kind for kind in kinds if is_dataclass(kind)), None)
        if config is None or part not in {field.name for field in fields(config)}:
            return False
        at = get_type_hints(config)[part]
    return True


def _named(word: str) -> bool:
    """Whether a module's name and what it defines, or a class and its attribute."""
    first, rest = word.split(".", 1)
    return any(word in names_in(path) or (path.stem == first and rest in names_in(path)) for path in MODULES)


@pages
def test_every_command_is_understood(page: str) -> None:
    """By the command line and the Makefile: lines with all their words (RUN is some run), others by their name."""
    shown = [re.split("  +", line.strip())[0] for line in text(page).splitlines() if line.startswith("    ")]
    for words in (shlex.split(line, comments=True) for line in shown if re.search(r"-m repro |^make ", line)):
        if words[0] == "make":
            assert all(_is_target(word) for word in words[1:] if "=" not in word), words
        elif "--help" not in words:
            said = [word.lower() if word.isupper() else word.removeprefix("gs://") for word in words]
            said = said[words.index("repro") + 1 :]
            assert _parser().parse_args(said).command, words
    named = re.findall(r"`(?:\.venv/bin/)?(python -m repro|make) ([a-z][a-z0-9_-]*)", text(page))
    assert [name for how, name in named if not (_is_target if how == "make" else _is_command)(name)] == []


def _is_command(name: str) -> bool:
    commands = next(action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction))
    return name in commands.choices


def _is_target(name: str) -> bool:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    listed = re.findall(r"^[A-Z]+ := ([a-z0-9 ]+)$", makefile, re.MULTILINE)
    known = {each for names in listed for each in names.split()} | set(experiment_names())
    known |= set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    return name in known or (name.endswith(("-plan", "-launch")) and name.rpartition("-")[0] in known)


def test_readme_is_short_and_says_nothing_twice() -> None:
    lines = text("README.md").splitlines()
    assert len(lines) <= 150 and max(map(len, lines)) <= 120
    prose = " ".join(line for line in lines if not line.startswith(("    ", "|", "#")))
    sentences = [sentence for sentence in re.split(r"(?<=[.:;]) ", prose) if len(sentence) > 20]
    assert [sentence for sentence in set(sentences) if sentences.count(sentence) > 1] == []


@pytest.mark.skipif(not PAPER_TEXT.exists(), reason="the paper's text is not beside this checkout")
def test_a_cited_line_of_an_algorithm_holds_the_symbol() -> None:
    lines = PAPER_TEXT.read_text(encoding="utf-8").splitlines()
    table = [row.split(" | ")[1:3] for row in text("docs/knobs.md").replace("\\|", "").splitlines() if " | " in row]
    cited = [
        (symbol.split(",")[0].strip(), algorithm, line)
        for symbol, place in table
        for which, numbers in re.findall(r"Algorithms? (1 and 2|1|2), lines? ((?:\d+(?: and )?)+)", place)
        for algorithm in which.split(" and ")
        for line in numbers.split(" and ")
    ]
    assert len(cited) >= 15
    for symbol, algorithm, line in cited:
        start = next(i for i, row in enumerate(lines) if row.startswith(f"Algorithm {algorithm} "))
        row = next(row for row in lines[start:] if row.startswith(f"{line}:"))
        assert SYMBOLS.get(symbol, symbol) in row, f"Algorithm {algorithm}, line {line}: no {symbol}"
