"""What must answer at once imports no JAX: every module but those listed here, seen in a fresh interpreter."""

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import analysis
import experiments
import repro

ROOT = Path(__file__).parents[1]
HEAVY = {
    "repro.attempt",
    "repro.checkpoint",
    "repro.attention",
    "repro.checksums",
    "repro.compile",
    "repro.inner",
    "repro.programs",
    "repro.compress",
    "repro.diloco",
    "repro.dropping",
    "repro.evaluate",
    "repro.export",
    "repro.harness",
    "repro.harness_tasks",
    "repro.mesh",
    "repro.model",
    "repro.optim",
    "repro.packing",
    "repro.processes",
    "repro.scoring",
    "repro.state",
    "repro.step",
    "repro.train",
    "repro.validate",
    "repro.wire",
}
JAX = ("jax", "jaxlib", "flax", "optax", "orbax", "drjax")
PLOTTING = ("pandas", "matplotlib")
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


def modules(package: object) -> list[str]:
    prefix = package.__name__ + "."  # type: ignore[attr-defined]
    names = [m.name for m in pkgutil.walk_packages(package.__path__, prefix)]  # type: ignore[attr-defined]
    return [name for name in names if not name.endswith("__main__")]


def failing_without(blocked: tuple[str, ...], names: list[str]) -> dict[str, str]:
    command = [sys.executable, "-c", PROGRAM, json.dumps([blocked, names])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_only_the_listed_modules_need_jax() -> None:
    names = [name for package in (repro, experiments, analysis) for name in modules(package)]
    failed = failing_without(JAX, names)
    assert set(failed) == HEAVY, failed


@pytest.mark.parametrize(
    "name",
    ["repro.cli", "repro.plan", "repro.status", "repro.sweep", "repro.simulate", "repro.store", "experiments.table5"],
)
def test_what_answers_at_once_needs_no_plotting_either(name: str) -> None:
    assert failing_without((*JAX, *PLOTTING), [name]) == {}
