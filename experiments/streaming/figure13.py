"""Figure 13: the number of inner steps H of DiLoCo and Streaming DiLoCo (supplementary materials).

The steps stay the same. The paper: both get worse with a large H; with a small one Streaming is the more robust. Below
as many steps as fragments several fragments share a step. A miniature with fewer than five rounds is left out.

    make figure13
"""

from experiments.streaming.base import ABLATED, ABLATED_EVERY, DILOCO, STREAMING, c4, diloco, streaming
from repro.spec.experiment import Experiment, Row

EVERY = (5, 10, ABLATED_EVERY, 50, 100, 200, 500)

EXPERIMENT = Experiment(
    name="figure13",
    title="Number of inner steps H",
    place="Figure 13",
    rows=tuple(
        Row((method, f"H = {every}"), c4(ABLATED, make(every)), x=every, ours=every not in (30, 100, 500))
        for method, make in ((DILOCO, diloco), (STREAMING, streaming))
        for every in EVERY
    ),
    axis="inner steps H",
    notes=("The text gives no values; H = 30 and 100 are those of the main runs, the other points are chosen here.",),
    mini_model="45k",
    min_rounds=5,
)
