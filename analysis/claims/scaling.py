"""Claims of scaling and overtraining: Tables 1, 5, 6 and 7, Figure 5, and the tuning of the outer learning rate."""

import math
import statistics
from collections.abc import Callable

import numpy as np

from analysis.claims.evidence import View
from analysis.claims.judging import (
    NOT_RUN,
    UNDECIDED,
    Finding,
    Judge,
    Number,
    against_cells,
    level,
    order_part,
    ordered,
    scores_level,
    scores_ordered,
)
from analysis.paper.fits import loss_slope, power_law, published_points, slope_rounding
from analysis.paper.published import load, verdict
from analysis.paper.statements import cell
from experiments.streaming.base import DP
from experiments.streaming.table1 import OURS
from experiments.streaming.table5 import DILOCO_30, STREAM_30, STREAM_100
from experiments.streaming.table6 import label
from experiments.streaming.table7 import BUDGETS, OURS_M2, OURS_M4

LAST_DIGIT = 0.01  # of the paper's losses
SIMILAR, SIMILAR_POINTS = 2 * LAST_DIGIT, 2.0  # our reading of "similar", which the paper leaves open
SCORES = ("HellaSwag", "Piqa", "Arc Easy")


def parity_1b_loss(view: View) -> Finding:
    """Data-parallel, DiLoCo and Streaming, H = 30, at 1B (in miniature: at the largest size)."""
    size = _billion(view)
    if view.scale == "paper":
        methods = (DP, DILOCO_30, STREAM_30)
        return against_cells(view, "table5", [(f"1B | {m}", cell("table5", f"1B | {m}", "Eval Loss")) for m in methods])
    pairs = [(f"{view.named('table5', size)}, {m}", f"{size} | {m}", f"{size} | {DP}") for m in (DILOCO_30, STREAM_30)]
    return level(view, "table5", pairs, SIMILAR)


def parity_1b_accuracy(view: View) -> Finding:
    """The same for HellaSwag."""
    size = _billion(view)
    pairs = [(f"{view.named('table5', size)}, {m}", f"{size} | {DP}", f"{size} | {m}") for m in (DILOCO_30, STREAM_30)]
    return scores_level(view, "table5", ("HellaSwag",), pairs, 1.0)


def parity_billions(view: View) -> Finding:
    """Streaming H = 100 and data-parallel at the largest size that both have."""
    size = view.sizes("table5")[-1]
    note = _cells_say("table5", [("4B", f"4B | {STREAM_100}", f"4B | {DP}")])
    pairs = [(view.named("table5", size), f"{size} | {STREAM_100}", f"{size} | {DP}")]
    return level(view, "table5", pairs, SIMILAR, note=note)


def superior_to_diloco(view: View) -> Finding:
    """Streaming no worse than DiLoCo at H = 30, at every size."""
    pairs = [
        (view.named("table5", size), f"{size} | {STREAM_30}", f"{size} | {DILOCO_30}")
        for size in _sizes(view, DILOCO_30)
    ]
    return ordered(view, "table5", pairs, note=_by_size(STREAM_30, DILOCO_30))


def s100_worse_initially(view: View) -> Finding:
    """Streaming H = 100 behind data-parallel at the smallest size."""
    size = view.sizes("table5")[0]
    note = _by_size(STREAM_100, DP)
    return ordered(
        view, "table5", [(view.named("table5", size), f"{size} | {DP}", f"{size} | {STREAM_100}")], "better", note
    )


def s100_closes(view: View) -> Finding:
    """The gap of Streaming H = 100 at the smallest size less that at the largest."""
    first, *_, last = view.sizes("table5")
    rows = [f"{size} | {m}" for size in (first, last) for m in (STREAM_100, DP)]
    part = order_part(
        view,
        "table5",
        " less ".join(view.named("table5", size) for size in (first, last)),
        rows,
        lambda a, b, c, d: (a - b) - (c - d),
        math.sqrt(2),
    )
    judge = Judge("below", "0", "seed spread", "Gap to Data-Parallel at the smallest size less that at the largest.")
    return judge(view, "table5", [part], _by_size(STREAM_100, DP))


