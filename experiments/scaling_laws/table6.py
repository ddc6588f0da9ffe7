"""Table 6: the bandwidth that DiLoCo needs at each H, simulated for three large models (section 5.1, Figure 10).

By the simulator of Streaming DiLoCo, as the paper says, in its steady state: of 75 cells 34 print as published and 73
lie within one bin of the grid, none below the paper's.

    make scaling_laws_table6
"""

from repro.network.methods import BASELINE_BITS, Method, Network
from repro.network.scenario import Schedules, paper_cycle
from repro.spec.experiment import Calculation

NETWORKS = (
    Network("Chinchilla 10B", params=1e10, layers=48, step_time_s=0.8),
    Network("Llama3 405B", params=405e9, layers=126, step_time_s=26),
    Network("DeepSeek-V3 671B", params=671e9, layers=61, step_time_s=20),
)
DATA_PARALLEL, EVERY_STEP = "Data-Parallel", "DiLoCo, H = 1"
EVERY = (1, 10, 50, 100, 300)  # H


def h_schedules() -> Schedules:
    """What each row sends, by its label."""
    gradients = Method("data-parallel", DATA_PARALLEL, "gradients", BASELINE_BITS)
    whole = Method("diloco", "DiLoCo", "whole", BASELINE_BITS)
    schedules: Schedules = {}
    for network in NETWORKS:
        schedules[f"{network.name} | {DATA_PARALLEL}"] = paper_cycle(network, gradients), network.step_time_s
        for every in EVERY:
            schedules[f"{network.name} | DiLoCo, H = {every}"] = paper_cycle(network, whole, every), network.step_time_s
    return schedules


EXPERIMENT = Calculation(
    name="scaling_laws_table6",
    title="Gbit/s needed to reach a compute utilisation, by H",
    place="Table 6; section 5.1; Figure 10",
    by="analysis.paper.bandwidth:h_table",
    assumptions=(
        "Layers, which the paper doesn't give: 48 (its Table 3), 126 and 61 (the models' own papers). N / L values of "
        "16 bits a layer, one serial link without latency or an all-reduce's factor, as in Table 4 of 2501.18512.",
        "A printed cell is the last of 50 grid points (0.1 to 1000 Gbit/s, a factor of 1.207 apart) that is still "
        "below the target; where that is the last of all it prints as 1000.0+.",
        "DiLoCo with H = 1 sends what Data-Parallel sends, and prints its cells: counted once.",
        "Ours is the steady state. A finite run starts on an idle link and needn't wait for its last exchange: of k "
        "exchanges it pays for k − 1, so it reaches a target with up to 1/k less bandwidth. The paper's cells are "
        "never above ours and at most two bins below, as of runs with few exchanges; it doesn't give their length.",
    ),
)
