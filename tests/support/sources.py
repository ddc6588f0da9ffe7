"""The files of the suite as trees, each read and parsed once a process, for tests of what all files keep to."""

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUITE = ("repro", "analysis", "experiments")


@cache
def paths(*tops: str) -> tuple[Path, ...]:
    """The Python files of some top folders, sorted."""
    return tuple(path for top in tops for path in sorted((ROOT / top).rglob("*.py")))


@cache
def text(path: Path) -> str:
    """A file's text."""
    return path.read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    """A file's tree, which nobody changes."""
    return ast.parse(text(path))


@cache
def nodes(path: Path) -> Sequence[ast.AST]:
    """Every node of a file's tree."""
    return tuple(ast.walk(tree(path)))
