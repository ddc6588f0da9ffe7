"""Claims of 3.3 and the appendix's ablations: Figures 6, 8, 10, 11 and 13, FedPart, Table 3."""

import math
import statistics
from collections.abc import Callable

from analysis.claims.evidence import View
from analysis.claims.judging import (
    DEVIATES,
    NOT_RUN,
    REPRODUCED,
    UNDECIDED,
    Finding,
    Judge,
    Number,
    against_cells,
    at_most,
    level,
    order_part,
    ordered,
    parity_part,
    scores_level,
)
from analysis.paper.published import interval
from analysis.paper.statements import cell, value
from experiments.streaming.base import ABLATED_EVERY, DILOCO, STREAMING
from experiments.streaming.fedpart import FROZEN
from experiments.streaming.figure6 import SIZES
from experiments.streaming.figure11 import DROPS, KEPT, PRECISION
from experiments.streaming.table3 import AVERAGE, FIRST, OUTER

LAST_DIGIT = 0.01  # of the paper's losses
SIMILAR = 2 * LAST_DIGIT  # our reading of "similar", "robust" and "small", which the paper leaves open
FP4, FP32, BF16 = (f"{PRECISION} | {name}" for name in ("e3m0", "float32", "bfloat16"))
USUAL_EVERY = ABLATED_EVERY
METHODS = (DILOCO, STREAMING)
HELLASWAG_POINTS = 1.0
ADDED = f"Loss added over H = {USUAL_EVERY}: DiLoCo's less Streaming's."


def overlap_degradation(view: View) -> Finding:
    """Figure 8 up to the text's τ = 10 against τ = 1, for both α."""
    last = value("statements", "overlap", "Up to τ")
    pairs = [
        (f"α = {mix}, τ = {delay}", f"α = {mix} | τ = 1", f"α = {mix} | τ = {delay}")
        for mix in ("0", "0.5")
        for delay in (2, 5, 10)
        if delay <= last
    ]
    return at_most(view, "figure8", pairs, value("statements", "overlap", "Degradation below (%)"))


def slack_below(view: View) -> Finding:
    """Figure 10: τ₂ below five."""
    note = "Figure 10's caption gives no number for robust: that of Figure 8, to which the text compares it, is taken."
    return _slack(view, (2,), note)


def slack_up_to(view: View) -> Finding:
    """Figure 10: τ₂ up to five, as the text has it."""
    return _slack(view, (2, 5), "Limited as in Figure 8, to which the text compares it.")


def _slack(view: View, delays: tuple[int, ...], note: str) -> Finding:
    pairs = [(f"τ₂ = {d}", "τ₁ = 1 | τ₂ = 1", f"τ₁ = 1 | τ₂ = {d}") for d in delays]
    percent = value("statements", "overlap", "Degradation below (%)")
    return at_most(view, "figure10", pairs, percent, "our reading", note)


def precision_loss(view: View) -> Finding:
    """Four and sixteen bits add no more to the loss of float32 than the last printed digit."""
    parts = [
        order_part(view, "figure11", name, (FP32, row), lambda full, low: LAST_DIGIT - (low - full))
        for name, row in (("bfloat16", BF16), ("E3M0", FP4))
    ]
    measure = "Last printed digit less the loss added by fewer bits."
    return Judge("above", f"{LAST_DIGIT}", "rounding", measure)(view, "figure11", parts)


def precision_accuracy(view: View) -> Finding:
    """HellaSwag with float32 and with E3M0."""
    return scores_level(view, "figure11", ("HellaSwag",), [("E3M0", FP32, FP4)], HELLASWAG_POINTS)


def dropping_worse(view: View) -> Finding:
    """Every scheme that drops behind E3M0, at every fraction kept."""
    pairs = [(row.replace(" | ", ", "), FP4, row) for row in _dropped("feddropout", "dare", "topk")]
    return ordered(view, "figure11", pairs, "better", "The fractions kept are chosen here.")


def random_worst(view: View) -> Finding:
    """FedDropout and DARE behind Top-K at the same fraction kept."""
    pairs = [
        (f"{random.replace(' | ', ', ')}", top, random)
        for name in ("feddropout", "dare")
        for random, top in zip(_dropped(name), _dropped("topk"), strict=True)
    ]
    return ordered(view, "figure11", pairs, "better", "The fractions kept are chosen here.")


def ties_worse(view: View) -> Finding:
    """TIES behind E3M0."""
    pairs = [(row.replace(" | ", ", "), FP4, row) for row in _dropped("ties")]
    return ordered(view, "figure11", pairs, "better", "The paper tells of preliminary experiments without numbers.")


def _dropped(*schemes: str) -> list[str]:
    return [f"{DROPS[scheme]} | {keep:.0%} kept" for scheme in schemes for keep in KEPT]


def strided_loss(view: View) -> Finding:
    """Strided no worse than sequential at three layers a fragment, or where a miniature has no three: at more."""
    chosen = [3] if _differ(view, 3) else [n for n in SIZES if n > 3 and _differ(view, n)]
    note = "" if chosen == [3] else "With one layer a fragment, which stands for three, both patterns are one run."
    return ordered(view, "figure6", [_patterns(n) for n in chosen], note=note)


def pattern_robust(view: View) -> Finding:
    """Strided and sequential agree, at every fragment size that tells them apart."""
    return level(view, "figure6", [_patterns(n) for n in SIZES if _differ(view, n)], SIMILAR)


