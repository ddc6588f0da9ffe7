"""Figure 6: layers in a fragment, strided and sequential (§3.3.1).

The paper's text names 3 layers as its choice, and finds strided slightly better there; the loss is in its Figure 6a,
the reduction of the peak bandwidth (Figure 6b) is an account. A miniature has a third of the paper's layers, so that
its fragments of 1, 2, 3 and 6 layers stand for 3, 6, 9 and 18; of one layer, or of all, both patterns are one run.

    make figure6
"""

from experiments.streaming.base import ABLATED, ABLATED_EVERY, ABLATION_NOTE, LADDER, SIMILAR, at_each, c4, streaming
from repro.spec.config import FragmentConfig
from repro.spec.experiment import Claim, Experiment, Row, vary

LAYERS = LADDER[ABLATED][0]
SIZES = (1, 2, 3, 6, 9, LAYERS)


def _pattern(pattern: str, layers: int) -> str:
    """Fragments of one layer, or of all, are cut alike: one run."""
    return "strided" if layers in (1, LAYERS) else pattern


def layers_label(layers: int) -> str:
    """The label of a fragment's size."""
    return f"{layers} layer{'s' if layers > 1 else ''}"


EXPERIMENT = Experiment(
    name="figure6",
    title="Layers in a fragment",
    place="Figure 6",
    rows=tuple(
        Row(
            (pattern.capitalize(), layers_label(layers)),
            vary(
                c4(ABLATED, streaming(ABLATED_EVERY)),
                sync__fragments=FragmentConfig(_pattern(pattern, layers), layers, embedding="own"),
            ),
            ours=layers != 3,
        )
        for pattern in ("strided", "sequential")
        for layers in SIZES
    ),
    claims=(
        Claim(
            "pattern-robust",
            "parity",
            at_each(map(layers_label, SIZES), "Sequential | {}", "Strided | {}"),
            SIMILAR,
            "our reading",
        ),
    ),
    axis="layers in a fragment",
    knob="layers",
    notes=(ABLATION_NOTE, "The text names 3 layers; the other sizes are the divisors of 18, chosen here."),
    mini_model="66k",
)
