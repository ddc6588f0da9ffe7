"""The five methods of Figure 4 and the networks they are simulated on, as data. Standard library only."""

from dataclasses import dataclass
from typing import Literal

from repro.errors import UserError

BASELINE_BITS = 16.0  # what the accounts of Tables 1 and 4 imply that DiLoCo and data-parallel send
FP4_BITS = 4.0


@dataclass(frozen=True)
class Network:
    """A model as the simulator sees it: N parameters spread evenly over L layers, T seconds of compute a
    step.
    """

    name: str
    params: float
    layers: int
    step_time_s: float

    def __post_init__(self) -> None:
        if not 0 < self.params < float("inf"):
            raise UserError(f"{self.params:g} parameters: give a number above 0.")
        if self.layers < 1:
            raise UserError(f"{self.name} has {self.layers} layers: a model needs at least one.")
        if not 0 < self.step_time_s < float("inf"):
            raise UserError(f"{self.name} has a step time of {self.step_time_s} s: give one above 0.")


@dataclass(frozen=True)
class Method:
    """One curve of Figure 4. `sends`: every step, all layers every H steps, or one fragment at a time."""

    key: str
    label: str
    sends: Literal["gradients", "whole", "fragments"]
    bits: float
    delay: int = 0  # tau
    pattern: str = "strided"


METHODS = (
    Method("data-parallel", "Data-Parallel", "gradients", BASELINE_BITS),
    Method("diloco", "Vanilla DiLoCo", "whole", BASELINE_BITS),
    Method("streaming", "Streaming DiLoCo", "fragments", BASELINE_BITS),
    Method("streaming-overlap", "Streaming DiLoCo w/ overlapped com.", "fragments", BASELINE_BITS, delay=1),
    Method("streaming-fp4", "Streaming DiLoCo w/ overlapped FP4 com.", "fragments", FP4_BITS, delay=1),
)


def method(key: str) -> Method:
    """The method of that key; UserError lists them."""
    for candidate in METHODS:
        if candidate.key == key:
            return candidate
    raise UserError(f"unknown method {key!r}: choose one of {', '.join(m.key for m in METHODS)}.")
