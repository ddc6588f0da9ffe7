"""Figure 14: sequential and strided fragments on one worker and its link (appendix).

The paper's claim: with the strided pattern early layers are never sent together, so the next step's first
forward nodes wait less. Six layers in two fragments of three, one of them every step (H = 2). No overlap.
"""

from repro.network.methods import Network
from repro.network.scenario import Drawing
from repro.network.simulate import Cycle, Send

NETWORK = Network("six layers", params=6e9, layers=6, step_time_s=18.0)
LAYER_BITS = 3e9  # three seconds at 1 Gbit/s, where a compute node lasts one


def _sends(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[Send, ...]:
    return Send(0, first, (LAYER_BITS,) * 3), Send(1, second, (LAYER_BITS,) * 3)


EXPERIMENT = Drawing(
    name="figure14",
    title="Sequential and strided fragments of one worker",
    place="Figure 14; supplementary materials",
    network=NETWORK,
    schedules=(
        ("Sequential: {1, 2, 3}, {4, 5, 6}", Cycle(6, 2, _sends((1, 2, 3), (4, 5, 6)))),
        ("Strided: {1, 3, 5}, {2, 4, 6}", Cycle(6, 2, _sends((1, 3, 5), (2, 4, 6)))),
    ),
    gbit_per_s=1.0,
    steps=3,
    assumptions=("Six layers and a reduction of three compute nodes; the paper's figure has no scale.",),
)
