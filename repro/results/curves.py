"""A run's curves and final numbers under the names that dashboards show: scalars by step. No JAX.

Read from the stored metrics, of a finished run or of one under way (up to its last checkpoint), so that training knows
of no dashboard. Tags are grouped by what stands before the slash: `train/loss`, `cosine/fragment_0`.
"""

import calendar
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from repro.evaluation.tasks import METRICS
from repro.files import listing, read_json
from repro.runs.folder import RunFolder
from repro.spec.metric import METRIC_VERSION, metric_version
from repro.spec.validation import declared
from repro.training.metrics import read_metrics

SPEED_STEPS = 10  # over which the speed is taken: the host learns of single steps late
Scalars = dict[str, float]


@dataclass(frozen=True)
class Point:
    """What was logged at one step; `seconds` is the time spent on training up to it, all attempts together."""

    step: int
    seconds: float
    values: Scalars


@dataclass(frozen=True)
class Curves:
    """One run: its config as stored, where it ran, its points by ascending step, and what it came to."""

    run_id: str
    config: dict[str, Any]
    provenance: dict[str, Any]  # of the last attempt
    started: int  # the first attempt, in seconds since 1970
    points: tuple[Point, ...]
    results: Scalars  # validation losses and scores at the end; without any while the run is unfinished
    failed: bool = False

    @property
    def step(self) -> int:
        """The last one."""
        return self.points[-1].step


def read_curves(folder: RunFolder) -> Curves:
    """Everything that a dashboard shows of a run; UserError when it has not reached its first checkpoint."""
    config = folder.config_as_read()
    attempts = (folder.provenance() or {"attempts": []})["attempts"]
    started = calendar.timegm(time.strptime(attempts[0]["started"], "%Y-%m-%dT%H:%M:%SZ")) if attempts else 0
    summary = folder.summary()
    return Curves(
        folder.run_id,
        config,
        attempts[-1] if attempts else {},
        started,
        tuple(_points(folder, config)),
        {} if summary is None else {**_losses(summary, config), **_scores(folder, int(summary["steps"]))},
        failed=summary is None and folder.failure() is not None,
    )


def dotted(config: dict[str, Any], prefix: str = "") -> dict[str, str | bool | float]:
    """A config as one level of dotted names; lists as text, and what is None left out."""
    fields: dict[str, str | bool | float] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            fields |= dotted(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            fields[prefix + name] = ", ".join(map(str, value))
        elif value is not None:
            fields[prefix + name] = value
    return fields


def _points(folder: RunFolder, config: dict[str, Any]) -> Iterator[Point]:
    syncs: dict[int, Scalars] = {}
    for record in read_metrics(folder.syncs).to_pylist() if listing(folder.syncs) else ():
        syncs.setdefault(record["step"], {}).update(_sync(record))
    tokens = config["batch"] * config["model"]["seq_len"]
    clocks, total = deque([0.0], maxlen=SPEED_STEPS + 1), 0.0
    for row in read_metrics(folder.metrics).to_pylist():
        if row["seconds"] <= clocks[-1]:  # an attempt counts its seconds from its own start
            clocks = deque([0.0], maxlen=SPEED_STEPS + 1)
        total += row["seconds"] - clocks[-1]
        clocks.append(row["seconds"])
        speed = {"train/tokens_per_second": tokens * (len(clocks) - 1) / (clocks[-1] - clocks[0])}
        yield Point(row["step"], total, {**_step(row), **speed, **syncs.get(row["step"], {})})


def _step(row: dict[str, Any]) -> Scalars:
    losses = _of_replicas(row, "loss")
    values = {"train/loss": sum(losses) / len(losses), "train/learning_rate": row["learning_rate"]}
    if len(losses) > 1:
        values |= {f"train/loss_replica_{m}": loss for m, loss in enumerate(losses)}
    if row["validation_loss"] is not None:
        values["validation/loss"] = row["validation_loss"]
    return values


def _sync(record: dict[str, Any]) -> Scalars:
    """Cosine similarity and norms of outer gradients, of a fragment or a part of it."""
    part = f"fragment_{record['fragment']}" if record["part"] == "fragment" else record["part"].replace(" ", "_")
    values = {f"norm/{part}_replica_{m}": norm for m, norm in enumerate(_of_replicas(record, "norm"))}
    return values if record["cosine"] is None else values | {f"cosine/{part}": record["cosine"]}


def _of_replicas(row: dict[str, Any], name: str) -> list[float]:
    """The columns name_0, name_1, … of a row."""
    values: list[float] = []
    while (value := row.get(f"{name}_{len(values)}")) is not None:
        values.append(value)
    return values


def _losses(summary: dict[str, Any], config: dict[str, Any]) -> Scalars:
    """Losses by the ids of the validations, and of the declared one also the bits a byte."""
    losses = {f"final/validation_loss_{name}": each["loss"] for name, each in summary["validations"].items()}
    validation = declared(summary, config["scale"], config["model"]["seq_len"])
    if validation is not None:
        version = metric_version(validation)
        bits = "final/bits_per_byte" if version == METRIC_VERSION else f"final/bits_per_byte_of_version_{version}"
        losses |= {"final/validation_loss": validation["loss"], bits: validation["bits_per_byte"]}
    return losses


def _scores(folder: RunFolder, step: int) -> Scalars:
    """Shares of right answers at the last step; a part of a set is named with its count, a mere try is left out."""
    scores: Scalars = {}
    for name in listing(folder.path / "evals"):
        result = read_json(folder.path / "evals" / name) if name.endswith(".json") else None
        if result is None or result["step"] != step:
            continue
        for score in result["scores"]:
            if score["limit"] is None:
                count = "" if score["questions"] == score["of"] else f"_{score['questions']}"
                tag = f"scores_{result['parameters']}/{score['task']}{count}"
                scores |= {f"{tag}_{metric}": score[metric] for metric in METRICS}
    return scores