def slope_dp(view: View) -> Finding:
    """The slope of data-parallel."""
    return _slope(view, DP, "scaling slope | Data-Parallel")


def slope_s100(view: View) -> Finding:
    """The slope of Streaming H = 100."""
    return _slope(view, STREAM_100, "scaling slope | Streaming DiLoCo")


def slope_steeper(view: View) -> Finding:
    """Slope of data-parallel less that of Streaming H = 100, seed by seed."""
    sizes = view.sizes("table5")
    logs = _log_flops(view, sizes)
    rows = [f"{size} | {m}" for m in (DP, STREAM_100) for size in sizes]

    def gap(*losses: float) -> float:
        return _fit(logs, losses[: len(sizes)]) - _fit(logs, losses[len(sizes) :])

    part = order_part(view, "table5", "difference of slopes", rows, gap, 1 / math.sqrt(_square(logs)))
    judge = Judge("below", "0", "seed spread", "Slope of Data-Parallel less that of Streaming DiLoCo, H = 100.")
    return judge(view, "table5", [part], _cell_slopes())


def slight_advantage(view: View) -> Finding:
    """The mean over sizes and methods of the loss less data-parallel's."""
    sizes = _sizes(view, DILOCO_30)
    methods = (DILOCO_30, STREAM_30, STREAM_100)
    rows = [f"{size} | {m}" for size in sizes for m in (DP, *methods)]

    def advantage(*losses: float) -> float:
        groups = [losses[i : i + 4] for i in range(0, len(losses), 4)]
        return statistics.fmean(loss - group[0] for group in groups for loss in group[1:])

    part = order_part(view, "table5", "mean of all sizes", rows, advantage, 1 / math.sqrt(max(len(sizes), 1)))
    judge = Judge("below", "0", "seed spread", "Loss of the other methods less that of Data-Parallel.")
    return judge(view, "table5", [part], _by_size(STREAM_30, DP))


def fp4_billion(view: View) -> Finding:
    """Four bits (Streaming) no worse than sixteen (DiLoCo) at 1B, within the last printed digit."""
    size = _billion(view)
    part = order_part(
        view,
        "table5",
        view.named("table5", size),
        [f"{size} | {DILOCO_30}", f"{size} | {STREAM_30}"],
        lambda sixteen, four: LAST_DIGIT - (four - sixteen),
    )
    judge = Judge("above", f"{LAST_DIGIT}", "rounding", "Last printed digit less the loss added by four bits.")
    note = (
        "Streaming with four bits beside DiLoCo with sixteen: the paper shows no run of four against more bits at 1B."
    )
    return judge(view, "table5", [part], note)


def overtraining_loss(view: View) -> Finding:
    """Our method and data-parallel at each budget of Table 1."""
    pairs = [(b, f"{OURS} | {b}", f"{DP} | {b}") for b in BUDGETS]
    return level(view, "table1", pairs, SIMILAR, note=_cells_say("table1", pairs))


def overtraining_accuracy(view: View) -> Finding:
    """The same for three accuracies."""
    pairs = [(b, f"{DP} | {b}", f"{OURS} | {b}") for b in BUDGETS]
    return scores_level(view, "table1", SCORES, pairs, SIMILAR_POINTS)


def overtraining_better(view: View) -> Finding:
    """Data-parallel less our method, the mean over the budgets."""
    rows = [f"{m} | {b}" for b in BUDGETS for m in (DP, OURS)]

    def gain(*losses: float) -> float:
        return statistics.fmean(dp - ours for dp, ours in zip(losses[::2], losses[1::2], strict=True))

    part = order_part(view, "table1", "mean of the budgets", rows, gain, 1 / math.sqrt(len(BUDGETS)))
    judge = Judge("worse", "0", "seed spread", "Loss of Data-Parallel less that of our method.")
    note = _cells_say("table1", [(b, f"{OURS} | {b}", f"{DP} | {b}") for b in BUDGETS])
    return judge(view, "table1", [part], note)


