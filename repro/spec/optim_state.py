"""Which optimisers there are, and what each keeps of a parameter between updates. No JAX: the accounts read it.

A test holds these numbers to what `init` of the optimisers in `repro.diloco.optim` gives, so that a
new one can't be counted wrong.
"""

# float32 buffers of a parameter's shape; single numbers, such as a count of updates, aren't counted
INNER_BUFFERS = 2  # AdamW: both moments
OUTER_BUFFERS = {
    "nesterov": 1,
    "sgd": 0,
}
VALUE_BYTES = 4  # parameters and what both optimisers keep are float32


def inner_bytes() -> int:
    """Bytes of a parameter and of what InnerOpt keeps of it."""
    return VALUE_BYTES * (1 + INNER_BUFFERS)


def outer_bytes(optimizer: str) -> int:
    """Bytes of an outer parameter and of what OuterOpt keeps of it."""
    return VALUE_BYTES * (1 + OUTER_BUFFERS[optimizer])
