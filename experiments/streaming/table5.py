"""Table 5 and Figure 5: scaling from 35M to 4B parameters on C4 (3.2.1).

Four methods at seven sizes, 20 tokens a parameter, M = 2. The paper finds data-parallel, DiLoCo H=30 and
Streaming H=30 within 0.02 of each other, and Streaming H=100 slightly behind but closing with size.

    make table5                       the paper in miniature, on two cores
    make table5-plan SCALE=paper      the 26 runs as published
"""

from dataclasses import replace

from experiments.streaming.base import DP, SIZES, data_parallel, diloco, streaming
from repro.spec.experiment import Experiment, MiniClaim, Row

DILOCO_30 = "DiLoCo H=30"
STREAM_30 = "Streaming DiLoCo with overlapped FP4 com., H=30"
STREAM_100 = "Streaming DiLoCo with overlapped FP4 com., H=100"
METHODS = {DP: None, DILOCO_30: diloco(30), STREAM_30: streaming(30), STREAM_100: streaming(100)}


def rows(size: str) -> tuple[Row, ...]:
    """The methods that the paper ran at a size."""
    base = data_parallel(size)
    ran = METHODS if size != "4B" else {m: METHODS[m] for m in (DP, STREAM_100)}
    return tuple(
        Row((size, method), replace(base, sync=sync, replicas=2 if sync else 1)) for method, sync in ran.items()
    )


EXPERIMENT = Experiment(
    name="table5",
    title="Scaling from 35M to 4B parameters on C4",
    place="Table 5, Figure 5",
    scored=True,
    rows=tuple(row for size in SIZES for row in rows(size)),
    claims=(
        MiniClaim("dp-best", "Data-parallel is at least as good as Streaming H=100.", "order", DP, STREAM_100),
        MiniClaim("dp-s30", "Data-parallel is at least as good as Streaming H=30.", "order", DP, STREAM_30),
        MiniClaim("h", "Streaming H=30 is at least as good as H=100.", "order", STREAM_30, STREAM_100),
        MiniClaim("s-d", "Streaming H=30 is at least as good as DiLoCo H=30.", "order", STREAM_30, DILOCO_30),
        MiniClaim("parity", "Data-parallel and Streaming H=30 agree within 0.02.", "parity", DP, STREAM_30, 0.02),
        MiniClaim("falls", "The loss of Data-parallel falls from size to size.", "falls", DP),
        MiniClaim("falls-s", "The loss of Streaming H=100 falls from size to size.", "falls", STREAM_100),
    ),
)
