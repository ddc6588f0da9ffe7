"""Figure 12: the number of replicas M at a constant token budget (supplementary materials).

(a) with a constant global batch, each replica's shrinks; (b) with a constant local batch the global one grows and the
steps get fewer. The text says M from 2 to 8, the caption 2 to 4.

The miniature of (a) has a batch of its own, which holds a sequence for each of eight replicas.

    make figure12
"""

from experiments.streaming.base import (
    ABLATED,
    ABLATED_EVERY,
    ABLATION_NOTE,
    DILOCO,
    STREAMING,
    c4,
    diloco,
    streaming,
)
from repro.spec.config import SyncConfig
from repro.spec.experiment import Experiment, Row
from repro.spec.scales import Setting

GLOBAL, LOCAL = "constant global batch", "constant local batch"
REPLICAS = (2, 4, 8)
MINI_GLOBAL = 8  # sequences a step in miniature where the global batch is constant
MINI_RATE = {  # the best of experiments/streaming/tuning.py at this batch, by method and M
    "diloco": {2: 2.0**-6, 4: 2.0**-6, 8: 2.0**-6},
    "streaming": {2: 2.0**-6, 4: 2.0**-6, 8: 2.0**-6},
}


def _own(sync: SyncConfig, replicas: int) -> dict[str, Setting]:
    rate = MINI_RATE["diloco" if sync.fragments.pattern == "whole" else "streaming"][replicas]
    return {scale: Setting(MINI_GLOBAL, rate) for scale in ("mini", "smoke")}


EXPERIMENT = Experiment(
    name="figure12",
    title="Number of replicas",
    place="Figure 12",
    rows=tuple(
        Row(
            (f"{method}, {kind}", f"M = {replicas}"),
            c4(ABLATED, sync, replicas, c4(ABLATED, sync).batch if kind == GLOBAL else 0),
            own=_own(sync, replicas) if kind == GLOBAL else {},
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
        "The batch of M = 2 is its law's, to which the others' stand as the paper says; the inner learning rate is the "
        "law's for each M.",
        f"In miniature the constant global batch is {MINI_GLOBAL} sequences, one for each of eight replicas; the inner "
        "learning rate is the best for method, M and batch.",
    ),
    mini_model="45k",
)
