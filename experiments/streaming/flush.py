"""With and without a final flush: what the steps that no round has brought yet are worth (our own question).

The paper doesn't say what is scored of fragments that are out of step at the end. A miniature's few rounds make it a
question, so both answers stand beside each other for the sparsest exchange of Table 5. A method's two rows differ in
what is scored alone: their training is the same, step by step.

    make flush
"""

from experiments.streaming.base import DILOCO, STREAMING, c4, diloco, streaming
from repro.spec.experiment import Claim, Experiment, Pair, Row, vary

EVERY = 100
WITHOUT, WITH = "no flush", "flush after the last step"
METHODS = {STREAMING: streaming(EVERY), DILOCO: diloco(EVERY)}

EXPERIMENT = Experiment(
    name="flush",
    title="A final flush",
    place="beyond Table 5",
    rows=tuple(
        Row(
            (method, label),
            vary(c4("35M", sync), sync__flush=flush),
            ours=True,
            at_any_scale={"sync__flush": flush},
        )
        for method, sync in METHODS.items()
        for label, flush in ((WITHOUT, "none"), (WITH, "last"))
    ),
    claims=(
        Claim(
            "flush-helps",
            "order",
            tuple(Pair(f"{method} | {WITH}", f"{method} | {WITHOUT}", name=method) for method in METHODS),
            sentence="A run is scored at least as well with a final flush as without.",
        ),
    ),
    notes=(f"H = {EVERY}, the sparsest exchange of Table 5. Both rows of a method are one training, scored two ways.",),
    mini_model="45k",
)
