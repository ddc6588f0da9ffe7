"""Run folders: what one run leaves behind, and how results are read again. No JAX.

    runs/<id>/config.json       what the run is, in full
              provenance.json   where and with what it ran, every attempt
              metrics/*.parquet immutable parts, one a checkpoint interval: a row a step
              syncs/*.parquet   the same for outer gradients: cosine similarities and norms
              checkpoints/      the newest two
              summary.json      written last, atomically: its presence means finished

Files are written under another name and renamed, so that a reader never sees half of one.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.config import RunConfig
from repro.errors import UserError
from repro.identity import config_text, run_id


class RunBusy(Exception):
    """Another process holds this run's folder."""


def write_json(path: Path, value: Any) -> None:
    """Write `value` atomically; UserError when it can't be written."""
    write_bytes(path, (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically, its folder made if needed; UserError when it can't be written."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path.parent} can't be made ({error.strerror}): choose another folder.") from error
    try:
        with part.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UserError(f"{path} could not be written ({error.strerror}): free some space and run again.") from error


def read_json(path: Path) -> Any | None:
    """The JSON at `path`, None where there is no file; UserError when it is not JSON."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}): delete the run folder to run it again.") from error


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    root: Path
    run_id: str

    @property
    def path(self) -> Path:
        """runs/<id>."""
        return self.root / self.run_id

    @property
    def metrics(self) -> Path:
        """Where the parquet parts lie."""
        return self.path / "metrics"

    @property
    def syncs(self) -> Path:
        """Where the parquet parts on outer gradients lie: cosine similarity and norms of each sync."""
        return self.path / "syncs"

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints lie."""
        return self.path / "checkpoints"

    def check(self, config: RunConfig) -> bool:
        """Whether the folder holds this config; False when it holds none, UserError when it holds another."""
        stored = read_json(self.path / "config.json")
        if stored is not None and stored != json.loads(config_text(config)):
            raise UserError(f"{self.path} holds another config than {self.run_id}: move that folder away.")
        return stored is not None

    def summary(self) -> dict[str, Any] | None:
        """The run's result; None while it isn't finished."""
        return read_json(self.path / "summary.json")

    def failure(self) -> dict[str, Any] | None:
        """Why the last attempt stopped for good, if it did."""
        return read_json(self.path / "failure.json")

    def provenance(self) -> dict[str, Any] | None:
        """Commit, versions, machine and attempts."""
        return read_json(self.path / "provenance.json")

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Mark the run finished: the last thing a run does."""
        write_json(self.path / "summary.json", summary)
        (self.path / "failure.json").unlink(missing_ok=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder against other processes of this machine; RunBusy when one has it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunBusy(self.run_id) from error
            yield


def open_folder(root: Path, config: RunConfig) -> RunFolder:
    """The folder of `config`, made if needed; UserError when it holds another config."""
    folder = RunFolder(root, run_id(config))
    if not folder.check(config):
        write_json(folder.path / "config.json", json.loads(config_text(config)))
    return folder


def find_run(root: Path, name: str) -> RunFolder:
    """The one run whose id starts with `name`; UserError when none or several do."""
    found = sorted(p.name for p in root.glob(f"{name}*") if (p / "config.json").exists())
    if not found:
        raise UserError(f"no run {name!r} in {root}: `python -m repro status` lists the runs.")
    if len(found) > 1 and name not in found:
        raise UserError(f"{name!r} names {len(found)} runs ({', '.join(found[:3])}, ...): give more of the id.")
    return RunFolder(root, name if name in found else found[0])
