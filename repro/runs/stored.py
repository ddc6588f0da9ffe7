"""What the files of a run hold at least, for those who read many runs: another tool's, or half of one, is told apart.

The shapes are minimal: a file may hold more, and what a later version adds makes no earlier one unusable. No JAX.
"""

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec

from repro.errors import UnusableFile
from repro.spec.config import SCALES


class Model(msgspec.Struct):
    """The model of a config."""

    seq_len: Annotated[int, msgspec.Meta(ge=1)]


class Config(msgspec.Struct):
    """config.json, as far as a list of runs needs it."""

    scale: Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(SCALES)})$")]
    steps: int
    batch: int
    seed: int
    model: Model


class Validation(msgspec.Struct):
    """One of a summary's validations: a loss in nats a token."""

    loss: float


class Summary(msgspec.Struct):
    """summary.json."""

    run_id: str
    steps: int
    validations: dict[str, Validation]
    tokens_per_s: float


class Failure(msgspec.Struct):
    """failure.json."""

    reason: Annotated[str, msgspec.Meta(pattern=r"\S")]


class AttemptEntry(msgspec.Struct):
    """An entry of the provenance."""

    started: str
    outcome: str


class Attempts(msgspec.Struct):
    """provenance.json."""

    attempts: list[AttemptEntry]


class Scores(msgspec.Struct):
    """A file of evals/."""

    run_id: str
    eval_id: str
    step: int
    parameters: str
    scores: list[dict[str, Any]]


def checked(path: Path, value: Any, shape: type[msgspec.Struct]) -> Any:
    """The `value` that was read from `path`; UnusableFile when it hasn't the shape. None, for no file, passes."""
    if value is not None:
        try:
            msgspec.convert(value, shape)
        except msgspec.ValidationError as error:
            kind = " ".join(re.findall("[A-Z][a-z]+", shape.__name__)).lower()
            raise UnusableFile(f"{path} is no {kind} of a run ({error}): move it away.") from error
    return value
