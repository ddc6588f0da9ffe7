"""Table 1: data-parallel beside Streaming DiLoCo when overtraining on Dolma (§3.2.2).

The rows of Table 7 with M = 2, and with the hours of both at an infinite and at a 1 Gbit/s link. The paper: the
same quality, 400 times fewer bits, an eighth of the peak bandwidth.

    make table1
"""

from dataclasses import replace

from experiments.streaming.base import DP, SIMILAR, at_each
from experiments.streaming.table7 import BUDGETS, OURS_M2, budget_rows
from repro.spec.experiment import Claim, Experiment, Row

OURS = "Streaming DiLoCo with overlapped FP4 communication"
BESIDE_DP = at_each(BUDGETS, f"{DP} | {{}}", f"{OURS} | {{}}")


def _relabelled(row: Row) -> Row:
    method, budget = row.labels
    return replace(row, labels=(OURS if method == OURS_M2 else method, budget))


EXPERIMENT = Experiment(
    name="table1",
    title="Overtraining on Dolma: quality, hours and bytes",
    place="Table 1",
    scored=True,
    rows=tuple(_relabelled(row) for row in budget_rows((DP, OURS_M2))),
    claims=(
        Claim("overtraining-loss", "parity", BESIDE_DP, SIMILAR, "our reading"),
        Claim(
            "overtraining-accuracy",
            "score parity",
            BESIDE_DP,
            2.0,
            "our reading",
            scores=("HellaSwag", "Piqa", "Arc Easy"),
        ),
        Claim("advantage-disappears", "order", at_each(BUDGETS, f"{OURS} | {{}}", f"{DP} | {{}}"), at="last"),
    ),
    axis="tokens a parameter",
    knob="tokens a parameter",
    mini_model="45k",
)
