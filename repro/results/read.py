"""What the runs of an experiment left behind, read again. Standard library only; nothing is computed here."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from repro.errors import UnusableFile, pass_over
from repro.evaluation.tasks import choose, read_result
from repro.runs.folder import RunFolder
from repro.runs.provenance import dirty
from repro.spec.experiment import PlannedRun
from repro.spec.metric import metric_version
from repro.spec.validation import declared, declared_windows, validation_id

State = Literal["done", "failed", "unfinished", "not run"]


@dataclass(frozen=True)
class Result:
    """A planned run and what its folder holds; None for what isn't there."""

    run: PlannedRun
    summary: dict[str, Any] | None = None
    provenance: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None
    evaluation: dict[str, Any] | None = None  # downstream scores of the last step
    syncs: tuple[Mapping[str, Any], ...] = ()  # the log of its outer gradients, where it was asked for
    archived: bool = False  # from the collected results, not from a run folder

    @property
    def state(self) -> State:
        """A summary means done, whatever earlier attempts did."""
        if self.summary is not None:
            return "done"
        if self.failure is not None:
            return "failed"
        return "not run" if self.provenance is None else "unfinished"

    @property
    def loss(self) -> float | None:
        """Validation loss in nats a token, of the parameters that the row reads; None unless the run is done."""
        validation = self.validation
        return None if validation is None else float(validation["loss"])

    @property
    def validation(self) -> Mapping[str, Any] | None:
        """The validation that the scale declares, of the parameters that the row reads; None unless the run is done."""
        return None if self.summary is None else row_validation(self.run, self.summary)

    @property
    def metric_version(self) -> int | None:
        """By which version its numbers were counted; None unless the run is done."""
        return None if self.validation is None else metric_version(self.validation)

    @property
    def guessing(self) -> float:
        """The loss of a model that takes every token for equally likely, ln V; one above it has diverged."""
        return math.log(self.run.config.model.vocab)

    @property
    def diverged(self) -> bool:
        """Whether the run is done and worse than guessing."""
        return self.loss is not None and self.loss > self.guessing

    @property
    def dirty(self) -> bool | None:
        """Whether it was made from uncommitted changes; None where that isn't known."""
        return dirty((self.provenance or {}).get("attempts", ()))


def collect(
    runs: Iterable[PlannedRun], root: Path, eval_set: str | None = None, *, syncs: bool = False
) -> tuple[Result, ...]:
    """A result for each run, in order, from `root`/<run id>; `eval_set` names the evaluation (default: the scale's).

    `syncs` reads the logs of outer gradients too. A folder that holds another config than its name says, or a file
    that is damaged or another's, is named on standard error and counts as no run.
    """
    return tuple(_read(run, RunFolder(root, run.run_id), eval_set, syncs) for run in runs)


def _read(run: PlannedRun, folder: RunFolder, eval_set: str | None, syncs: bool) -> Result:
    try:
        return _result(run, folder, eval_set, syncs)
    except UnusableFile as error:
        pass_over(str(error))
        return Result(run)


def _result(run: PlannedRun, folder: RunFolder, eval_set: str | None, syncs: bool) -> Result:
    if not folder.check(run.config):
        return Result(run)
    summary = folder.result()
    if summary is not None and row_validation(run, summary) is None:
        windows = declared_windows(run.config.scale, run.config.model.seq_len)
        raise UnusableFile(
            f"{folder.path}/summary.json has no validation {validation_id(run.parameters, windows)}: make it with "
            f"`python -m repro evaluate {run.run_id} --windows {windows} --parameters {run.parameters}`."
        )
    evaluation = None
    if summary is not None:
        spec = choose(run.config, eval_set, parameters=run.parameters)
        evaluation = read_result(folder, spec, int(summary["steps"]))
    logged = _syncs(folder) if syncs and summary is not None and run.config.sync else ()
    return Result(run, summary, folder.provenance(), folder.failure(), evaluation, logged)


def row_validation(run: PlannedRun, summary: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The validation in a run's summary that its row shows; None where it wasn't made."""
    return declared(summary, run.config.scale, run.config.model.seq_len, run.parameters)


def _syncs(folder: RunFolder) -> tuple[Mapping[str, Any], ...]:
    from repro.training.metrics import read_metrics  # pyarrow, which tables don't need

    return tuple(read_metrics(folder.syncs).to_pylist())
