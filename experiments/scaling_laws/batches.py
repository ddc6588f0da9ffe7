"""Figures 3 and 4: the loss over the global batch, for Data-Parallel and each M (section 4, finding 3).

The paper finds larger best batches for DiLoCo than for Data-Parallel, the larger the more replicas, and a loss that
rises less beyond them.

    make scaling_laws_batches
"""

from experiments.scaling_laws.base import NOTES, SMALLEST, replica_label, scaled_batch, trained_config
from experiments.scaling_laws.table4 import METHODS
from repro.spec.experiment import Experiment, Row

FACTORS = (0.25, 0.5, 1, 2, 4)  # of the batch of a method


def batch_row(replicas: int, factor: float) -> str:
    """The key of a row."""
    return " | ".join(batch_labels(replicas, factor))


def batch_labels(replicas: int, factor: float) -> tuple[str, ...]:
    """The labels of a row."""
    return SMALLEST, replica_label(replicas), f"batch × {factor:g}"


def grid_row(replicas: int, factor: float) -> Row:
    """A method at one batch; at toy size three batches of the first three methods show that it runs."""
    config = trained_config(SMALLEST, replicas, batch_factor=factor)
    toy = factor in (0.5, 1, 2) and replicas <= 2
    own = {scale: scaled_batch(config, factor, scale) for scale in ("mini", "smoke") if scale == "mini" or toy}
    return Row(batch_labels(replicas, factor), config, own, x=factor)


EXPERIMENT = Experiment(
    name="scaling_laws_batches",
    title="Loss over the global batch",
    place="Figures 3 and 4; section 4",
    rows=tuple(grid_row(m, factor) for m in METHODS for factor in FACTORS),
    axis="batch, as a multiple of the middle one",
    notes=(
        *NOTES,
        "The middle of the miniature's batches is 8 sequences up to M = 2 and 4 a replica beyond; its rate goes with "
        "the root of the batch, where the paper tunes it at each batch.",
    ),
)
