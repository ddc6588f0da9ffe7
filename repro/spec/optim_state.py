"""Which optimisers there are, what each keeps of a parameter between updates, and which numbers it reads. No JAX: the
configs and the accounts read it.

A test holds these sizes to what `init` of the optimisers in `repro.diloco.optim` gives, so that a new one can't be
counted wrong.
"""

from dataclasses import dataclass

VALUE_BYTES = 4  # parameters and what both optimisers keep are float32


@dataclass(frozen=True)
class Optimizer:
    """`buffers` float32 arrays of a parameter's shape (single numbers, such as a count of updates, aren't counted), and
    the fields of its config that it `reads` beside the rate."""

    buffers: int
    reads: tuple[str, ...] = ()


INNER = Optimizer(2)  # AdamW: both moments
OUTER = {
    "nesterov": Optimizer(1, ("momentum",)),
    "sgd": Optimizer(0),
    "heavy_ball": Optimizer(1, ("momentum",)),
    "adam": Optimizer(2, ("beta1", "beta2", "eps")),
}


def inner_bytes() -> int:
    """Bytes of a parameter and of what InnerOpt keeps of it."""
    return VALUE_BYTES * (1 + INNER.buffers)


def outer_bytes(optimizer: str) -> int:
    """Bytes of an outer parameter and of what OuterOpt keeps of it."""
    return VALUE_BYTES * (1 + OUTER[optimizer].buffers)
