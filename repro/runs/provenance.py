"""Where a number comes from: commit, versions, machine, mesh and every attempt at the run. No JAX."""

import importlib.metadata
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from repro.cores import cores
from repro.files import write_json
from repro.runs.folder import RunFolder
from repro.runs.leases import beat_record, holder, newest

PACKAGES = ("jax", "jaxlib", "flax", "optax", "drjax", "orbax-checkpoint", "numpy", "sentencepiece")
ROOT = Path(__file__).resolve().parents[2]
# Variables by which git looks at another repository than that of the folder, set while a hook runs.
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
MARK = "repro/runs/provenance.py"  # a file of every commit


def commit(top: Path = ROOT) -> dict[str, Any]:
    """The commit of the source tree and whether files differ from it; "unknown" and None where git can't say.

    Only a repository whose top folder is that of the suite and that holds this file is its own: an archive that was
    unpacked inside another one has no commit.
    """
    folder = _git(top, "rev-parse", "--show-toplevel")
    head = changes = None
    if folder and Path(folder).resolve() == top.resolve() and _git(top, "ls-files", MARK):
        head, changes = _git(top, "rev-parse", "HEAD"), _git(top, "status", "--porcelain")
    return {"commit": head or "unknown", "dirty": None if head is None or changes is None else bool(changes)}


def dirty(attempts: Iterable[Mapping[str, Any]]) -> bool | None:
    """Whether a run, of all its attempts, was made from uncommitted changes; None where that isn't known of one."""
    states = [attempt.get("dirty") for attempt in attempts] or [None]
    return True if True in states else None if None in states else False


def _git(top: Path, *words: str) -> str | None:
    """What git prints of the repository that `top` lies in, whatever the environment names; None when it fails."""
    environment = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=top,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=20,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def machine() -> dict[str, Any]:
    """Kind of processor, cores this process may use, Python and package versions."""
    return {
        "processor": _processor(),
        "cores": len(cores()),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


class Attempt:
    """One attempt at a run: a record is written when it starts, and again when it ends.

    Each has a file of its own, so that a late end of a superseded attempt overwrites nothing of its successor's.
    """

    def __init__(self, folder: RunFolder, facts: dict[str, Any]) -> None:
        self._folder, self._start = folder, time.monotonic()
        self._entry: dict[str, Any] = {"started": _now(), **facts}
        self._write({"outcome": "running", "ended": None})

    def note(self, facts: dict[str, Any]) -> None:
        """Add what is known only on the way: how long the start took, checkpoints that were damaged."""
        self._entry |= facts
        self._write({"outcome": "running", "ended": None})

    def end(self, outcome: str) -> None:
        """finished, interrupted, failed, or lost to another worker."""
        self._write({"outcome": outcome, "ended": _now(), "seconds": round(time.monotonic() - self._start, 3)})

    def _write(self, ending: dict[str, Any]) -> None:
        entry, number = {**self._entry, **ending}, self._folder.attempt
        if number is None:
            write_json(self._folder.path / "provenance.json", {"attempts": [entry]})
        else:
            write_json(self._folder.path / "provenance" / f"{number:06d}.json", {"attempt": number, **entry})


def history(folder: RunFolder) -> dict[str, Any]:
    """Every attempt, the number of restarts, and the wall time of all of them together.

    An attempt that had no time to say how it ended is "killed", with the seconds up to its last beat.
    """
    attempts = [_completed(folder, entry) for entry in (folder.provenance() or {"attempts": []})["attempts"]]
    seconds = sum(entry.get("seconds") or 0.0 for entry in attempts)
    return {"attempts": attempts, "restarts": max(len(attempts) - 1, 0), "seconds": round(seconds, 3)}


def _completed(folder: RunFolder, entry: dict[str, Any]) -> dict[str, Any]:
    number = entry.get("attempt")
    if entry["outcome"] != "running" or number is None:
        return entry
    seconds = beat_record(folder, number).get("seconds")
    live = number == newest(folder) and holder(folder, number) is not None
    return entry | {"outcome": "running" if live else "killed", "seconds": seconds}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
