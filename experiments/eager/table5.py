"""Table 5 of Eager Updates (arXiv 2502.12996): the bandwidth that overlapping one inner or one outer step needs.

From the simulator: Data-Parallel, Streaming and one inner step at H = 100 print 45 of 45 cells as published. For H = 30
and one outer step the paper doesn't give the schedule: rules that were found by trying print 15 of 15 and 28 of 30.

    make eager_table5
"""

from dataclasses import replace

from experiments.streaming.table4 import NETWORKS
from repro.network.methods import BASELINE_BITS, FP4_BITS, Method
from repro.network.scenario import Schedules, paper_cycle
from repro.network.simulate import Cycle, Send
from repro.spec.experiment import Calculation

OVERLAPPED = "Streaming DiLoCo with 1-{}-step overlapped FP4 com. H={}"
GRADIENTS = Method("data-parallel", "Data-Parallel", "gradients", BASELINE_BITS)
STREAMING = Method("streaming", "Streaming DiLoCo", "fragments", BASELINE_BITS)
INNER = Method("streaming-fp4", "1-inner-step", "fragments", FP4_BITS, delay=1)
AS_IT_IS = "as Table 4 of 2501.18512"
EVERY_STEP = "one inner step at H = 30"
OUTER = "one outer step"


def kind_of(label: str) -> str:
    """Which rule a row goes by, from its label."""
    if "outer" in label:
        return OUTER
    return EVERY_STEP if label.endswith("H=30") else AS_IT_IS


def overlap_schedules() -> Schedules:
    """What each row sends, by its label."""
    schedules: Schedules = {}
    for network in NETWORKS:
        hundred = paper_cycle(network, INNER, 100)
        cycles = {
            "Data-Parallel": paper_cycle(network, GRADIENTS),
            "Streaming DiLoCo": paper_cycle(network, STREAMING, 100),
            OVERLAPPED.format("inner", 30): sends_apart(hundred, 1),
            OVERLAPPED.format("inner", 100): hundred,
            OVERLAPPED.format("outer", 30): overlapping_period(sends_apart(hundred, 2)),
            OVERLAPPED.format("outer", 100): overlapping_period(sends_apart(hundred, 2 * hundred.sends[1].step)),
        }
        for label, cycle in cycles.items():
            schedules[f"{network.name} | {label}"] = cycle, network.step_time_s
    return schedules


def sends_apart(cycle: Cycle, gap: int) -> Cycle:
    """A cycle whose sends are made `gap` steps apart."""
    sends: tuple[Send, ...] = tuple(replace(send, step=i * gap) for i, send in enumerate(cycle.sends))
    return Cycle(cycle.layers, gap * len(sends), sends, cycle.delays)


def overlapping_period(cycle: Cycle) -> Cycle:
    """With τ one step less than the period after which a layer is sent again."""
    return cycle.delayed((cycle.shortest_period - 1,))


EXPERIMENT = Calculation(
    name="eager_table5",
    title="Gbit/s needed to reach a compute utilisation, by what is overlapped",
    place="Table 5; supplementary materials",
    by="analysis.paper.bandwidth:overlap_table",
    assumptions=(
        "A printed cell is the last of 50 grid points (0.1 to 1000 Gbit/s) that is still below the target; networks, "
        "layers and what is sent are those of Table 4 of 2501.18512, whose cells this table repeats.",
        "One inner step at H = 30: a fragment leaves every step. Found by trying, not derived: floor(30 / (P + 1)) + 1 "
        "steps, the rule at H = 100, would be 4, 2 and 1.",
        "One outer step: τ is the period less 1, and half of the sends are made, at H = 30 one every second step, at "
        "H = 100 one every second time. Found by trying, not derived.",
    ),
)
