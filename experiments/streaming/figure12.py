"""Figure 12: the number of replicas M at a constant token budget (supplementary materials).

(a) with a constant global batch, each replica's shrinks; (b) with a constant local batch the global one grows and the
steps get fewer. The text says M from 2 to 8, the caption 2 to 4.

    make figure12
"""

from experiments.streaming.base import (
    ABLATED,
    ABLATED_EVERY,
    ABLATION_NOTE,
    C4_BATCH,
    DILOCO,
    STREAMING,
    c4,
    diloco,
    streaming,
)
from repro.spec.experiment import Experiment, Row

GLOBAL, LOCAL = "constant global batch", "constant local batch"
REPLICAS = (2, 4, 8)


def _batch(kind: str, replicas: int) -> int:
    return C4_BATCH if kind == GLOBAL else C4_BATCH * replicas // 2


EXPERIMENT = Experiment(
    name="figure12",
    title="Number of replicas",
    place="Figure 12",
    rows=tuple(
        Row(
            (f"{method}, {kind}", f"M = {replicas}"),
            c4(ABLATED, sync, replicas, _batch(kind, replicas)),
            x=replicas,
        )
        for kind in (GLOBAL, LOCAL)
        for method, sync in ((DILOCO, diloco(ABLATED_EVERY)), (STREAMING, streaming(ABLATED_EVERY)))
        for replicas in REPLICAS
    ),
    axis="replicas M",
    notes=(
        ABLATION_NOTE,
        "M = 8 is in the text and not in the caption.",
        "The inner learning rate stays that of M = 2.",
    ),
    mini_model="45k",
)
