"""Which questions a run is asked, under which id the scores are kept, and how they are read again. No JAX.

    runs/<id>/evals/<eval id>.json    the scores, written last
                    <eval id>.parts/  what has been scored so far, until then

A score is kept with its metric, split, count, prompt version and rule for the first token, and only like is set beside
like. The paper's ARC-Easy and PIQA digits are multiples of 1/570 and 1/1838, the validation splits; whether they are
acc or acc_norm it does not say. Two metrics of lm-eval: acc takes the answer with the greatest log-likelihood, acc_norm
the greatest log-likelihood for each character.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from repro.errors import UnusableFile, UserError
from repro.files import read_json
from repro.runs.folder import RunFolder
from repro.runs.stored import Scores, checked
from repro.spec.config import RunConfig
from repro.spec.identity import canonical

METRICS = ("acc", "acc_norm")
TABLE_METRIC = "acc_norm"  # in tables of the paper: an assumption, for which the level of its ARC-Easy column speaks
PARAMETERS = ("outer", "first", "average")
BATCH = 8  # sequences of full length given to a device at a time; it changes no score
BOS_RULE = "none: contexts as they are; an empty context is the token that ends documents"


@dataclass(frozen=True)
class Task:
    """A task of lm-eval on one split; `version` is that of its prompt, checked when questions are made."""

    name: str
    column: str  # the paper's head of this set
    stock: str  # lm-eval's task
    split: str
    questions: int
    choices: int  # of nearly every question
    version: str = "1.0"

    @property
    def chance(self) -> float:
        """The share that guessing gets."""
        return 1 / self.choices


TASKS = {
    task.name: task
    for task in (
        Task("hellaswag", "HellaSwag", "hellaswag", "validation", 10_042, 4),
        Task("piqa", "Piqa", "piqa", "validation", 1_838, 2),
        Task("arc_easy_validation", "Arc Easy", "arc_easy", "validation", 570, 4),
        Task("arc_easy", "", "arc_easy", "test", 2_376, 4),
    )
}


@dataclass(frozen=True)
class Asked:
    """A task, in whole or a part of it: `seeded` questions drawn by a seed, or the first `limit`."""

    task: str
    seeded: int | None = None
    limit: int | None = None
    seed: int = 0

    @cached_property
    def indices(self) -> tuple[int, ...] | None:
        """The questions by their place in the split, ascending; None for all."""
        total = TASKS[self.task].questions
        if self.limit is not None:
            return tuple(range(self.limit)) if self.limit < total else None
        if self.seeded is None or self.seeded >= total:
            return None
        # The order of hashes: a draw that no version of a library changes.
        order = sorted(range(total), key=lambda i: hashlib.sha256(f"{self.seed}:{i}".encode()).digest())
        return tuple(sorted(order[: self.seeded]))

    @property
    def count(self) -> int:
        """Questions asked."""
        return TASKS[self.task].questions if self.indices is None else len(self.indices)


@dataclass(frozen=True)
class EvalSpec:
    """What is asked of which parameters; with a checkpoint's step, one evaluation of a run."""

    name: str
    asked: tuple[Asked, ...]
    parameters: str

    def id(self, step: int) -> str:
        """`<name>-<parameters>-<8 hex>` over everything that changes a score."""
        versions = {a.task: TASKS[a.task].version for a in self.asked}
        text = json.dumps([canonical(self), versions, BOS_RULE, step], sort_keys=True)
        return f"{self.name}-{self.parameters}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


MINI_HELLASWAG = 1_000  # of 10,042, so that the twelve runs of mini Table 5 are asked in about a minute
SETS = {
    "full": (Asked("hellaswag"), Asked("piqa"), Asked("arc_easy_validation")),
    "part": (Asked("hellaswag", seeded=MINI_HELLASWAG), Asked("piqa"), Asked("arc_easy_validation")),
    "few": tuple(Asked(task, seeded=8) for task in ("hellaswag", "piqa", "arc_easy_validation")),
}
DEFAULT_SETS = {"paper": "full", "mini": "part", "small": "part", "smoke": "few"}


def choose(
    config: RunConfig,
    name: str | None = None,
    *,
    tasks: tuple[str, ...] = (),
    limit: int | None = None,
    parameters: str = "outer",
) -> EvalSpec:
    """The evaluation of a run: a set by name (default: the scale's), or `tasks`, the first `limit` of each.

    UserError on an unknown name or a bad limit.
    """
    name = name or (None if tasks else DEFAULT_SETS[config.scale])
    if name is not None and name not in SETS:
        raise UserError(f"evaluation {name!r} is unknown: choose one of {', '.join(SETS)}.")
    for task in tasks:
        if task not in TASKS:
            raise UserError(f"task {task!r} is unknown: choose among {', '.join(TASKS)}, or use `repro lm-eval`.")
    if limit is not None and limit < 1:
        raise UserError(f"limit={limit}: ask at least one question.")
    asked = tuple(Asked(task) for task in tasks) if tasks else SETS[name or ""]
    if limit is not None:
        asked = tuple(Asked(a.task, limit=limit) for a in asked)
    label = "limited" if limit is not None else "tasks" if tasks else name or ""
    return EvalSpec(label, asked, _parameters(config, parameters))


def _parameters(config: RunConfig, which: str) -> str:
    if which not in PARAMETERS:
        raise UserError(f"parameters {which!r} are unknown: choose {', '.join(PARAMETERS)}.")
    return which if config.sync is not None else "outer"  # data-parallel has only its own


def result_path(folder: RunFolder, eval_id: str) -> Path:
    """Where the scores of an evaluation lie once it is done."""
    return folder.path / "evals" / f"{eval_id}.json"


def read_result(folder: RunFolder, spec: EvalSpec, step: int) -> dict[str, Any] | None:
    """The scores; None while there are none. UnusableFile when the file is another evaluation's."""
    path = result_path(folder, spec.id(step))
    result = checked(path, read_json(path), Scores)
    if result is not None and (result["run_id"], result["step"]) != (folder.run_id, step):
        raise UnusableFile(f"{path} is of run {result.get('run_id')!r}, step {result.get('step')}: delete it.")
    return result


def standard_error(share: float, count: int) -> float | None:
    """A share's standard error over `count` answers, as lm-eval has it: deviation over √count; None for one answer."""
    return math.sqrt(share * (1 - share) / (count - 1)) if count > 1 else None


def harness() -> str:
    """lm-eval and its version."""
    return f"lm-eval {version('lm-eval')}"
