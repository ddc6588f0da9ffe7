"""Figures 7 and 8: the loss over the outer learning rate, for each M at H = 30 and for M = 2 at each H.

The paper finds the best rate to grow with M and with H, and not to depend on the size.

    make scaling_laws_outer_rates
"""

from experiments.scaling_laws.base import NOTES, OUTER_RATES, REPLICAS, replica_label, trained_config
from experiments.scaling_laws.cadence import CADENCES, cadence_label
from repro.spec.experiment import Experiment, Row

SIZES = ("35M", "90M")  # at which each M is tuned here
SWEPT = 2  # M of the sweep over H


def rate_row(size: str, replicas: int, every: int, rate: float) -> str:
    """The key of a row."""
    return " | ".join(rate_labels(size, replicas, every, rate))


def rate_labels(size: str, replicas: int, every: int, rate: float) -> tuple[str, ...]:
    """The labels of a row."""
    return size, replica_label(replicas), cadence_label(every), f"η = {rate:g}"


POINTS = (
    *((size, m, 30) for size in SIZES for m in REPLICAS),
    *((SIZES[0], SWEPT, every) for every in CADENCES if every != 30),
)

EXPERIMENT = Experiment(
    name="scaling_laws_outer_rates",
    title="Loss over the outer learning rate",
    place="Figures 7 and 8; sections 4 and 5.1",
    rows=tuple(
        Row(rate_labels(*point, rate), trained_config(*point, outer_rate=rate), x=rate)
        for point in POINTS
        for rate in OUTER_RATES
    ),
    axis="outer learning rate",
    notes=(
        *NOTES[:2],
        "Inner rate and batch stay those of the method: the paper tunes them together with the outer rate.",
    ),
)
