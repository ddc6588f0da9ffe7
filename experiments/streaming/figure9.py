"""Figure 9: compute utilisation of a 100B model as the overlap τ grows (§3.3.2).

The paper's claim: little is gained beyond τ = 5. Its axes aren't given in the text; here τ runs over the
values of Figure 8's range, one curve each, 16 bits.
"""

from experiments.streaming.table4 import NETWORKS
from repro.network.methods import BASELINE_BITS, Method
from repro.network.scenario import Simulation

DELAYS = (0, 1, 2, 5, 10, 20)

EXPERIMENT = Simulation(
    name="figure9",
    title="Overlap of τ inner steps, 100B parameters",
    place="Figure 9; section 3.3.2",
    networks=NETWORKS[2:],
    methods=tuple(Method(f"tau-{t}", f"τ = {t}", "fragments", BASELINE_BITS, delay=t) for t in DELAYS),
    assumptions=("16 bits and strided fragments; the values of τ between 1 and 20 are ours.",),
)
