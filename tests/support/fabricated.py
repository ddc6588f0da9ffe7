"""Run folders with invented losses, for tests of what is made of results. Never a result of anything."""

import math
from pathlib import Path
from typing import Any

from experiments.registry import load
from repro.files import write_json
from repro.runs.folder import RunFolder, open_folder
from repro.spec.experiment import PlannedRun, expand

OFFSETS = {"Data-Parallel": 0.0, "DiLoCo H=30": 0.3, "H=30": 0.2, "H=100": 0.4}
ATTEMPT = {
    "commit": "0123456789abcdef",
    "dirty": False,
    "python": "3.11.0",
    "cores": 2,
    "processor": "a processor",
    "versions": {"jax": "0.10.2"},
    "started": "2025-01-01T00:00:00Z",
    "outcome": "finished",
}


def planned(scale: str = "mini", seeds: int = 1) -> tuple[PlannedRun, ...]:
    """Table 5's runs."""
    return expand(load("table5"), scale, seeds)


def invented_loss(run: PlannedRun) -> float:
    """Falls with size; methods 0, 0.2, 0.3, 0.4 apart; seeds 0.01 apart, with a paired part of 0.001."""
    method = run.paper_row.split(" | ")[1]
    offset = next(value for name, value in OFFSETS.items() if method.endswith(name))
    seed = run.config.seed
    sign = (-1) ** (seed + len(method))
    return 12.0 - 0.25 * math.log(run.config.flops / 1e11) + offset + 0.01 * seed + 0.001 * sign


def summary(loss: float) -> dict[str, Any]:
    """What a run's summary says of its loss; the three kinds of parameters are 0.1 apart."""
    losses = {"outer": loss, "average": loss + 0.1, "first": loss + 0.2}
    return {"validation_loss": loss, "validation_losses": losses, "tokens_per_s": 1e4}


def finish(run: PlannedRun, root: Path, loss: float | None = None) -> RunFolder:
    """A finished run's folder."""
    folder = open_folder(root, run.config)
    write_json(folder.path / "provenance.json", {"attempts": [ATTEMPT]})
    (folder.path / "summary.json").unlink(missing_ok=True)  # a run writes it once; here it may be invented again
    folder.write_summary(
        {
            "run_id": run.run_id,
            **summary(invented_loss(run) if loss is None else loss),
            "steps": run.config.steps,
            "tokens": run.config.tokens,
            "in_domain": ["piqa"],
        }
    )
    return folder


def finish_all(root: Path, scale: str = "mini", seeds: int = 1) -> tuple[PlannedRun, ...]:
    """Every run of Table 5."""
    runs = planned(scale, seeds)
    for run in runs:
        finish(run, root)
    return runs
