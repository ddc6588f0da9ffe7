"""Table 4: the loss of Data-Parallel and of DiLoCo with M = 1, 2, 4 and 8 from 35M to 2.4B parameters (section 4).

The paper finds DiLoCo with one replica better than Data-Parallel at every size, and every M better relative to it the
larger the model. Tables 7 to 13 are fitted to these losses, and under Table 7 and 10 stand the same fits of ours.

    make scaling_laws_table4                    in miniature, three seeds of the smallest size
    make scaling_laws_table4-plan SCALE=paper   the 35 runs as published
"""

from itertools import pairwise

from experiments.scaling_laws.base import (
    DP,
    NOTES,
    REPLICAS,
    SEEDS,
    SIZES,
    SMALLEST,
    replica_label,
    trained_config,
)
from experiments.streaming.base import at_each
from repro.spec.experiment import Claim, Experiment, Row
from repro.spec.laws import DATA_PARALLEL

METHODS = (DATA_PARALLEL, *REPLICAS)

EXPERIMENT = Experiment(
    name="scaling_laws_table4",
    title="Loss of Data-Parallel and DiLoCo over sizes and replicas",
    place="Table 4; Figure 2; section 4",
    rows=tuple(
        Row((size, replica_label(m)), trained_config(size, m), seeds=SEEDS if size == SMALLEST else 1)
        for size in SIZES
        for m in METHODS
    ),
    claims=(
        Claim("m1-beats-dp", "order", at_each(SIZES, f"{{}} | {replica_label(1)}", f"{{}} | {DP}"), off="worse"),
        Claim("m2-beats-dp-largest", "order", at_each(SIZES, f"{{}} | {replica_label(2)}", f"{{}} | {DP}"), at="last"),
        Claim(
            "more-replicas-worse",
            "order",
            tuple(
                pair
                for m, more in pairwise(REPLICAS)
                for pair in at_each(
                    SIZES, f"{{}} | {replica_label(m)}", f"{{}} | {replica_label(more)}", f"M = {m} and {more}"
                )
            ),
        ),
    ),
    notes=NOTES,
)
