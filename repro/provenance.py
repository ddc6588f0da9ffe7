"""Where a number comes from: commit, versions, machine, mesh and every attempt at the run. No JAX."""

import importlib.metadata
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from repro.store import RunFolder, write_json

PACKAGES = ("jax", "jaxlib", "flax", "optax", "drjax", "orbax-checkpoint", "numpy", "sentencepiece")
ROOT = Path(__file__).resolve().parent.parent


def commit() -> dict[str, Any]:
    """The commit of the source tree and whether files differ from it; unknown outside a repository."""
    head = _git("rev-parse", "HEAD")
    return {"commit": head or "unknown", "dirty": bool(_git("status", "--porcelain")) if head else None}


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def machine() -> dict[str, Any]:
    """Kind of processor, cores this process may use, Python and package versions."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


class Attempt:
    """One attempt at a run: entered in provenance.json when it starts, completed when it ends."""

    def __init__(self, folder: RunFolder, facts: dict[str, Any]) -> None:
        self._folder = folder
        stored = folder.provenance() or {"attempts": []}
        self._earlier = stored["attempts"]
        self._entry: dict[str, Any] = {"started": _now(), **facts}
        self._write("running")

    def end(self, outcome: str) -> None:
        """finished, interrupted or failed."""
        self._write(outcome)

    def _write(self, outcome: str) -> None:
        entry = {**self._entry, "outcome": outcome, "ended": None if outcome == "running" else _now()}
        write_json(self._folder.path / "provenance.json", {"attempts": [*self._earlier, entry]})


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
