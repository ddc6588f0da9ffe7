"""Figure 3: what one worker and its link do under four methods (§3.1).

Two layers; DiLoCo and Streaming with H = 2, fragments of one layer, τ = 1 where communication is
overlapped, as the paper says. How long a reduction lasts is ours: two compute nodes.
"""

from repro.network.methods import Network
from repro.network.scenario import Drawing
from repro.network.simulate import Cycle, Send

NETWORK = Network("two layers", params=2e9, layers=2, step_time_s=6.0)
LAYER_BITS = 2e9  # two seconds at 1 Gbit/s, where a compute node lasts one

_FRAGMENTS = (Send(0, (2,), (LAYER_BITS,)), Send(1, (1,), (LAYER_BITS,)))

EXPERIMENT = Drawing(
    name="figure3",
    title="Schedules of one worker",
    place="Figure 3; section 3.1",
    network=NETWORK,
    schedules=(
        ("Data-Parallel", Cycle(2, 1, (Send(0, (1, 2), (LAYER_BITS,) * 2),))),
        ("DiLoCo, H = 2", Cycle(2, 2, (Send(1, (1, 2), (LAYER_BITS,) * 2),))),
        ("Streaming DiLoCo", Cycle(2, 2, _FRAGMENTS)),
        ("Streaming DiLoCo, overlapped, τ = 1", Cycle(2, 2, _FRAGMENTS, (1,))),
    ),
    gbit_per_s=1.0,
    steps=4,
    assumptions=("A reduction lasts as long as two compute nodes; the paper's figure has no scale.",),
)
