"""Figure 4: compute utilisation over bandwidth for 1B, 10B and 100B parameters (§3.1), five methods.

The paper's claim: streaming improves on DiLoCo, only overlap reaches full utilisation early, and the
bandwidth needed with overlap hardly grows with the model. Same simulation as Table 4, drawn over the whole
grid.
"""

from dataclasses import replace

from experiments.streaming.table4 import EXPERIMENT as TABLE4

EXPERIMENT = replace(TABLE4, name="figure4", title="Compute utilisation over bandwidth", place="Figure 4; section 3.1")
