"""Claims of the ablations that are computed: the fragment size of Figure 6, FedPart's increase, H in Figure 13."""

import math
import statistics
from collections.abc import Callable

from analysis.claims.compared import compared
from analysis.claims.evidence import View
from analysis.claims.judging import (
    DEVIATES,
    NOT_RUN,
    REPRODUCED,
    UNDECIDED,
    Finding,
    Judge,
    Number,
    bounded_part,
    order_part,
)
from analysis.paper.deciding import slack
from analysis.paper.published import printed_interval
from analysis.paper.statements import cell, value
from experiments.streaming.base import ABLATED_EVERY, DILOCO, SIMILAR, SLIGHT, STREAMING, at_each
from experiments.streaming.fedpart import FROZEN
from experiments.streaming.figure6 import EXPERIMENT as FIGURE6
from experiments.streaming.figure6 import SIZES, layers_label
from experiments.streaming.figure13 import steps_label
from repro.spec.experiment import Claim

METHODS = (DILOCO, STREAMING)
ADDED = f"Loss added over H = {ABLATED_EVERY}: DiLoCo's less Streaming's."


def strided_loss(view: View) -> Finding:
    """Strided no worse than sequential at three layers a fragment, or where a miniature has no three: at more."""
    sizes = [3] if _differ(view, 3) else [n for n in SIZES if n > 3]
    note = "" if sizes == [3] else "With one layer a fragment, which stands for three, both patterns are one run."
    pairs = at_each(map(layers_label, sizes), "Strided | {}", "Sequential | {}")
    return compared(view, FIGURE6, Claim("strided-loss", "slight", pairs, SLIGHT, "our reading", note=note))


def _differ(view: View, layers: int) -> bool:
    runs = [view.row("figure6", f"{pattern} | {layers_label(layers)}") for pattern in ("Strided", "Sequential")]
    return all(runs) and runs[0][0].run.run_id != runs[1][0].run.run_id


def fedpart_increase(view: View) -> Finding:
    """The increase in percent; in miniature, that it is at least half the paper's."""
    printed = cell("statements", "FedPart", "Increase (%)")
    stated = value("statements", "FedPart", "Increase (%)")
    frozen, free = view.losses("fedpart", FROZEN), view.losses("fedpart", STREAMING)
    increases = [100 * (frozen[s] / free[s] - 1) for s in sorted(frozen.keys() & free.keys())]
    cells = [value("statements", f"FedPart | {which}", "Eval Loss") for which in ("frozen", "not frozen")]
    note = f"The two printed losses give {100 * (cells[0] / cells[1] - 1):.1f} %."
    if view.scale != "paper":
        half = stated / 2
        percents = 100 / statistics.fmean(free.values()) if free else 1.0
        part = order_part(
            view, "fedpart", "increase", (FROZEN, STREAMING), lambda f, s: 100 * (f / s - 1) - half, percents
        )
        measure = f"Increase of the loss less {half:g} %, in percent."
        return Judge("below", f"half of {stated:g} %", "our reading", measure)(view, "fedpart", [part], note)
    if not increases:
        return Finding(NOT_RUN, sentence=note)
    low, high = printed_interval(printed)
    mean = statistics.fmean(increases)
    error = statistics.stdev(increases) / math.sqrt(len(increases)) if len(increases) > 1 else None
    allowed = 0.0 if error is None else slack(statistics.stdev(increases), len(increases))
    word = DEVIATES["below" if mean < low else "above"]
    if low - allowed <= mean <= high + allowed:
        word = REPRODUCED
    elif error is None:
        word = UNDECIDED
    runs = tuple(r.run.run_id for row in (FROZEN, STREAMING) for r in view.row("fedpart", row) if r.summary is not None)
    numbers = (Number("increase (%)", mean, error, len(increases)),)
    return Finding(word, numbers, f"{allowed:.2g} %", "seed spread", runs, note)


def robust_low_h(view: View) -> Finding:
    """What DiLoCo loses at each H below the usual one, less what Streaming loses there."""
    low = [every for every in _every(view) if every < ABLATED_EVERY]
    parts = [order_part(view, "figure13", *_added(every)) for every in low]
    return Judge("below", "0", "seed spread", ADDED)(view, "figure13", parts, "The text names no value of H.")


def similar_high_h(view: View) -> Finding:
    """What both lose at each H above the usual one."""
    high = [every for every in _every(view) if every > ABLATED_EVERY]
    parts = [bounded_part(view, "figure13", *_added(every), -SIMILAR, SIMILAR) for every in high]
    return Judge("above", f"{SIMILAR:g}", "our reading", ADDED)(view, "figure13", parts)


def _added(every: int) -> tuple[str, tuple[str, ...], Callable[..., float]]:
    rows = tuple(_h(method, h) for method in (DILOCO, STREAMING) for h in (every, ABLATED_EVERY))
    return steps_label(every), rows, lambda d, d_usual, s, s_usual: (d - d_usual) - (s - s_usual)


def _every(view: View) -> list[int]:
    """The H that both methods have at this scale, ascending."""
    xs = ({r[0].run.x for row, r in view.rows("figure13").items() if row.startswith(f"{m} | ")} for m in METHODS)
    return sorted(int(x) for x in set.intersection(*xs) if x is not None)


def _h(method: str, every: int) -> str:
    return f"{method} | {steps_label(every)}"


CLAIMS: dict[str, Callable[[View], Finding]] = {
    "strided-loss": strided_loss,
    "fedpart-increase": fedpart_increase,
    "similar-at-high-h": similar_high_h,
    "robust-at-low-h": robust_low_h,
}
