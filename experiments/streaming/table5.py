"""Table 5 and Figure 5: scaling from 35M to 4B parameters on C4 (§3.2.1).

Four methods at seven sizes, 20 tokens a parameter, M = 2. The paper finds data-parallel, DiLoCo H=30 and
Streaming H=30 within 0.02 of each other, and Streaming H=100 slightly behind but closing with size.

    make table5                       the paper in miniature, on two cores
    make table5-plan SCALE=paper      the 26 runs as published
"""

from experiments.streaming.base import DP, LAST_DIGIT, SIMILAR, SIZES, SLIGHT, at_each, c4, diloco, streaming
from repro.spec.experiment import Claim, Experiment, Row

DILOCO_30 = "DiLoCo H=30"
STREAM_30 = "Streaming DiLoCo with overlapped FP4 com., H=30"
STREAM_100 = "Streaming DiLoCo with overlapped FP4 com., H=100"
METHODS = {DP: None, DILOCO_30: diloco(30), STREAM_30: streaming(30), STREAM_100: streaming(100)}

SMALL_SEEDS = {"35M": 3, "100M": 1, "200M": 1}  # at scale small, of the sizes that have a counterpart there


def method_rows(size: str) -> tuple[Row, ...]:
    """The methods that the paper ran at a size."""
    ran = METHODS if size != "4B" else {m: METHODS[m] for m in (DP, STREAM_100)}
    return tuple(
        Row((size, method), c4(size, sync, replicas=2 if sync else 1), small=SMALL_SEEDS.get(size, 0))
        for method, sync in ran.items()
    )


BOTH = SIZES[:-1]  # with DiLoCo and H = 30, up to 1B
BESIDE_DP = at_each(SIZES, f"{{}} | {DP}", f"{{}} | {STREAM_100}")
H30_BESIDE_DP = tuple(
    pair for m in (DILOCO_30, STREAM_30) for pair in at_each(BOTH, f"{{}} | {DP}", f"{{}} | {m}", name=m)
)

EXPERIMENT = Experiment(
    name="table5",
    title="Scaling from 35M to 4B parameters on C4",
    place="Table 5, Figure 5",
    scored=True,
    rows=tuple(row for size in SIZES for row in method_rows(size)),
    claims=(
        Claim("similar-at-billions", "parity", BESIDE_DP, SIMILAR, "our reading", at="last"),
        Claim("superior-to-diloco", "order", at_each(BOTH, f"{{}} | {STREAM_30}", f"{{}} | {DILOCO_30}")),
        Claim(
            "fp4-billion-scale",
            "added",
            at_each(BOTH, f"{{}} | {DILOCO_30}", f"{{}} | {STREAM_30}"),
            LAST_DIGIT,
            "rounding",
            at="last",
            note="Streaming with four bits beside DiLoCo with sixteen: the paper shows no run of four against more "
            "bits at 1B.",
        ),
        Claim(
            "parity-1b-loss",
            "parity",
            H30_BESIDE_DP,
            SIMILAR,
            "our reading",
            at="last",
            cells=tuple((f"1B | {m}", f"{{table5:1B | {m}:Eval Loss}}") for m in (DP, DILOCO_30, STREAM_30)),
        ),
        Claim(
            "parity-1b-accuracy",
            "score parity",
            H30_BESIDE_DP,
            1.0,
            "our reading",
            at="last",
            scores=("HellaSwag",),
        ),
        Claim("h100-worse-initially", "slight", BESIDE_DP, SLIGHT, "our reading", at="first"),
    ),
)
