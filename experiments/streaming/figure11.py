"""Figure 11: compressing the outer gradients, by precision or by dropping values (§3.3.3).

Lower precision from float32 to four bits costs nothing in the paper; dropping does, most of all at random. TIES
pruning "also underperformed". Values that are kept are sent in float32, so that dropping alone is compared.

    make figure11
"""

from experiments.streaming.base import ABLATED, ABLATED_EVERY, ABLATION_NOTE, LAST_DIGIT, at_each, c4, streaming
from repro.spec.config import CodecConfig
from repro.spec.experiment import Claim, Experiment, Pair, Row, vary
from repro.spec.formats import FORMATS

PRECISION = "Precision"
PRECISIONS = {"float32": False, "bfloat16": False, "float8_e4m3": True, "e3m0": False, "e2m1": True, "e1m0": True}
SMALL_PRECISIONS = ("float32", "e3m0")  # that have a run at scale small
DROPS = {"feddropout": "FedDropout", "dare": "DARE", "topk": "Top-K", "ties": "TIES"}
KEPT = (0.5, 0.1)
KEPT_NOTE = "The fractions kept are chosen here."


def row(series: str, point: str, codec: CodecConfig, x: float, ours: bool) -> Row:
    """The ablated run with another codec."""
    config = vary(c4(ABLATED, streaming(ABLATED_EVERY)), sync__codec=codec)
    return Row((series, point), config, x=x, ours=ours, small=int(series == PRECISION and point in SMALL_PRECISIONS))


def kept(keep: float) -> str:
    """The label of a fraction kept."""
    return f"{keep:.0%} kept"


def _precision(name: str) -> str:
    return f"{PRECISION} | {name}"


def _dropped(drop: str, first: str) -> tuple[Pair, ...]:
    """A scheme at each fraction kept, beside the row that it is said to be worse than."""
    return at_each(map(kept, KEPT), first, f"{DROPS[drop]} | {{}}", name=DROPS[drop])


FLOAT32, E3M0 = _precision("float32"), _precision("e3m0")

EXPERIMENT = Experiment(
    name="figure11",
    title="Compressing the outer gradients",
    place="Figure 11",
    scored=True,
    rows=(
        *(
            row(PRECISION, name, CodecConfig(name, scale="row"), FORMATS[name].bits, ours)
            for name, ours in PRECISIONS.items()
        ),
        *(
            row(name, kept(keep), CodecConfig("float32", drop=drop, keep=keep), 32 * keep, True)
            for drop, name in DROPS.items()
            for keep in KEPT
        ),
    ),
    claims=(
        Claim(
            "precision-loss",
            "added",
            (Pair(FLOAT32, _precision("bfloat16"), name="bfloat16"), Pair(FLOAT32, E3M0, name="E3M0")),
            LAST_DIGIT,
            "rounding",
        ),
        Claim(
            "precision-accuracy",
            "score parity",
            (Pair(FLOAT32, E3M0, name="E3M0"),),
            1.0,
            "our reading",
            scores=("HellaSwag",),
        ),
        Claim(
            "dropping-worse",
            "order",
            tuple(pair for drop in ("feddropout", "dare", "topk") for pair in _dropped(drop, E3M0)),
            off="better",
            note=KEPT_NOTE,
        ),
        Claim(
            "random-dropping-worst",
            "order",
            tuple(pair for drop in ("feddropout", "dare") for pair in _dropped(drop, f"{DROPS['topk']} | {{}}")),
            off="better",
            note=KEPT_NOTE,
        ),
        Claim(
            "ties-underperforms",
            "order",
            _dropped("ties", E3M0),
            off="better",
            note="The paper tells of preliminary experiments without numbers.",
        ),
    ),
    axis="bits a value sent, masks and scales apart",
    notes=(
        ABLATION_NOTE,
        "The text names float32, float4 (E3M0) and the schemes that drop; the fractions kept, the other formats "
        "(two bits: sign and one exponent bit) and float32 for what is kept are chosen here.",
    ),
    mini_model="45k",
)
