"""One word, one thing: a public name has one sense, a value is called by what it is, a docstring has a subject."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from sources import ROOT, SUITE, nodes, paths, tree

VAGUE = {"found", "made", "shown", "told"}  # what was done to a value, in place of what it is
CODE = (*SUITE, "tests/support")
PEERS = "repro/commands/peers/"
# Public functions of one name, for one interface that several modules have.
INTERFACES = {
    "add_arguments": r"repro/commands/\w+\.py",  # the options of a command
    "main": r"repro/.*\.py|.*/pages/ahead\.py",  # where a command or a worker process begins
    "build": r"repro/corpus/.*\.py",  # the builder of a corpus
    "create": r"repro/launch/\w+\.py",  # an engine of `launch`
    "render": r"repro/launch/\w+\.py",
}
TORCH_MODEL = {"Block", "Decoder"}  # of the model that the bench's peer builds in torch as ours is built in jax


def bound(node: ast.AST) -> str | None:
    """The name that a node gives to a value, an argument, a function or a class."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.alias(asname=name):
            return name
    return None


def docstrings(path: Path) -> Iterator[str]:
    """Those of a file: its own, of its classes and of its functions."""
    for node in nodes(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def homes(kind: type[ast.FunctionDef] | type[ast.ClassDef]) -> dict[str, list[str]]:
    """The files of the suite in which each public function or class is defined."""
    files = defaultdict(list)
    for path in paths(*SUITE):
        for node in tree(path).body:
            if isinstance(node, kind) and not node.name.startswith("_"):
                files[node.name].append(path.relative_to(ROOT).as_posix())
    return files


def test_a_value_is_called_by_what_it_is() -> None:
    """`found_rows` and `_made` are no better."""
    vague = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {name}"
        for path in paths(*CODE)
        for node in nodes(path)
        if (name := bound(node)) and set(name.lower().split("_")) & VAGUE
    ]
    assert vague == []


def test_a_docstring_has_a_subject() -> None:
    without = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in paths(*SUITE, "tests")
        for text in docstrings(path)
        if re.match(r"(Of|The same)\b", text)
    ]
    assert without == []


def test_a_public_class_is_defined_once() -> None:
    twice = {
        name: files
        for name, files in homes(ast.ClassDef).items()
        if len(files) > 1 and not (name in TORCH_MODEL and sum(not file.startswith(PEERS) for file in files) == 1)
    }
    assert twice == {}


def test_a_public_function_has_one_sense() -> None:
    twice = {name: files for name, files in homes(ast.FunctionDef).items() if len(files) > 1}
    for name, folder in INTERFACES.items():
        assert len(twice[name]) > 1 and all(re.fullmatch(folder, file) for file in twice.pop(name)), name
    assert twice == {}


def test_quantise_leads_to_where_an_outer_gradient_is_quantised() -> None:
    assert homes(ast.FunctionDef)["quantise"] == ["repro/diloco/compress.py"]
    other = [path.name for path in paths(*CODE) if re.search("quantiz", path.read_text(encoding="utf-8"), re.I)]
    assert other == [], "quantise has one spelling"