def _patterns(layers: int) -> tuple[str, str, str]:
    words = f"{layers} layer{'s' if layers > 1 else ''}"
    return words, f"Strided | {words}", f"Sequential | {words}"


def _differ(view: View, layers: int) -> bool:
    runs = [view.row("figure6", row) for row in _patterns(layers)[1:]]
    return all(runs) and runs[0][0].run.run_id != runs[1][0].run.run_id


def fedpart_losses(view: View) -> Finding:
    """The two losses of 3.3.1; in miniature, that freezing is worse."""
    if view.scale == "paper":
        cells = [(FROZEN, cell("statements", "FedPart | frozen", "Eval Loss"))]
        cells.append((STREAMING, cell("statements", "FedPart | not frozen", "Eval Loss")))
        return against_cells(view, "fedpart", cells)
    return ordered(view, "fedpart", [("frozen", STREAMING, FROZEN)], "better")


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
    low, high = interval(printed)
    mean = statistics.fmean(increases)
    error = statistics.stdev(increases) / math.sqrt(len(increases)) if len(increases) > 1 else None
    slack = 0.0 if error is None else 2 * error * math.sqrt(len(increases) + 1)
    said = DEVIATES["below" if mean < low else "above"]
    if low - slack <= mean <= high + slack:
        said = REPRODUCED
    elif error is None:
        said = UNDECIDED
    runs = tuple(r.run.run_id for row in (FROZEN, STREAMING) for r in view.row("fedpart", row) if r.summary is not None)
    numbers = (Number("increase (%)", mean, error, len(increases)),)
    return Finding(said, numbers, f"{slack:.2g} %", "seed spread", runs, note)


def outer_best(view: View) -> Finding:
    """Table 3: outer parameters no worse than the average and the first replica."""
    pairs = [("against the average", OUTER, AVERAGE), ("against the first replica", OUTER, FIRST)]
    return ordered(view, "table3", pairs)


def parameters_small(view: View) -> Finding:
    """Table 3: the three agree."""
    losses = [value("table3", row, "Eval Loss") for row in (FIRST, AVERAGE, OUTER)]
    note = f"The paper's own cells differ from the outer parameters' by {losses[0] - losses[2]:.2f} (first replica) "
    note += f"and {losses[1] - losses[2]:.2f} (average)."
    return level(view, "table3", [("average", AVERAGE, OUTER), ("first replica", FIRST, OUTER)], SIMILAR, note=note)


def high_h_worse(view: View) -> Finding:
    """The largest H behind the usual one, for both methods."""
    last = _every(view)[-1]
    pairs = [(f"{m}, H = {last}", _h(m, USUAL_EVERY), _h(m, last)) for m in METHODS]
    return ordered(view, "figure13", pairs, "better")


def low_h_worse(view: View) -> Finding:
    """The smallest H of DiLoCo behind the usual one."""
    first = _every(view)[0]
    pairs = [(f"{DILOCO}, H = {first}", _h(DILOCO, USUAL_EVERY), _h(DILOCO, first))]
    return ordered(view, "figure13", pairs, "better", "The text names no value of H.")


def robust_low_h(view: View) -> Finding:
    """What DiLoCo loses at each H below the usual one, less what Streaming loses there."""
    low = [every for every in _every(view) if every < USUAL_EVERY]
    parts = [order_part(view, "figure13", *_added(every), math.sqrt(2)) for every in low]
    return Judge("below", "0", "seed spread", ADDED)(view, "figure13", parts, "The text names no value of H.")


def similar_high_h(view: View) -> Finding:
    """What both lose at each H above the usual one."""
    high = [every for every in _every(view) if every > USUAL_EVERY]
    parts = [parity_part(view, "figure13", *_added(every), SIMILAR, math.sqrt(2)) for every in high]
    return Judge("above", f"{SIMILAR:g}", "our reading", ADDED)(view, "figure13", parts)


def _added(every: int) -> tuple[str, tuple[str, ...], Callable[..., float]]:
    rows = tuple(_h(method, h) for method in (DILOCO, STREAMING) for h in (every, USUAL_EVERY))
    return f"H = {every}", rows, lambda d, d_usual, s, s_usual: (d - d_usual) - (s - s_usual)


def _every(view: View) -> list[int]:
    """The H that both methods have at this scale, ascending."""
    found = {m: {r[0].run.x for row, r in view.rows("figure13").items() if row.startswith(f"{m} | ")} for m in METHODS}
    return sorted(int(x) for x in found[DILOCO] & found[STREAMING] if x is not None)


def _h(method: str, every: int) -> str:
    return f"{method} | H = {every}"


CLAIMS: dict[str, Callable[[View], Finding]] = {
    "precision-loss": precision_loss,
    "precision-accuracy": precision_accuracy,
    "dropping-worse": dropping_worse,
    "random-dropping-worst": random_worst,
    "ties-underperforms": ties_worse,
    "pattern-robust": pattern_robust,
    "strided-loss": strided_loss,
    "fedpart-losses": fedpart_losses,
    "fedpart-increase": fedpart_increase,
    "overlap-degradation": overlap_degradation,
    "slack-below": slack_below,
    "slack-up-to": slack_up_to,
    "high-h-worse": high_h_worse,
    "low-h-worse": low_h_worse,
    "similar-at-high-h": similar_high_h,
    "robust-at-low-h": robust_low_h,
    "outer-parameters-better": outer_best,
    "parameters-differ-little": parameters_small,
}
