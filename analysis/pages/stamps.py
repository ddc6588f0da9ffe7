"""What a picture was drawn from, as one digest: its numbers, and the code that its figure imports.

A picture that lies there is kept while the digest is the same, so nothing that enters it may be left out: the code is
every file of the suite that the figure's module imports, found by its import statements. Nothing is imported here.
"""

import ast
import hashlib
from functools import cache
from pathlib import Path

import analysis
from analysis.tables.contents import Table

SUITE = Path(analysis.__path__[0]).parent
PACKAGES = ("analysis", "experiments", "repro")


def digest(table: Table, module: str) -> str:
    """sha256 over the numbers that a table's figure draws and the code of `module`, which draws them."""
    experiment = table.experiment
    runs = [
        (r.run.run_id, r.run.row, r.run.x, r.run.ours, r.run.config.flops, r.loss, r.evaluation, r.syncs)
        for r in table.results
    ]
    beside = [cell for row in table.rows for cell in row.printed.values()]
    cells = [(c.row, c.column, c.text) for c in (*table.cells, *beside, *table.statements)]
    slopes = [(s.method, s.printed.text if s.printed else "") for s in table.slopes]
    text = repr((table.scale, experiment.axis, runs, cells, slopes))
    return code_digest(module, text)


def code_digest(module: str, numbers: str = "") -> str:
    """sha256 over the code of `module`, which draws what its specs say, and the `numbers` that it draws besides."""
    return hashlib.sha256(numbers.encode() + b"".join(path.read_bytes() for path in sources(module))).hexdigest()


@cache
def sources(module: str) -> tuple[Path, ...]:
    """The file of a module of the suite and of each that it imports, directly or not, by path."""
    files: dict[str, Path | None] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in files:
            files[name] = path = _file(name)
            waiting += _imported(path) if path else ()
    return tuple(sorted({path for path in files.values() if path}))


def _file(module: str) -> Path | None:
    """None for a name that is no module of the suite, such as a function of one."""
    if module.split(".")[0] not in PACKAGES:
        return None
    place = SUITE.joinpath(*module.split("."))
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.exists()), None)


@cache
def _imported(path: Path) -> tuple[str, ...]:
    """Every name that may be an imported module: `from a import b` gives `a` and `a.b`. There are no relative ones."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
    return tuple(names)
