"""Expected against found: which runs of an experiment are done, how far the others are. No JAX."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from repro.experiment import PlannedRun, unique
from repro.store import RunFolder


def states(runs: Iterable[PlannedRun], root: Path) -> list[dict[str, Any]]:
    """One record a run: state (finished, failed, started, missing), step, loss, age of the last checkpoint."""
    return [_state(run, RunFolder(root, run.run_id)) for run in unique(runs)]


def _state(run: PlannedRun, folder: RunFolder) -> dict[str, Any]:
    folder.check(run.config)
    record: dict[str, Any] = {"run": run.run_id, "steps": run.config.steps, "state": "missing", "step": 0}
    if (summary := folder.summary()) is not None:
        return record | {
            "state": "finished",
            "step": summary["steps"],
            "loss": summary["validation_loss"],
            "tokens_per_s": summary["tokens_per_s"],
        }
    saved = {int(p.name): p for p in folder.checkpoints.glob("[0-9]*") if p.name.isdecimal()}
    if saved:
        newest = max(saved)
        record |= {"step": newest, "checkpoint_age_s": round(time.time() - saved[newest].stat().st_mtime)}
    if (failure := folder.failure()) is not None:
        return record | {"state": "failed", "reason": failure["reason"].strip().splitlines()[-1]}
    return record | ({"state": "started"} if folder.path.exists() else {})


def status_json(runs: Iterable[PlannedRun], root: Path) -> str:
    """The records as JSON."""
    return json.dumps(states(runs, root), indent=1)


def status_text(runs: Iterable[PlannedRun], root: Path) -> str:
    """A line a run and a line of totals."""
    records = states(runs, root)
    lines = [_line(r) for r in records]
    counts = {s: sum(r["state"] == s for r in records) for s in ("finished", "started", "failed", "missing")}
    totals = ", ".join(f"{n} {s}" for s, n in counts.items() if n)
    return "\n".join([*lines, f"{len(records)} runs: {totals}"])


def _line(record: dict[str, Any]) -> str:
    words = [f"{record['run']:<40}", f"{record['state']:<9}", f"{record['step']}/{record['steps']}"]
    if "loss" in record:
        words.append(f"loss {record['loss']:.4f}  {record['tokens_per_s'] / 1000:.1f}k tokens/s")
    if "checkpoint_age_s" in record:
        words.append(f"saved {record['checkpoint_age_s']} s ago")
    return "  ".join([*words, record.get("reason", "")]).rstrip()
