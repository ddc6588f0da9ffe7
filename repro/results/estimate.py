"""How long training and scoring what is missing will take on CPU cores, from what such runs took before. No JAX.

A run's own record says how many processor seconds it took, compilation included: on a free core that is its wall time,
whatever else the machine did. A run without a record, of any seed, is taken for the nearest one: same model and
replicas, else the nearest in FLOPs a step, scaled by its steps.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from repro.evaluation.tasks import EvalSpec
from repro.spec.config import RunConfig
from repro.spec.experiment import PlannedRun, unique
from repro.spec.identity import from_json
from repro.words import counted

UNKNOWN = "no such run has been timed yet"
UNTIMED = "how long it takes is not known, as what was timed before was timed on CPU cores"


def seconds_of(runs: Iterable[PlannedRun], records: Iterable[Mapping[str, Any]]) -> float | None:
    """Processor seconds that `runs` will take, each once; None where no record has a time."""
    timed = [(from_json(RunConfig, r["config"]), r["summary"]["processor_seconds"]) for r in records if _timed(r)]
    if not timed:
        return None
    return sum(_one(run.config, timed) for run in unique(runs))


def duration_sentence(runs: Iterable[PlannedRun], records: Iterable[Mapping[str, Any]], workers: int) -> str:
    """`about 41 minutes on 2 free cores`, or that nothing is known."""
    seconds = seconds_of(runs, records)
    if seconds is None:
        return UNKNOWN
    return f"about {_duration(seconds / workers)} of training on {counted(workers, 'free core')}, as timed before"


def scoring_sentence(
    asked: Collection[tuple[RunConfig, EvalSpec]], records: Iterable[Mapping[str, Any]], workers: int
) -> str:
    """`41 evaluations: about 9 minutes on 2 free cores, as timed before`.

    An evaluation takes the median of those of the same set and model, of any model where there are none.
    """
    timed: dict[tuple[str, ...], list[float]] = {}
    for record in records:
        for result in record["evaluations"].values():
            for key in ((result["name"], record["config"]["model"]["size"]), (result["name"],)):
                timed.setdefault(key, []).append(result["seconds"])
    many = counted(len(asked), "evaluation")
    if not all((spec.name,) in timed for _, spec in asked):
        return f"{many}, which nobody has timed yet"
    near = [timed.get((spec.name, config.model.size), timed[(spec.name,)]) for config, spec in asked]
    seconds = sum(statistics.median(times) for times in near)
    workers = max(1, min(workers, len(asked)))
    return f"{many}: about {_duration(seconds / workers)} on {counted(workers, 'free core')}, as timed before"


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    if minutes >= 90:
        return f"{minutes / 60:.1f} hours"
    return counted(math.ceil(minutes), "minute")


def _timed(record: Mapping[str, Any]) -> bool:
    """Whether it tells the time of a CPU: the host of an accelerator only waits."""
    on = record.get("made", {}).get("mesh", {}).get("device", "cpu")
    return on == "cpu" and record["summary"].get("processor_seconds") is not None


def _one(config: RunConfig, timed: list[tuple[RunConfig, float]]) -> float:
    """What the same run took with another seed, else the median over the nearest of seconds a step, times the steps."""
    same = [seconds for other, seconds in timed if replace(other, seed=config.seed) == config]
    if same:
        return statistics.median(same)
    alike = [
        t for t in timed if (t[0].model, t[0].replicas, t[0].batch) == (config.model, config.replicas, config.batch)
    ]
    if alike:
        return config.steps * statistics.median(seconds / other.steps for other, seconds in alike)
    work = config.flops / config.steps

    def distance(other: RunConfig) -> float:
        return abs(math.log(other.flops / other.steps / work))

    other, seconds = min(timed, key=lambda t: distance(t[0]))
    return config.steps * seconds / other.steps * (work * other.steps / other.flops)
