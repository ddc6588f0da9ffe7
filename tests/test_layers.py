"""The order of the packages: who may import whom, no circle of files, and what must answer at once without JAX.

Every import of every file counts, those inside functions too.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from sources import ROOT, SUITE, nodes, paths, tree

GROUND = {"repro.errors", "repro.words", "repro.disk", "repro.files", "repro.cores", "repro.values", "repro.stopping"}
GROUND |= {"repro.corpora", "repro.pool"}  # what the spec names and the corpus makes; worker processes
# package: what it may import beside itself and the ground
MAY_IMPORT = {
    "repro.errors": set(),
    "repro.words": {"repro.errors"},
    "repro.disk": {"repro.errors"},
    "repro.files": {"repro.errors", "repro.words", "repro.disk"},
    "repro.cores": {"repro.errors"},
    "repro.values": {"repro.errors"},
    "repro.corpora": {"repro.errors"},
    "repro.stopping": {"repro.errors"},
    "repro.pool": {"repro.errors", "repro.cores", "repro.disk"},
    "repro.spec": set(),
    "repro.corpus": set(),
    "repro.network": {"repro.spec"},
    "repro.diloco": {"repro.spec"},
    "experiments": {"repro.spec", "repro.network"},
    "repro.training": {"repro.diloco", "repro.corpus", "repro.spec"},
    "repro.runs": {"repro.machines", "repro.training", "experiments", "repro.diloco", "repro.corpus", "repro.spec"},
    "repro.machines": {"repro.training", "experiments", "repro.network", "repro.diloco", "repro.spec"},
}
MAY_IMPORT["repro.launch"] = {"repro.runs", "repro.machines"} | MAY_IMPORT["repro.runs"] | MAY_IMPORT["repro.machines"]
MAY_IMPORT["repro.evaluation"] = {"repro.runs"} | MAY_IMPORT["repro.runs"]
MAY_IMPORT["repro.results"] = {"repro.evaluation"} | MAY_IMPORT["repro.evaluation"]
MAY_IMPORT["analysis"] = {
    "repro.results",
    "experiments",
    "repro.evaluation",
    "repro.machines",
    "repro.network",
    "repro.runs",
    "repro.spec",
}
MAY_IMPORT["repro.commands"] = set(MAY_IMPORT) | {"repro.commands"}
MAY_IMPORT["repro.__main__"] = {"repro.commands"}

# Packages that answer without JAX; of the others, the files whose docstring says "No JAX".
LIGHT = ("repro.spec", "repro.network", "repro.launch", "repro.commands", "experiments", "analysis", *sorted(GROUND))
# Programs of their own, which the bench starts.
COMPUTING = {f"repro.commands.peers.{name}" for name in ("own_step", "nanodo_step", "torch_step", "product")}
PLOTTING = ("pandas", "matplotlib")
AT_ONCE = (
    "repro.commands.cli",
    "analysis.paper.plan",
    "repro.runs.status",
    "repro.runs.sweep",
    "repro.network.simulate",
    "repro.runs.folder",
    "experiments.streaming.table5",
)
PROGRAM = """
import importlib, json, sys
blocked, names = json.loads(sys.argv[1])
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Block())
failed = {}
for name in names:
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed[name] = str(error)
print(json.dumps(failed))
"""


def files() -> dict[str, Path]:
    """Every module by its dotted name."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths(*SUITE)}
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


FILES = files()


def package(module: str) -> str:
    """The room of a module: a package of repro, a file of the ground, or a top-level package."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "repro" else parts[0]


def imports(module: str) -> Iterator[tuple[str, int]]:
    """(module of the suite, line) of every import in a file, wherever it stands."""
    for node in nodes(FILES[module]):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{FILES[module]}:{node.lineno}: imports are absolute"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            targets = [name if name in FILES else str(node.module) for name in whole]
        elif isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            continue
        yield from ((target, node.lineno) for target in targets if target in FILES)


def allowed(room: str) -> set[str]:
    """What a file of a package may import."""
    return MAY_IMPORT[room] | {room} | (set() if room in GROUND else GROUND)


def test_imports_go_down() -> None:
    up = [
        f"{FILES[module]}:{line} imports {target}"
        for module in FILES
        for target, line in imports(module)
        if package(target) not in allowed(package(module))
    ]
    assert up == []


def test_no_file_is_in_a_circle() -> None:
    graph = {module: {target for target, _ in imports(module)} - {module} for module in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("a circle of imports: " + " -> ".join(reversed(error.args[1])))


def test_the_packages_are_in_no_circle() -> None:
    TopologicalSorter({room: below - {room} for room, below in MAY_IMPORT.items()}).prepare()


def test_a_package_says_in_one_sentence_what_it_is() -> None:
    for path in (path for path in FILES.values() if path.name == "__init__.py"):
        docstring = ast.get_docstring(tree(path)) or ""
        assert len(tree(path).body) == 1 and docstring.endswith(".") and "\n\n" not in docstring, path


def failing_without(blocked: tuple[str, ...], names: list[str]) -> dict[str, str]:
    """module -> why it can't be imported in a fresh interpreter that lacks some packages."""
    command = [sys.executable, "-c", PROGRAM, json.dumps([blocked, names])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_what_is_light_needs_no_jax() -> None:
    def says_so(path: Path) -> bool:
        return "No JAX" in " ".join((ast.get_docstring(tree(path)) or "").split())

    light = [name for name, path in FILES.items() if package(name) in LIGHT or says_so(path)]
    light = [name for name in light if not name.endswith("__main__") and name not in COMPUTING]
    assert len(light) > 100
    assert failing_without(("jax", "jaxlib", "flax", "optax", "orbax", "drjax"), light) == {}


def test_what_answers_at_once_needs_no_plotting_either() -> None:
    assert failing_without(("jax", "jaxlib", *PLOTTING), list(AT_ONCE)) == {}
