"""Below four bits: outer gradients of three and of two bits beside the paper's E3M0 (our extension of Figure 11).

E3M0 has a sign and three exponent bits, so by its naming E2M0 has three bits and two bits are E1M0: −S, 0 or S times
the scale of the row. The walk through docs/new-experiment.md builds this file.

    make two_bits
"""

from experiments.streaming.base import ABLATED, ABLATED_EVERY, ABLATION_NOTE, c4, streaming
from repro.spec.config import CodecConfig
from repro.spec.experiment import Claim, Experiment, Pair, Row, vary
from repro.spec.formats import FORMATS

FOUR, TWO = "E3M0, four bits", "E1M0, two bits"
CODECS = {FOUR: "e3m0", "E2M0, three bits": "e2m0", TWO: "e1m0"}

EXPERIMENT = Experiment(
    name="two_bits",
    title="Two and three bits on the wire",
    place="beyond Figure 11",
    rows=tuple(
        Row(
            (label,),
            vary(c4(ABLATED, streaming(ABLATED_EVERY)), sync__codec=CodecConfig(name)),
            x=FORMATS[name].bits,
            ours=name != "e3m0",
        )
        for label, name in CODECS.items()
    ),
    claims=(Claim("four-bits-enough", "order", (Pair(FOUR, TWO),), sentence="Four bits are at least as good as two."),),
    axis="bits a value sent",
    notes=(ABLATION_NOTE,),
    mini_model="45k",
)
