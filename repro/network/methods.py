"""The five methods of Figure 4 and the networks they are simulated on, as data, and what a simulation may hold."""

from dataclasses import dataclass
from typing import Annotated, Literal

from repro.errors import UserError
from repro.values import Seconds, check_fields, number, whole

BASELINE_BITS = 16.0  # what the accounts of Tables 1 and 4 imply that DiLoCo and data-parallel send
FP4_BITS = 4.0

Amount = Annotated[float, number(above=0, most=1e18)]  # of parameters or tokens
Layers = Annotated[int, whole(1, 1_000)]  # more than any network has; with as long a period it takes a minute
Period = Annotated[int, whole(1, 10_000)]  # H: each of its steps is simulated
Delay = Annotated[int, whole(0, 10_000)]
Bits = Annotated[float, number(above=0, most=1e4)]
Rate = Annotated[float, number(above=0, most=1e9)]  # Gbit/s
Latency = Annotated[float, number(least=0, most=1e6)]
Share = Annotated[float, number(above=0, below=1)]
Replicas = Annotated[int, whole(2, 10_000)]  # a link between sites needs at least 2


@dataclass(frozen=True)
class Network:
    """A model as the simulator sees it: N parameters spread evenly over L layers, T seconds of compute a
    step.
    """

    name: str
    params: Amount
    layers: Layers
    step_time_s: Seconds

    def __post_init__(self) -> None:
        check_fields(self)


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
