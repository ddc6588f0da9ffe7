"""Figure 15: a 100B model whose step computes for 1, 5 or 10 seconds (appendix).

The paper's claim: at a given bandwidth longer steps raise utilisation, since they leave more time for
communication.
"""

from repro.network.methods import Network
from repro.network.scenario import Simulation

EXPERIMENT = Simulation(
    name="figure15",
    title="100B parameters at three step times",
    place="Figure 15; supplementary materials",
    networks=tuple(Network(f"{t} s a step", 1e11, 108, float(t)) for t in (1, 5, 10)),
)
