"""Table 3: which parameters to evaluate: the first replica's, the replicas' average, or the outer ones.

One run, evaluated three ways at its last step. The paper: 2.77, 2.68 and 2.67; the outer parameters are slightly
better although their fragments were synchronised at different steps.

    make table3
"""

from experiments.streaming.base import ABLATED, ABLATED_EVERY, ABLATION_NOTE, SIMILAR, SLIGHT, c4, streaming
from repro.spec.experiment import Claim, Experiment, Pair, Row

FIRST, AVERAGE, OUTER = "First replica", "Replicas average", "Outer parameters"
RUN = c4(ABLATED, streaming(ABLATED_EVERY))

EXPERIMENT = Experiment(
    name="table3",
    title="Which parameters to evaluate",
    place="Table 3",
    scored=True,
    rows=tuple(
        Row((name,), RUN, parameters=kind) for name, kind in ((FIRST, "first"), (AVERAGE, "average"), (OUTER, "outer"))
    ),
    claims=(
        Claim(
            "parameters-differ-little",
            "parity",
            (Pair(OUTER, AVERAGE, name="average"), Pair(OUTER, FIRST, name="first replica")),
            SIMILAR,
            "our reading",
        ),
        Claim(
            "outer-parameters-better",
            "slight",
            (Pair(OUTER, AVERAGE, name="against the average"), Pair(OUTER, FIRST, name="against the first replica")),
            SLIGHT,
            "our reading",
        ),
    ),
    notes=(ABLATION_NOTE,),
    mini_model="45k",
)
