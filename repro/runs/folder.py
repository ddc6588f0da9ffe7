"""Run folders: what one run leaves behind, and how results are read again. No JAX.

    runs/<id>/config.json             what the run is, in full
              leases/<n>.*            who worked at it, with heartbeats (`repro.runs.leases`)
              provenance/<n>.json     where and with what attempt n ran, and how it ended
              attempts/<n>/           written by the holder of lease n alone, deleted when another finished the run:
                  from.json           the attempt it goes on from (`repro.runs.takeover`)
                  checkpoints/        the newest two
                  metrics/*.parquet   immutable parts, one a checkpoint interval: a row a step
                  syncs/*.parquet     the same for outer gradients: cosine similarities and norms
              failure.json            why the run failed; it is tried again on request only
              summary.json            written last, atomically, once: its presence means finished; only validations
                                      that are asked for later are added to it (`repro.evaluation.validating`)

Lease numbers only grow. The holder of n first takes over what the furthest attempt reached (hard links, in a bucket
copies), so its folder is whole, and bits go on as if nothing had happened; the worker that it took the run from can
wake and write, but only into its own folder, which nobody reads any more. What both could want to write is created
exclusively.
A run that was trained without a lease (`train()` from Python) has checkpoints/, metrics/, syncs/ and provenance.json
in its own folder, which counts as attempt 0.

Files are written under another name and renamed or linked, so that a reader never sees half of one. The root may be
gs://BUCKET/PATH (`repro.files`).
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.errors import UnusableFile, UserError
from repro.files import create_bytes, is_bucket, json_bytes, listing, read_json, write_json
from repro.runs import stored
from repro.runs.stored import checked
from repro.runs.takeover import attempt_path, drop_others, furthest, saved_steps
from repro.spec.config import RunConfig
from repro.spec.identity import config_text, from_json, run_id

RUNS = Path("runs")  # the usual root


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run, as the holder of a lease on it writes, or as a reader sees it."""

    root: Path
    run_id: str
    attempt: int | None = None  # the number of the lease; None: a reader, who is shown the furthest attempt

    @property
    def path(self) -> Path:
        """runs/<id>."""
        return self.root / self.run_id

    @property
    def home(self) -> Path:
        """Where this attempt writes; for a reader, where the furthest one did."""
        return furthest(self.path) if self.attempt is None else attempt_path(self.path, self.attempt)

    @property
    def metrics(self) -> Path:
        """Where the parquet parts lie."""
        return self.home / "metrics"

    @property
    def syncs(self) -> Path:
        """Where the parquet parts on outer gradients lie: cosine similarity and norms of each sync."""
        return self.home / "syncs"

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints lie."""
        return self.home / "checkpoints"

    def check(self, config: RunConfig) -> bool:
        """Whether the folder holds this config; False when it holds none, UnusableFile when it holds another."""
        config_there = read_json(self.path / "config.json")
        if config_there is not None and config_there != json.loads(config_text(config)):
            raise UnusableFile(f"{self.path} holds another config than {self.run_id}: move that folder away.")
        return config_there is not None

    def config_as_read(self) -> dict[str, Any]:
        """What the folder says that the run is, for who only shows it; UserError where there is no run."""
        path = self.path / "config.json"
        config = checked(path, read_json(path), stored.Config)
        if config is None:
            raise UserError(f"no run in {self.path}: `python -m repro status` lists the runs.")
        return config

    def config(self) -> RunConfig:
        """What the run is, checked; UserError where there is no run, or none that this code knows."""
        return from_json(RunConfig, self.config_as_read(), f"{self.path}/config.json: config")

    def saved_step(self, asked: int | None = None) -> int:
        """The step of a checkpoint, of the newest if none is asked for; UserError where there is no such one."""
        steps = saved_steps(self.home)
        step = asked if asked is not None or not steps else steps[-1]
        if step not in steps:
            there = ", ".join(map(str, steps)) or "none"
            raise UserError(f"{self.run_id} has no checkpoint of step {step}: it has {there}.")
        return step

    def summary(self) -> dict[str, Any] | None:
        """The run's result; None while it isn't finished. UnusableFile for what is no result of this run."""
        stored_summary = read_json(self.path / "summary.json")
        if stored_summary is None or (isinstance(stored_summary, dict) and stored_summary.get("run_id") == self.run_id):
            return stored_summary
        other = stored_summary.get("run_id") if isinstance(stored_summary, dict) else None
        kind = f"that of {other}" if other else "no result of a run"
        raise UnusableFile(f"{self.path}/summary.json is {kind}: delete that folder, run again.")

    def result(self) -> dict[str, Any] | None:
        """The run's result, checked for the numbers that its readers take; None while it isn't finished."""
        return checked(self.path / "summary.json", self.summary(), stored.Summary)

    def failure(self) -> dict[str, Any] | None:
        """Why the last attempt stopped for good, if it did."""
        path = self.path / "failure.json"
        return checked(path, read_json(path), stored.Failure)

    def provenance(self) -> dict[str, Any] | None:
        """Every attempt in order: commit, versions, machine, how it ended; None when there was none."""
        path = self.path / "provenance.json"
        earlier = checked(path, read_json(path), stored.Attempts)
        paths = [self.path / "provenance" / name for name in listing(self.path / "provenance")]
        if earlier is None and not paths:
            return None
        entries = [checked(path, read_json(path), stored.AttemptEntry) for path in paths]
        return {"attempts": [*(earlier or {"attempts": []})["attempts"], *(entry for entry in entries if entry)]}

    def write_summary(self, summary: dict[str, Any]) -> bool:
        """Mark the run finished, the last thing a run does; False, with nothing changed, when another attempt did."""
        if not create_bytes(self.path / "summary.json", json_bytes(summary)):
            return False
        self.forget_failure()
        if self.attempt is not None:
            drop_others(self.path, self.attempt)
        return True

    def add_validation(self, name: str, validation: dict[str, Any]) -> dict[str, Any]:
        """The result of a finished run with one more validation, by its id, written."""
        summary = self.result()
        assert summary is not None
        summary = summary | {"validations": summary["validations"] | {name: validation}}
        write_json(self.path / "summary.json", summary)
        return summary

    def write_failure(self, reason: str, *, crashed: bool) -> None:
        """Keep why the run failed: by what it was given (`UserError`), or, `crashed`, by an error of the program."""
        write_json(self.path / "failure.json", {"reason": reason, "crashed": crashed, "time": time.time()})

    def forget_failure(self) -> None:
        """The run is tried again."""
        (self.path / "failure.json").unlink(missing_ok=True)


def open_folder(root: Path, config: RunConfig) -> RunFolder:
    """The folder of `config`, made if needed; UserError when it holds another config."""
    folder = RunFolder(root, run_id(config))
    if not folder.check(config):
        write_json(folder.path / "config.json", json.loads(config_text(config)))
    return folder


def existing(root: Path) -> Path:
    """The folder of runs; UserError when it isn't there, or is none."""
    if isinstance(root, Path) and root.exists() and not root.is_dir():
        raise UserError(f"{root} is no folder: give with --root where the runs lie.")
    if not (listing(root) if is_bucket(root) else root.exists()):
        raise UserError(f"no folder {root}: give with --root where the runs lie{_collected(root)}.")
    return root


def runs_root(root: Path) -> Path:
    """The folder of runs; UserError when it isn't there, but not for the usual one: then what is collected is shown."""
    return root if root == RUNS and not root.exists() else existing(root)


def find_run(root: Path, name: str) -> RunFolder:
    """The one run whose id starts with `name`; UserError when none or several do, and for no name at all."""
    if not name:
        raise UserError("an empty run id: `python -m repro status` lists the runs.")
    runs = [n for n in listing(root) if n.startswith(name) and (root / n / "config.json").exists()]
    if not runs:
        raise UserError(f"no run {name!r} in {root}: `python -m repro status` lists the runs{_collected(root)}.")
    if len(runs) > 1 and name not in runs:
        raise UserError(f"{name!r} names {len(runs)} runs ({', '.join(runs[:3])}, ...): give more of the id.")
    return RunFolder(root, name if name in runs else runs[0])


def _collected(root: Path) -> str:
    """How to go on in a fresh clone, whose results have no folders; nothing elsewhere."""
    if root != RUNS or root.exists():
        return ""
    return "; the results of data/results have none, `python -m repro build table5` and `report` show them"
