"""On what runs are validated, and how often: no part of a run's id, so more windows make no other run. No JAX.

A validation has an id of its own, as scores have: of which parameters after the last step, on how many held-out
windows. A run's summary holds its validations by id: the one that its scale declares, made at the end of training, and
those that were asked for later (`repro.evaluation.validating`). Tables read the declared one.
"""

import math
from collections.abc import Mapping
from typing import Any

from repro.spec.config import RunConfig

TOKENS = {"paper": 2**21, "mini": 2**16, "small": 2**16, "smoke": 2**9}  # in the windows that a scale declares
TIMES = {"paper": 20, "mini": 5, "small": 5, "smoke": 2}  # of a run, for its curve; the last at its end


def validation_interval(config: RunConfig) -> int:
    """Steps between two validations of a run, which give its curve."""
    return math.ceil(config.steps / TIMES[config.scale])


def declared_windows(scale: str, seq_len: int) -> int:
    """How many held-out windows of `seq_len` tokens a run of this scale is validated on, from the first."""
    return max(1, TOKENS[scale] // seq_len)


def validation_id(parameters: str, windows: int) -> str:
    """`<parameters>-<windows>`."""
    return f"{parameters}-{windows}"


def declared(
    summary: Mapping[str, Any], scale: str, seq_len: int, parameters: str = "outer"
) -> Mapping[str, Any] | None:
    """The validation of a summary that the scale declares; None where it was only validated otherwise, or not yet."""
    return summary.get("validations", {}).get(validation_id(parameters, declared_windows(scale, seq_len)))
