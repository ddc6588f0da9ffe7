"""Figure 7: sequential against strided fragments for a 100B model (§3.3.1).

The paper's claim: striding slightly improves compute utilisation, because the first layers of the next step
never wait for neighbours sent together. Drawn without and with overlap; the paper doesn't say which it
shows.
"""

from experiments.streaming.table4 import NETWORKS
from repro.network.methods import BASELINE_BITS, Method
from repro.network.scenario import Simulation

EXPERIMENT = Simulation(
    name="figure7",
    title="Sequential and strided fragments, 100B parameters",
    place="Figure 7; section 3.3.1",
    networks=NETWORKS[2:],
    methods=(
        Method("strided", "Strided", "fragments", BASELINE_BITS),
        Method("sequential", "Sequential", "fragments", BASELINE_BITS, pattern="sequential"),
        Method("strided-overlap", "Strided, overlapped", "fragments", BASELINE_BITS, delay=1),
        Method(
            "sequential-overlap",
            "Sequential, overlapped",
            "fragments",
            BASELINE_BITS,
            delay=1,
            pattern="sequential",
        ),
    ),
    assumptions=("16 bits; both without and with overlap (τ = 1), since the paper doesn't say which it shows.",),
)
