"""pyproject.toml declares what is imported and nothing else; the licence and the citation are those it names."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from sources import ROOT, SUITE, nodes, paths

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Declared and never imported, each for a reason.
UNIMPORTED = {
    "pytablewriter": "a bound on what lm-eval asks for without one",
    "pytest-xdist": "a plugin of pytest",
    "ruff": "a program",
    "basedpyright": "a program",
    "jupyterlab": "a program",
}
# Where a package isn't named as the module that it brings, and may not be there to be asked.
BRINGS = {"wandb": "wandb", "google-auth": "google", "jupyterlab": "jupyterlab"}

# Of environments of their own (`make bench-peers`).
PEERS = {"torch", "nanodo"}
WRITTEN = {"measured_module"}  # by a test, in a folder of its own


def declared(*parts: str) -> set[str]:
    """Names of the packages of `dependencies` ("") and of extras."""
    lists = [PROJECT["dependencies"] if part == "" else PROJECT["optional-dependencies"][part] for part in parts]
    return {plain(re.split(r"[\[<>=~!; ]", one)[0]) for each in lists for one in each}


def plain(name: str) -> str:
    """A package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(tops: Iterable[str]) -> dict[str, str]:
    """Top-level module -> a place that imports it, lazily or not; neither the standard library nor our own."""
    own = {path.stem for path in paths("tests")} | set(SUITE) | WRITTEN
    found = {}
    for path in paths(*tops):
        for name, line in _imports(path):
            found.setdefault(name, f"{path.relative_to(ROOT)}:{line}")
    return {name: place for name, place in found.items() if name not in sys.stdlib_module_names | own | PEERS}


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).split(".")[0], node.lineno


def brought_by(module: str) -> set[str]:
    """The packages that bring a module: several for a namespace such as google."""
    there = {plain(name) for name in _distributions().get(module, ())}
    return there | {package for package, brings in BRINGS.items() if brings == module}


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


EXTRAS = tuple(name for name in PROJECT["optional-dependencies"] if name not in ("test", "notebook"))


@pytest.mark.parametrize(
    ("tops", "parts"), [(SUITE, ("", *EXTRAS)), (("tests",), ("", *EXTRAS, "test"))], ids=["suite", "tests"]
)
def test_what_is_imported_is_declared(tops: tuple[str, ...], parts: tuple[str, ...]) -> None:
    known = declared(*parts)
    assert [f"{name} ({place})" for name, place in imported(tops).items() if not brought_by(name) & known] == []


def test_what_is_declared_is_imported() -> None:
    """Dependencies and extras are imported by the suite itself; those of tests and notebooks by anything here."""
    suite = {package for module in imported(SUITE) for package in brought_by(module)}
    everything = suite | {package for module in imported(("tests",)) for package in brought_by(module)}
    assert declared("", *EXTRAS) - suite - set(UNIMPORTED) == set()
    assert declared("test", "notebook") - everything - set(UNIMPORTED) == set()
    assert set(UNIMPORTED) <= declared("", *PROJECT["optional-dependencies"]) - everything


def test_pandas_is_imported_only_where_something_is_drawn_or_written() -> None:
    """Inside functions: plans, status, the simulator and tables of finished runs answer without it."""
    inside = {
        id(node)
        for path in paths(*SUITE)
        for part in nodes(path)
        if isinstance(part, ast.FunctionDef)
        for node in ast.walk(part)
    }
    uses = [
        (path, id(node) in inside)
        for path in paths(*SUITE)
        for node in nodes(path)
        if isinstance(node, ast.Import) and any(alias.name.startswith("pandas") for alias in node.names)
    ]
    assert len({path for path, _ in uses}) >= 3 and all(lazily for _, lazily in uses)


def test_the_extras_that_tests_need_are_theirs_too() -> None:
    assert declared("bucket", "tensorboard") <= declared("test")


def test_licence_and_citation() -> None:
    assert PROJECT["license"] == "Apache-2.0" and PROJECT["license-files"] == ["LICENSE"]
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["license"], citation["version"]) == (PROJECT["license"], PROJECT["version"])
    paper = citation["preferred-citation"]
    assert citation["references"] == [paper] and paper["url"].endswith("/abs/2501.18512")
    assert "Streaming DiLoCo with overlapping communication" in paper["title"] and len(paper["authors"]) == 14
