"""Run folders with invented losses, for tests of what is made of results. Never a result of anything."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from experiments.registry import load
from repro.evaluation.tasks import TASKS, choose, result_path
from repro.files import write_json
from repro.runs.folder import RunFolder, open_folder
from repro.spec.config import RunConfig
from repro.spec.experiment import PlannedRun, expand
from repro.spec.identity import config_text
from repro.spec.metric import METRIC_VERSION
from repro.spec.validation import declared_windows, validation_id

OFFSETS = {"Data-Parallel": 0.0, "DiLoCo H=30": 0.3, "H=30": 0.2, "H=100": 0.4}
SHARES = {"HellaSwag": 0.2462, "Piqa": 0.5789, "Arc Easy": 0.2965}
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
    return 5.0 - 0.15 * math.log(run.config.flops / 1e11) + offset + 0.01 * seed + 0.001 * sign


def validations(config: RunConfig, **losses: float) -> dict[str, Any]:
    """The validations of a summary that the scale declares, with these losses by the kind of parameters."""
    windows = declared_windows(config.scale, config.model.seq_len)
    facts = {"tokens": windows * config.model.seq_len, "bits_per_byte": 2.5, "metric_version": METRIC_VERSION}
    return {"validations": {validation_id(which, windows): {"loss": x, **facts} for which, x in losses.items()}}


def summary(config: RunConfig, loss: float) -> dict[str, Any]:
    """What a run's summary says of its loss; the three kinds of parameters are 0.1 apart."""
    return {**validations(config, outer=loss, average=loss + 0.1, first=loss + 0.2), "tokens_per_s": 1e4}


def finish(run: PlannedRun, root: Path, loss: float | None = None) -> RunFolder:
    """A finished run's folder."""
    folder = open_folder(root, run.config)
    write_json(folder.path / "provenance.json", {"attempts": [ATTEMPT]})
    (folder.path / "summary.json").unlink(missing_ok=True)  # a run writes it once; here it may be invented again
    folder.write_summary(
        {
            "run_id": run.run_id,
            **summary(run.config, invented_loss(run) if loss is None else loss),
            "steps": run.config.steps,
            "tokens": run.config.tokens,
            "in_domain": ["piqa"],
        }
    )
    return folder


def finished_record(run: PlannedRun, loss: float) -> dict[str, Any]:
    """A run with this loss as a file of collected results holds it."""
    config = json.loads(config_text(run.config))
    return {"run_id": run.run_id, "config": config, "summary": validations(run.config, outer=loss)}


def finish_all(root: Path, scale: str = "mini", seeds: int = 1) -> tuple[PlannedRun, ...]:
    """Every run of Table 5."""
    runs = planned(scale, seeds)
    for run in runs:
        finish(run, root)
    return runs


def evaluation(run_id: str, right: dict[str, list[bool]], of: int | None = None, **facts: Any) -> dict[str, Any]:
    """A result of `repro.evaluation.evaluate` with one score, of HellaSwag."""
    count = len(right["acc"])
    score = {"task": "hellaswag", "column": "HellaSwag", "split": "validation", "prompt": "hellaswag 1.0"}
    score |= {"questions": count, "of": count if of is None else of, "limit": None, "seed": None}
    score |= {"questions_digest": "0", "right": {m: np.packbits(r).tobytes().hex() for m, r in right.items()}}
    score |= {m: sum(r) / count for m, r in right.items()} | facts
    return {"run_id": run_id, "parameters": "outer", "scores": [score]}


def keep(run: PlannedRun, root: Path, shares: dict[str, float]) -> None:
    """Leave an evaluation with these shares right, acc a fifth below them, of whatever the scale asks."""
    config: RunConfig = run.config
    spec = choose(config)
    result: dict[str, Any] = {"run_id": run.run_id, "eval_id": spec.id(config.steps), "step": config.steps}
    result |= {"parameters": spec.parameters, "scores": []}
    for asked in spec.asked:
        task = TASKS[asked.task]
        share = shares[task.column]
        wanted = {"acc": 0.8 * share, "acc_norm": share}
        right = {m: [i < s * asked.count for i in range(asked.count)] for m, s in wanted.items()}
        facts = {"task": task.name, "column": task.column, "split": task.split, "seed": None}
        (kept,) = evaluation(run.run_id, right, of=task.questions, **facts)["scores"]
        result["scores"].append(kept)
    write_json(result_path(RunFolder(root, run.run_id), result["eval_id"]), result)
