"""Figure 16: Llama 405B and DeepSeek-V3 (appendix).

The paper's claim: for DeepSeek-V3, all of whose 671B parameters are synchronised, overlapped FP4 streaming
comes close to full utilisation at 4 Gbit/s where data-parallel needs 1 Tbit/s. Parameters and step times
are the paper's.
"""

from repro.network.methods import Network
from repro.network.scenario import Simulation

EXPERIMENT = Simulation(
    name="figure16",
    title="Llama 405B and DeepSeek-V3",
    place="Figure 16; supplementary materials",
    networks=(
        Network("Llama 405B", params=405e9, layers=126, step_time_s=26.9),
        Network("DeepSeek-V3", params=671e9, layers=61, step_time_s=20.1),
    ),
    assumptions=(
        "Layer counts, which the paper doesn't give: 126 for Llama 405B, 61 for DeepSeek-V3 (their reports).",
        "Fragments of 3 layers: 61 layers make 21 fragments, of which 19 hold 3 layers and 2 hold 2.",
    ),
)
