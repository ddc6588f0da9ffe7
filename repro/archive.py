"""Collected results: the small JSON of `data/results/`, one file an experiment and scale, that is committed.

A record holds the whole config, so that its id can be made again: a result whose config and id disagree
is refused, and one that was made from a dirty tree says so. Nothing here is computed anew.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from repro.config import RunConfig
from repro.errors import UserError
from repro.identity import config_text, from_json, run_id
from repro.results import Result
from repro.store import read_json, write_json

FOLDER = Path(__file__).resolve().parent.parent / "data" / "results"


def archive_path(experiment: str, scale: str, folder: Path = FOLDER) -> Path:
    """Where the collected results of an experiment stand."""
    return folder / f"{experiment}-{scale}.json"


def save(results: Iterable[Result], path: Path) -> tuple[int, int]:
    """Write the finished results, beside those collected before; (finished, missing)."""
    kept = {record["run_id"]: record for record in load(path)} if path.exists() else {}
    missing = 0
    for result in results:
        if result.summary is None:
            missing += result.run.run_id not in kept
        else:
            kept[result.run.run_id] = _record(result)
    write_json(path, {"runs": list(kept.values())})
    return len(kept), missing


def _record(result: Result) -> dict[str, Any]:
    attempts = (result.provenance or {"attempts": []})["attempts"]
    last = attempts[-1] if attempts else {}
    made = {k: last.get(k) for k in ("commit", "dirty", "python", "versions", "processor", "cores", "mesh", "tokens")}
    record = {
        "run_id": result.run.run_id,
        "row": result.run.row,
        "config": json.loads(config_text(result.run.config)),
        "summary": result.summary,
        "made": made | {"attempts": len(attempts)},
    }
    return record | ({"evaluation": result.evaluation} if result.evaluation else {})


def load(path: Path) -> list[dict[str, Any]]:
    """The records of a file; UserError when one's config is not what its id says."""
    stored = read_json(path)
    if stored is None:
        raise UserError(f"no collected results at {path}: run the experiment, then `python -m repro collect` it.")
    for record in stored["runs"]:
        made = run_id(from_json(RunConfig, record["config"]))
        if made != record["run_id"]:
            raise UserError(f"{path} holds {record['run_id']} with the config of {made}: collect it again.")
    return stored["runs"]
