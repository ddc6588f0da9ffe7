"""Tables 1 and 7: overtraining a 1B model on Dolma with 25B, 100B and 250B tokens (§3.2.2).

Data-parallel and Streaming DiLoCo (H = 100, overlapped FP4) with M = 2 and M = 4, at 20, 80 and 200 tokens a
parameter. The paper finds M = 2 as good as data-parallel or slightly better, M = 4 slightly worse; bytes and hours
are accounts (`make accounts`). The miniature overtrains the smallest model ten times, on text it sees once.

    make table7      both tables; Table 1 is the part with M = 2
"""

from experiments.streaming.base import DP, SLIGHT, SLIGHT_POINTS, at_each, dolma, streaming
from repro.spec.experiment import Claim, Experiment, Row

OURS_M2, OURS_M4 = "Our method, M=2", "Our method, M=4"
BUDGETS = {"25B": 20, "100B": 80, "250B": 200}  # as printed: tokens a parameter
METHODS = {DP: (None, 1), OURS_M2: (streaming(100), 2), OURS_M4: (streaming(100), 4)}


def budget_rows(methods: tuple[str, ...]) -> tuple[Row, ...]:
    """Each method at each budget, in printed order."""
    return tuple(
        Row((method, printed), dolma(tokens, *METHODS[method]))
        for method in methods
        for printed, tokens in BUDGETS.items()
    )


EXPERIMENT = Experiment(
    name="table7",
    title="Overtraining on Dolma with M = 2 and M = 4",
    place="Table 7; Table 1",
    scored=True,
    rows=budget_rows(tuple(METHODS)),
    claims=(
        Claim(
            "four-replicas-worse",
            "slight",
            at_each(BUDGETS, f"{OURS_M2} | {{}}", f"{OURS_M4} | {{}}"),
            SLIGHT,
            "our reading",
        ),
        Claim(
            "four-replicas-accuracy",
            "score slight",
            at_each(BUDGETS, f"{OURS_M4} | {{}}", f"{OURS_M2} | {{}}"),
            SLIGHT_POINTS,
            "our reading",
            scores=("HellaSwag",),
        ),
    ),
    axis="tokens a parameter",
    knob="tokens a parameter",
    notes=("M = 4 keeps the local batch of M = 2 (caption of Table 7): twice the global batch, half the steps.",),
    mini_model="45k",
)
