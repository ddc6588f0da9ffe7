"""Invented evidence for the claims: a world in which every statement holds, and three in which it doesn't. No result.

Losses follow the labels of a row; seeds move all rows alike and add a small paired part.
"""

import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from fabricated import validations

from analysis.claims.evidence import View, experiments
from analysis.paper.statements import value
from experiments.registry import load
from experiments.streaming.base import DP
from experiments.streaming.table5 import STREAM_100
from repro.results.read import Result
from repro.spec.experiment import PlannedRun, expand

Loss = Callable[[PlannedRun], float]
SEEDS = 3
QUESTIONS = 2_000
LARGEST_FLOPS = {"paper": 1.946e20, "mini": 1.7e12}  # of 1B and of the largest miniature
SMALLEST_FLOPS = 1.492e17


def view(scale: str, world: str, seeds: int = SEEDS, keep: Callable[[PlannedRun], bool] = lambda run: True) -> View:
    """Every experiment that decides a statement, finished where `keep` says so."""
    results = {}
    for name in experiments():
        runs = expand(load(name), scale, seeds)
        results[name] = tuple(_result(name, run, world) if keep(run) else Result(run) for run in runs)
    return View(scale, results)


def _result(experiment: str, run: PlannedRun, world: str) -> Result:
    loss = WORLDS[world](experiment, run)
    seed = run.config.seed
    noise = 0.02 * seed + 0.0002 * math.sin(zlib.crc32(f"{run.paper_row} {seed}".encode()))
    summary = {"run_id": run.run_id, **validations(run.config, **{run.parameters: loss + noise})}
    syncs = tuple(_syncs(run, world)) if experiment == "figure17" else ()
    return Result(run, summary, evaluation=_evaluation(run, world), syncs=syncs)


def faithful(experiment: str, run: PlannedRun) -> float:
    """What the paper's text says, in numbers."""
    labels = run.paper_row.split(" | ")
    return FAITHFUL[experiment](run, labels)


def negated(experiment: str, run: PlannedRun) -> float:
    """Every order turned round."""
    return 8.0 - faithful(experiment, run)


def amplified(experiment: str, run: PlannedRun) -> float:
    """Every difference a hundred times as large."""
    return 100.0 * (faithful(experiment, run) - 2.67) + 2.67


WORLDS: Mapping[str, Callable[[str, PlannedRun], float]] = {
    "faithful": faithful,
    "negated": negated,
    "amplified": amplified,
}


def _table5(run: PlannedRun, labels: list[str]) -> float:
    """2.49 at 1B, as printed, or at the largest miniature; the gap of H = 100 closes there."""
    slope, steeper = (
        value("statements", f"scaling slope | {m}", "Slope") for m in ("Data-Parallel", "Streaming DiLoCo")
    )
    far = math.log(run.config.flops / LARGEST_FLOPS[run.config.scale])
    added = {DP: 0.0, STREAM_100: 0.01 + (steeper - slope) * far}.get(labels[1])
    if added is None:
        added = 0.006 if labels[1].startswith("DiLoCo") else -0.006
    return 2.49 + slope * far + added


def _overtraining(run: PlannedRun, labels: list[str]) -> float:
    added = 0.03 if labels[0].endswith("M=4") else 0.0 if labels[0] == DP else -0.004
    return 2.6 - 0.02 * math.log(run.config.steps) + added


def _table6(run: PlannedRun, labels: list[str]) -> float:
    return 3.0 + 0.02 * int(labels[1]) + 0.0003 * int(labels[2])


def _fedpart(run: PlannedRun, labels: list[str]) -> float:
    return value("statements", f"FedPart | {'frozen' if 'frozen' in labels[0] else 'not frozen'}", "Eval Loss")


def _figure11(run: PlannedRun, labels: list[str]) -> float:
    if labels[0] == "Precision":
        return 2.67 + 0.0002 * (32 - run.x) / 32  # type: ignore[operator]
    return 2.67 + {"Top-K": 0.03, "TIES": 0.04}.get(labels[0], 0.08)


def _figure13(run: PlannedRun, labels: list[str]) -> float:
    below, above = max(0.0, 30 - run.x), max(0.0, run.x - 30)  # type: ignore[operator]
    low, high = (0.002, 0.0001) if labels[0] == "DiLoCo" else (0.001, 0.00011)
    return 2.67 + low * below + high * above


def _tuning(run: PlannedRun, labels: list[str]) -> float:
    sync = run.config.sync
    return 3.0 + (abs(sync.outer.learning_rate - 0.4) if sync else 0.0)


FAITHFUL: Mapping[str, Callable[[PlannedRun, list[str]], float]] = {
    "table1": _overtraining,
    "table3": lambda run, labels: {"outer": 2.670, "average": 2.674, "first": 2.678}[run.parameters],
    "table5": _table5,
    "table6": _table6,
    "table7": _overtraining,
    "fedpart": _fedpart,
    "figure6": lambda run, labels: 2.67 + (0.004 if labels[0] == "Sequential" else 0.0),
    "figure8": lambda run, labels: 2.67 + 0.0001 * run.x,  # type: ignore[operator]
    "figure10": lambda run, labels: 2.67 + 0.0001 * run.x,  # type: ignore[operator]
    "figure11": _figure11,
    "figure13": _figure13,
    "figure17": lambda run, labels: 2.67,
    "tuning": _tuning,
}


def _evaluation(run: PlannedRun, world: str) -> dict[str, Any]:
    """Equal answers in the faithful world but for fewer with four replicas; elsewhere each method its own."""
    right = np.zeros(QUESTIONS, bool)
    share = 0.4 - (0.02 if run.config.replicas == 4 else 0.0)
    if world != "faithful":
        share = 0.2 + 0.1 * (zlib.crc32(run.paper_row.encode()) % 5) + (0.4 if run.config.replicas == 4 else 0.0)
    right[: int(share * QUESTIONS)] = True
    bits = np.packbits(right).tobytes().hex()
    facts = {"split": "validation", "prompt": "1", "questions": QUESTIONS, "of": QUESTIONS, "limit": None, "seed": None}
    scores = [
        {"task": column, "column": column, "questions_digest": "0", "right": {"acc_norm": bits}, "acc_norm": share}
        | facts
        for column in ("HellaSwag", "Piqa", "Arc Easy")
    ]
    return {"run_id": run.run_id, "parameters": "outer", "scores": scores}


def _syncs(run: PlannedRun, world: str) -> list[dict[str, Any]]:
    """0.1, then 0, then -0.1, a little less with size, more in the first layer; turned round elsewhere."""
    steps, layers = run.config.steps, run.config.model.layers
    size = 0.002 * math.log(run.config.flops / SMALLEST_FLOPS) - 0.0001 * run.config.seed
    sign = 1 if world == "faithful" else -1
    records = []
    for i in range(20):
        step = round(steps * (i + 0.5) / 20)
        course = 0.1 if i < 4 else -0.1 if i > 15 else 0.0
        if world == "amplified":
            course = course * 4 + 0.3
        for layer in range(layers):
            cosine = sign * (course - size + (0.01 if layer == 0 else 0.0))
            base = {"step": step, "taken": step - 1, "fragment": layer}
            records += [base | {"part": part, "cosine": cosine} for part in (f"layer {layer}", "fragment")]
        base = {"step": step, "taken": step - 1, "fragment": layers, "cosine": sign * (course - size)}
        records += [base | {"part": part} for part in ("embedding", "fragment")]
    return records