def overtraining_gone(view: View) -> Finding:
    """At the largest budget our method is no worse than data-parallel."""
    last = tuple(BUDGETS)[-1]
    pairs = [(last, f"{OURS} | {last}", f"{DP} | {last}")]
    return ordered(view, "table1", pairs, note=_cells_say("table1", pairs))


def m4_worse(view: View) -> Finding:
    """Four replicas behind two at each budget of Table 7."""
    pairs = [(b, f"{OURS_M2} | {b}", f"{OURS_M4} | {b}") for b in BUDGETS]
    turned = [(name, high, low) for name, low, high in pairs]
    return ordered(view, "table7", pairs, "better", _cells_say("table7", turned))


def m4_accuracy(view: View) -> Finding:
    """The same for HellaSwag."""
    pairs = [(b, f"{OURS_M4} | {b}", f"{OURS_M2} | {b}") for b in BUDGETS]
    return scores_ordered(view, "table7", ("HellaSwag",), pairs)


def replicas_differ(view: View) -> Finding:
    """Table 6: two replicas no worse than four, at every size and H."""
    keys = [(size, every) for size in view.sizes("table6") for every in (30, 100)]
    pairs = [(f"{view.named('table6', s)}, H = {h}", f"{s} | {label(2, h)}", f"{s} | {label(4, h)}") for s, h in keys]
    note = "The paper says only that M matters; its cells put M = 4 behind everywhere."
    return ordered(view, "table6", pairs, "better", note)


def outer_rate(view: View) -> Finding:
    """The best loss at other outer learning rates less that at the paper's, for each method that has one."""
    wanted = cell("statements", "outer optimiser", "Learning rate").value
    parts = []
    for method in (DILOCO_30, STREAM_30, STREAM_100):
        rates = _tuned(view, method)
        at = [rate == wanted for rate in rates.values()]

        def gap(*losses: float, at: list[bool] = at) -> float:
            return min(x for x, here in zip(losses, at, strict=True) if not here) - min(
                x for x, here in zip(losses, at, strict=True) if here
            )

        parts.append(order_part(view, "tuning", method, list(rates), gap))
    judge = Judge("below", "0", "seed spread", "Best loss at another outer learning rate less the best at the paper's.")
    return judge(view, "tuning", parts, "The paper names no grid; ours has 0.2, 0.4 and 0.8, momentum 0.6 and 0.9.")


def _tuned(view: View, method: str) -> dict[str, float]:
    """Rows of the tuning at one inner learning rate, with their outer one; {} where there are none."""
    rows = {r: found[0].run.config for r, found in view.rows("tuning").items() if f" | {method} | " in r}
    outer = [config.inner.learning_rate for row, config in rows.items() if " | outer " in row]
    return {
        row: config.sync.outer.learning_rate
        for row, config in rows.items()
        if config.sync and outer and config.inner.learning_rate == outer[0]
    }


def _billion(view: View) -> str:
    """1B, or what stands for it: the largest size of a scale without it."""
    sizes = view.sizes("table5")
    return "1B" if "1B" in sizes else sizes[-1]


def _sizes(view: View, method: str) -> list[str]:
    return [size for size in view.sizes("table5") if view.row("table5", f"{size} | {method}")]


def _by_size(method: str, base: str) -> str:
    sizes = dict.fromkeys(c.row.split(" | ")[0] for c in load("table5"))
    return _cells_say("table5", [(s, f"{s} | {method}", f"{s} | {base}") for s in sizes])


def _cells_say(item: str, pairs: list[tuple[str, str, str]]) -> str:
    """The same difference in the paper's own cells, which decide nothing here."""
    shown = []
    for name, one, other in pairs:
        losses = [cell(item, row, "Eval Loss").value for row in (one, other)]
        if losses[0] is not None and losses[1] is not None:
            shown.append(f"{losses[0] - losses[1]:+.2f} at {name}")
    method, base = (row.replace(f"{pairs[0][0]} | ", "").replace(f" | {pairs[0][0]}", "") for row in pairs[0][1:])
    return f"The paper's own cells ({method} less {base}): {', '.join(shown)}."


