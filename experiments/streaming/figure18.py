"""Figure 18: cosine similarity between the replicas' outer gradients, layer by layer. The runs of Figure 17.

The paper: the first layer stands out with a significantly higher similarity, at every size.

    make figure18
"""

from dataclasses import replace

from experiments.streaming.figure17 import EXPERIMENT as FIGURE17

EXPERIMENT = replace(
    FIGURE17, name="figure18", title="Cosine similarity of outer gradients by layer", place="Figure 18"
)
