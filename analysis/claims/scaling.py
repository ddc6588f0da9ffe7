"""Claims of scaling and overtraining that are computed: slopes, gaps and means of Tables 1 and 5, the outer rate."""

import math
import statistics
from collections.abc import Callable, Sequence

from analysis.claims.compared import printed
from analysis.claims.evidence import View
from analysis.claims.judging import NOT_RUN, UNDECIDED, Finding, Judge, Number, bounded_part, order_part
from analysis.paper.deciding import slack
from analysis.paper.fits import loss_slope, power_law, published_points, slope_rounding
from analysis.paper.published import load_cells, verdict
from analysis.paper.statements import cell
from experiments.streaming.base import DP, LAST_DIGIT, SIZES, SLIGHT, at_each
from experiments.streaming.table1 import BESIDE_DP as OVERTRAINED
from experiments.streaming.table1 import OURS
from experiments.streaming.table5 import BESIDE_DP, DILOCO_30, STREAM_30, STREAM_100
from experiments.streaming.table7 import BUDGETS
from repro.spec.config import ModelConfig, RunConfig


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
    )
    judge = Judge("below", "0", "seed spread", "Gap to Data-Parallel at the smallest size less that at the largest.")
    return judge(view, "table5", [part], printed(load_cells("table5"), BESIDE_DP))


def slope_dp(view: View) -> Finding:
    """The slope of data-parallel."""
    return _slope(view, DP, "scaling slope | Data-Parallel")


def slope_s100(view: View) -> Finding:
    """The slope of Streaming H = 100."""
    return _slope(view, STREAM_100, "scaling slope | Streaming DiLoCo")


def slope_steeper(view: View) -> Finding:
    """Slope of data-parallel less that of Streaming H = 100, seed by seed."""
    sizes = view.sizes("table5")
    flops = _flops(view, sizes)
    rows = [f"{size} | {m}" for m in (DP, STREAM_100) for size in sizes]

    def gap(*losses: float) -> float:
        return _fit(flops, losses[: len(sizes)]) - _fit(flops, losses[len(sizes) :])

    part = order_part(view, "table5", "difference of slopes", rows, gap)
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

    part = bounded_part(view, "table5", "mean of all sizes", rows, advantage, 0.0, SLIGHT)
    judge = Judge("below", f"0 to {SLIGHT:g}", "our reading", "Loss of the other methods less that of Data-Parallel.")
    return judge(
        view, "table5", [part], printed(load_cells("table5"), at_each(SIZES, f"{{}} | {DP}", f"{{}} | {STREAM_30}"))
    )


def overtraining_better(view: View) -> Finding:
    """Data-parallel less our method, the mean over the budgets."""
    rows = [f"{m} | {b}" for b in BUDGETS for m in (DP, OURS)]

    def gain(*losses: float) -> float:
        return statistics.fmean(dp - ours for dp, ours in zip(losses[::2], losses[1::2], strict=True))

    part = bounded_part(view, "table1", "mean of the budgets", rows, gain, 0.0, SLIGHT)
    judge = Judge("worse", f"0 to {SLIGHT:g}", "our reading", "Loss of Data-Parallel less that of our method.")
    return judge(view, "table1", [part], printed(load_cells("table1"), OVERTRAINED))


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

        there = list(rates) if len(set(at)) == 2 else []  # a scale may leave a part of the grid out
        parts.append(order_part(view, "tuning", method, there, gap))
    judge = Judge("below", "0", "seed spread", "Best loss at another outer learning rate less the best at the paper's.")
    return judge(view, "tuning", parts, "The paper names no grid; ours has 0.2, 0.4 and 0.8, momentum 0.6 and 0.9.")


def _tuned(view: View, method: str) -> dict[str, float]:
    """Rows of the tuning at one batch and inner rate, with their outer one; {} where there are none."""
    rows = {
        r: results[0].run.config
        for r, results in view.rows("tuning").items()
        if f" | {method} | " in r and not any(result.diverged for result in results)
    }
    chosen = [_inner_setting(config) for row, config in rows.items() if " | outer " in row]
    return {
        row: config.sync.outer.learning_rate
        for row, config in rows.items()
        if config.sync and chosen and _inner_setting(config) == chosen[0]
    }


def _inner_setting(config: RunConfig) -> tuple[ModelConfig, int, float]:
    return config.model, config.batch, config.inner.learning_rate


def _sizes(view: View, method: str) -> list[str]:
    return [size for size in view.sizes("table5") if view.row("table5", f"{size} | {method}")]


def _slope(view: View, method: str, row: str) -> Finding:
    """Fitted to our means; held against the printed one at paper scale, only against zero in miniature."""
    sizes = view.sizes("table5")
    flops = _flops(view, sizes)
    rows = [f"{size} | {method}" for size in sizes]
    if view.scale != "paper":
        part = order_part(view, "table5", "slope, negated", rows, lambda *losses: -_fit(flops, losses))
        judge = Judge(
            "below", "0", "seed spread", "That the loss falls with ln(FLOPs) is all that a miniature can say."
        )
        return judge(view, "table5", [part])
    losses = [view.losses("table5", name) for name in rows]
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in losses)))
    if not seeds:
        return Finding(NOT_RUN, sentence=_cell_slopes())
    slopes = [_fit(flops, [by_seed[seed] for by_seed in losses]) for seed in seeds]
    spread = statistics.stdev(slopes) if len(slopes) > 1 else None
    tolerance = 0.0 if spread is None else slack(spread, len(slopes))
    mean = statistics.fmean(slopes)
    word = verdict(cell("statements", row, "Slope"), mean, tolerance, "paper")
    runs = tuple(r.run.run_id for name in rows for r in view.row("table5", name) if r.loss is not None)
    error = None if spread is None else spread / math.sqrt(len(slopes))
    return Finding(
        UNDECIDED if spread is None and word.startswith("deviates") else word,
        (Number("slope", mean, error, len(slopes)),),
        f"{tolerance:.2g}",
        "seed spread",
        runs,
        _cell_slopes(),
    )


def _cell_slopes() -> str:
    """What least squares make of the paper's printed losses."""
    points = [published_points(load_cells("table5"), method) for method in (DP, STREAM_100)]
    semi, power = [loss_slope(p) for p in points], [power_law(p).slope for p in points]
    slack = max(slope_rounding(p, LAST_DIGIT / 2) for p in points)
    return (
        f"The paper's own cells give {semi[0]:.5f} and {semi[1]:.5f} for the loss on ln(FLOPs), which the rounding of "
        f"the losses moves by {slack:.4f} at most (as power laws {power[0]:.4f} and {power[1]:.4f}): the printed "
        "slopes are semi-logarithmic."
    )


def _flops(view: View, sizes: tuple[str, ...]) -> list[float]:
    return [view.row("table5", f"{size} | {DP}")[0].run.config.flops for size in sizes]


def _fit(flops: Sequence[float], losses: Sequence[float]) -> float:
    return loss_slope(list(zip(flops, losses, strict=True)))


CLAIMS: dict[str, Callable[[View], Finding]] = {
    "outer-rate": outer_rate,
    "h100-closes-with-scale": s100_closes,
    "slope-data-parallel": slope_dp,
    "slope-streaming": slope_s100,
    "slope-steeper": slope_steeper,
    "overtraining-slightly-better": overtraining_better,
    "slight-advantage": slight_advantage,
}
