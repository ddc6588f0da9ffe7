"""FedPart's frozen layers beside Streaming DiLoCo (§3.3.1).

With 18 layers and 3 a fragment, 15 are frozen at any time although they are computed. The paper: 3.2145 frozen
against 2.6749, a fifth more.

    make fedpart
"""

from experiments.streaming.base import ABLATED, ABLATED_EVERY, ABLATION_NOTE, STREAMING, c4, streaming
from repro.spec.experiment import Claim, Experiment, Pair, Row, vary

FROZEN = "Streaming DiLoCo, frozen as FedPart"

EXPERIMENT = Experiment(
    name="fedpart",
    title="Comparison to FedPart",
    place="section 3.3.1",
    rows=(
        Row((STREAMING,), c4(ABLATED, streaming(ABLATED_EVERY))),
        Row((FROZEN,), vary(c4(ABLATED, streaming(ABLATED_EVERY)), sync__frozen=True)),
    ),
    claims=(
        Claim(
            "fedpart-losses",
            "order",
            (Pair(STREAMING, FROZEN, name="frozen"),),
            off="better",
            cells=(
                (FROZEN, "{statements:FedPart | frozen:Eval Loss}"),
                (STREAMING, "{statements:FedPart | not frozen:Eval Loss}"),
            ),
        ),
    ),
    notes=(ABLATION_NOTE,),
    mini_model="66k",
)