def _slope(view: View, method: str, row: str) -> Finding:
    """Fitted to our means; held against the printed one at paper scale, only against zero in miniature."""
    sizes = view.sizes("table5")
    logs = _log_flops(view, sizes)
    rows = [f"{size} | {method}" for size in sizes]
    if view.scale != "paper":
        part = order_part(
            view, "table5", "slope, negated", rows, lambda *losses: -_fit(logs, losses), 1 / math.sqrt(_square(logs))
        )
        judge = Judge(
            "below", "0", "seed spread", "That the loss falls with ln(FLOPs) is all that a miniature can say."
        )
        return judge(view, "table5", [part])
    losses = [view.losses("table5", name) for name in rows]
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in losses)))
    if not seeds:
        return Finding(NOT_RUN, sentence=_cell_slopes())
    slopes = [_fit(logs, [by_seed[seed] for by_seed in losses]) for seed in seeds]
    spread = statistics.stdev(slopes) if len(slopes) > 1 else None
    tolerance = 0.0 if spread is None else 2 * spread * math.sqrt(1 + 1 / len(slopes))
    mean = statistics.fmean(slopes)
    found = verdict(cell("statements", row, "Slope"), mean, tolerance, "paper")
    said = UNDECIDED if spread is None and found.startswith("deviates") else found
    runs = tuple(r.run.run_id for name in rows for r in view.row("table5", name) if r.loss is not None)
    error = None if spread is None else spread / math.sqrt(len(slopes))
    return Finding(
        said, (Number("slope", mean, error, len(slopes)),), f"{tolerance:.2g}", "seed spread", runs, _cell_slopes()
    )


def _cell_slopes() -> str:
    """What least squares make of the paper's printed losses."""
    points = [published_points(load("table5"), method) for method in (DP, STREAM_100)]
    semi, power = [loss_slope(p) for p in points], [power_law(p).slope for p in points]
    slack = max(slope_rounding(p, LAST_DIGIT / 2) for p in points)
    return (
        f"The paper's own cells give {semi[0]:.5f} and {semi[1]:.5f} for the loss on ln(FLOPs), which the rounding of "
        f"the losses moves by {slack:.4f} at most (as power laws {power[0]:.4f} and {power[1]:.4f}): the printed "
        "slopes are semi-logarithmic."
    )


def _log_flops(view: View, sizes: tuple[str, ...]) -> np.ndarray:
    return np.log([view.row("table5", f"{size} | {DP}")[0].run.config.flops for size in sizes])


def _fit(logs: np.ndarray, losses: object) -> float:
    centred = logs - logs.mean()
    return float(centred @ np.asarray(losses) / (centred @ centred))


def _square(logs: np.ndarray) -> float:
    return float(((logs - logs.mean()) ** 2).sum())


CLAIMS: dict[str, Callable[[View], Finding]] = {
    "fp4-billion-scale": fp4_billion,
    "superior-to-diloco": superior_to_diloco,
    "similar-at-billions": parity_billions,
    "outer-rate": outer_rate,
    "parity-1b-loss": parity_1b_loss,
    "parity-1b-accuracy": parity_1b_accuracy,
    "h100-worse-initially": s100_worse_initially,
    "h100-closes-with-scale": s100_closes,
    "slope-data-parallel": slope_dp,
    "slope-streaming": slope_s100,
    "slope-steeper": slope_steeper,
    "overtraining-loss": overtraining_loss,
    "overtraining-accuracy": overtraining_accuracy,
    "overtraining-slightly-better": overtraining_better,
    "slight-advantage": slight_advantage,
    "advantage-disappears": overtraining_gone,
    "replicas-matter": replicas_differ,
    "four-replicas-worse": m4_worse,
    "four-replicas-accuracy": m4_accuracy,
}
