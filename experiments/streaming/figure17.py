"""Figure 17: cosine similarity between the replicas' outer gradients over training, by size.

Read from the Streaming runs of Table 5, where each sync logs it. The paper: about 0.1 at the start, 0 for most of the
run, about −0.1 at the end; lower for larger models. Figure 18 shows the same by layer.

    make figure17
"""

from experiments.streaming.base import SIZES, c4, streaming
from repro.spec.experiment import Experiment, Row

EXPERIMENT = Experiment(
    name="figure17",
    title="Cosine similarity of outer gradients",
    place="Figure 17",
    rows=tuple(Row((size, "H = 30"), c4(size, streaming(30))) for size in SIZES if size != "4B"),
    syncs=True,
    notes=(
        "The paper doesn't say of which H; these are the runs of Table 5 with H = 30.",
        "Cosines are those of the gradients as decoded, of which the paper doesn't speak: E3M0 damps them by some 4 %.",
    ),
)
