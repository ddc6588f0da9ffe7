"""Figure 5: loss and HellaSwag over FLOPs, from 35M to 4B parameters on C4 (§3.2.1). The runs of Table 5.

The paper: data-parallel, DiLoCo and Streaming with H = 30 perform alike; Streaming with H = 100 is slightly behind,
with the steeper slope.

    make figure5
"""

from dataclasses import replace

from experiments.streaming.table5 import EXPERIMENT as TABLE5

EXPERIMENT = replace(
    TABLE5, name="figure5", title="Loss and HellaSwag over FLOPs", place="Figure 5", claims=(), printed="table5"
)
