"""Figure 11: overtraining by 1, 4 and 16 on Dolma (section 5.2).

The paper finds parallel lines: the differences between methods don't change with the tokens, and M = 1 is best.

    make scaling_laws_overtraining
"""

from experiments.scaling_laws.base import (
    DP,
    NOTES,
    SMALLEST,
    replica_label,
    scaled_batch,
    trained_config,
)
from experiments.streaming.base import at_each
from repro.spec.experiment import Claim, Experiment, Row
from repro.spec.laws import DATA_PARALLEL

MULTIPLIERS = (1, 4, 16)  # λ
LARGER = ("335M", "550M", "1.3B", "2.4B")  # the sizes of Figure 12
METHODS = (DATA_PARALLEL, 1, 2, 4)
IN_MINIATURE = (DATA_PARALLEL, 1, 2)


def times(multiplier: int) -> str:
    """λ as its rows have it."""
    return f"× {multiplier}"


def overtrained_row(size: str, replicas: int, multiplier: int) -> Row:
    """A method at a budget; M = 4 is left out of the miniature."""
    config = trained_config(size, replicas, corpus="dolma", overtrain=multiplier)
    own = {} if replicas in IN_MINIATURE else {"smoke": scaled_batch(config, 1, "smoke")}
    return Row((size, replica_label(replicas), times(multiplier)), config, own, x=multiplier)


EXPERIMENT = Experiment(
    name="scaling_laws_overtraining",
    title="Overtraining on Dolma",
    place="Figures 11 and 12; section 5.2",
    rows=tuple(overtrained_row(size, m, k) for size in (SMALLEST, *LARGER) for m in METHODS for k in MULTIPLIERS),
    claims=(
        Claim(
            "overtrained-m1-best",
            "order",
            tuple(
                pair
                for size in (SMALLEST, *LARGER)
                for pair in at_each(
                    map(times, MULTIPLIERS), f"{size} | {replica_label(1)} | {{}}", f"{size} | {DP} | {{}}", size
                )
            ),
        ),
    ),
    axis="overtraining, times 20 tokens a parameter",
    notes=(
        *NOTES,
        "Ours is validated on text held out of Dolma, at paper scale, where the paper validates on C4.",
    ),
)
