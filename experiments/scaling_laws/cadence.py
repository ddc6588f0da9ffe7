"""Figure 9: the loss over the synchronisation cadence H, for M = 1, 2 and 4 (section 5.1).

The paper finds H = 1 worst, then a loss that grows with H, less so for M = 1 and for larger models.

    make scaling_laws_cadence
"""

from itertools import pairwise

from experiments.scaling_laws.base import NOTES, replica_label, trained_config
from experiments.streaming.base import at_each
from repro.spec.experiment import Claim, Experiment, Row

SIZES, REPLICAS = ("90M", "180M", "550M"), (1, 2, 4)
CADENCES = (1, 5, 10, 30, 100, 300)  # H
GROUPS = tuple(f"{size} | {replica_label(m)}" for size in SIZES for m in REPLICAS)


def cadence_label(every: int) -> str:
    """H as its rows have it."""
    return f"H = {every}"


EXPERIMENT = Experiment(
    name="scaling_laws_cadence",
    title="Loss over the synchronisation cadence",
    place="Figure 9; section 5.1",
    rows=tuple(
        Row((size, replica_label(m), cadence_label(every)), trained_config(size, m, every), x=every)
        for size in SIZES
        for m in REPLICAS
        for every in CADENCES
    ),
    claims=(
        Claim(
            "every-step-worst",
            "order",
            tuple(
                pair
                for every in CADENCES[1:]
                for pair in at_each(
                    GROUPS, f"{{}} | {cadence_label(every)}", f"{{}} | {cadence_label(1)}", cadence_label(every)
                )
            ),
        ),
        Claim(
            "loss-grows-with-h",
            "order",
            tuple(
                pair
                for every, longer in pairwise(CADENCES[1:])
                for pair in at_each(
                    GROUPS,
                    f"{{}} | {cadence_label(every)}",
                    f"{{}} | {cadence_label(longer)}",
                    f"H = {every} and {longer}",
                )
            ),
        ),
    ),
    axis="H",
    notes=(
        *NOTES,
        "The paper tunes the outer rate anew at each H; here it is that of H = 30, and the experiment on outer rates "
        "has the grid for M = 2.",
    ),
)
