"""Figure 13: the number of inner steps H of DiLoCo and Streaming DiLoCo (supplementary materials).

The steps stay the same. The paper: both get worse with a large H; with a small one Streaming is the more robust. Below
as many steps as fragments several fragments share a step. A miniature with fewer than five rounds is left out.

    make figure13
"""

from collections.abc import Iterable

from experiments.streaming.base import ABLATED, ABLATED_EVERY, DILOCO, STREAMING, at_each, c4, diloco, streaming
from repro.spec.experiment import Claim, Experiment, Pair, Row

EVERY = (5, 10, ABLATED_EVERY, 50, 100, 200, 500)


def steps_label(every: int) -> str:
    """The label of a number of inner steps."""
    return f"H = {every}"


def _beside_usual(method: str, others: Iterable[int]) -> tuple[Pair, ...]:
    usual = f"{method} | {steps_label(ABLATED_EVERY)}"
    return at_each(map(steps_label, others), usual, f"{method} | {{}}", name=method)


EXPERIMENT = Experiment(
    name="figure13",
    title="Number of inner steps H",
    place="Figure 13",
    rows=tuple(
        Row((method, steps_label(every)), c4(ABLATED, make(every)), ours=every not in (30, 100, 500))
        for method, make in ((DILOCO, diloco), (STREAMING, streaming))
        for every in EVERY
    ),
    claims=(
        Claim(
            "low-h-worse",
            "order",
            _beside_usual(DILOCO, [every for every in EVERY if every < ABLATED_EVERY]),
            off="better",
            at="first",
            note="The text names no value of H.",
        ),
        Claim(
            "high-h-worse",
            "order",
            tuple(
                pair
                for method in (DILOCO, STREAMING)
                for pair in _beside_usual(method, [every for every in EVERY if every > ABLATED_EVERY])
            ),
            off="better",
            at="last",
        ),
    ),
    axis="inner steps H",
    knob="every",
    notes=("The text gives no values; H = 30 and 100 are those of the main runs, the other points are chosen here.",),
    mini_model="45k",
    min_rounds=5,
)
