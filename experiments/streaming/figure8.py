"""Figure 8: overlapping for τ inner steps, discarding (α = 0) or mixing (α = 0.5) what was done meanwhile (§3.3.2).

The text gives the range 1 to 20 and "negligible up to 10 (< 0.2 %)".

    make figure8
"""

from experiments.streaming.base import ABLATED, ABLATED_EVERY, ABLATION_NOTE, c4, streaming
from repro.spec.experiment import Claim, Experiment, Pair, Row, vary

DELAYS = (1, 2, 5, 10, 15, 20)
NAMED = (1, 5, 10, 20)  # in the text
UP_TO = 10  # for which it has a bound
MIXES = (0.0, 0.5)

EXPERIMENT = Experiment(
    name="figure8",
    title="Overlapped inner steps τ",
    place="Figure 8",
    rows=tuple(
        Row(
            (f"α = {mix:g}", f"τ = {delay}"),
            vary(c4(ABLATED, streaming(ABLATED_EVERY)), sync__delays=(delay,), sync__mix=mix),
            ours=delay not in NAMED,
        )
        for mix in MIXES
        for delay in DELAYS
    ),
    claims=(
        Claim(
            "overlap-degradation",
            "percent",
            tuple(
                Pair(f"α = {mix:g} | τ = 1", f"α = {mix:g} | τ = {delay}", f"α = {mix:g}", f"τ = {delay}")
                for mix in MIXES
                for delay in DELAYS
                if 1 < delay <= UP_TO
            ),
            "{statements:overlap:Degradation below (%)}",
            "stated in the text",
        ),
    ),
    axis="overlapped inner steps τ",
    knob="delay",
    notes=(ABLATION_NOTE, "The text names τ = 1, 5, 10 and 20; the points between are chosen here."),
    mini_model="45k",
)
