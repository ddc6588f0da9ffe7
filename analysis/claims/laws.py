"""Statements of the scaling-law paper (arXiv 2503.09799) that its runs decide and that are more than pairs of rows.

A best setting is never read off a grid of a few points: that it grows is asked as what a larger setting costs one
method and another, in nats, except for the batch, whose best value is the minimum of a parabola as in section 6.1.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from analysis.claims.evidence import View
from analysis.claims.judging import Finding, Judge, JudgedDifference, bounded_part, order_part
from analysis.paper.deciding import judge_order
from experiments.scaling_laws.base import DP, REPLICAS, replica_label
from experiments.scaling_laws.batches import FACTORS, batch_row
from experiments.scaling_laws.cadence import CADENCES, cadence_label
from experiments.scaling_laws.outer_rates import SIZES as TUNED_SIZES
from experiments.scaling_laws.outer_rates import SWEPT, rate_row
from experiments.scaling_laws.overtraining import MULTIPLIERS, times
from experiments.scaling_laws.table4 import METHODS
from experiments.streaming.base import SIMILAR
from repro.spec.laws import DATA_PARALLEL

TABLE4, BATCHES, RATES = "scaling_laws_table4", "scaling_laws_batches", "scaling_laws_outer_rates"
CADENCE, OVERTRAINING = "scaling_laws_cadence", "scaling_laws_overtraining"
LOW, HIGH = 0.4, 0.8  # outer rates between which a step is asked for
SHORT, LONG = CADENCES[1], CADENCES[-2]  # H = 5 and 100
PARABOLA = 3  # points that it takes


def relative_loss_falls(view: View) -> Finding:
    """The relative gap of each M at the smallest size less that at the largest, in percent."""
    first, last = _ends(view, TABLE4)
    parts = [
        order_part(
            view,
            TABLE4,
            f"M = {m}",
            [f"{size} | {method}" for size in (first, last) for method in (replica_label(m), DP)],
            lambda a, a_dp, b, b_dp: 100 * (a / a_dp - b / b_dp),
        )
        for m in REPLICAS
    ]
    measure = "Loss over that of Data-Parallel at the smallest size less that at the largest, percent."
    return Judge("above", "0 %", "seed spread", measure)(view, TABLE4, parts)


def best_batch_grows(view: View) -> Finding:
    """Powers of two between the best batch of a method and that of the one before it."""
    parts = [_batch_part(view, fewer, more) for fewer, more in pairwise(METHODS)]
    measure = (
        "log2 of the best global batch, the minimum of a parabola in log2 B: a method's less that of the one before."
    )
    return Judge("below", "0", "seed spread", measure)(view, BATCHES, parts)


def data_parallel_degrades(view: View) -> Finding:
    """What four times the batch costs Data-Parallel less what it costs M = 1."""
    rows = [batch_row(m, factor) for m in (DATA_PARALLEL, 1) for factor in (1, FACTORS[-1])]
    part = order_part(view, BATCHES, "", rows, _less)
    measure = f"Loss that {FACTORS[-1]:g} times the middle batch adds: of Data-Parallel less of M = 1."
    return Judge("below", "0", "seed spread", measure)(view, BATCHES, [part])


def outer_rate_grows_with_m(view: View) -> Finding:
    """What a larger outer rate costs M = 1 less what it costs M = 8, at each size."""
    parts = [
        order_part(view, RATES, size, _rate_rows((size, REPLICAS[0], 30), (size, REPLICAS[-1], 30)), _less)
        for size in TUNED_SIZES
    ]
    return Judge("below", "0", "seed spread", _measure_rates("of M = 1 less of M = 8"))(view, RATES, parts)


def outer_rate_grows_with_h(view: View) -> Finding:
    """What a larger outer rate costs at a short H less what it costs at a long one."""
    size = TUNED_SIZES[0]
    part = order_part(view, RATES, "", _rate_rows((size, SWEPT, SHORT), (size, SWEPT, LONG)), _less)
    return Judge("below", "0", "seed spread", _measure_rates(f"at H = {SHORT} less at H = {LONG}"))(view, RATES, [part])


def outer_rate_not_with_n(view: View) -> Finding:
    """What a larger outer rate costs at one size less what it costs at another, for each M."""
    first, second = TUNED_SIZES
    parts = [
        bounded_part(view, RATES, f"M = {m}", _rate_rows((first, m, 30), (second, m, 30)), _less, -SIMILAR, SIMILAR)
        for m in REPLICAS
    ]
    measure = _measure_rates(f"at {first} less at {second}, as their miniatures")
    return Judge("above", f"{SIMILAR:g}", "our reading", measure)(view, RATES, parts)


def cadence_slope(view: View) -> Finding:
    """What a long H adds with more replicas less with one; and at a size less at the next larger one."""
    parts = [*_slopes_over_replicas(view), *_slopes_over_sizes(view)]
    measure = (
        f"Loss that H = {LONG} adds to that of H = {SHORT}: of more replicas less of one, of a size less of a larger."
    )
    return Judge("below", "0", "seed spread", measure)(view, CADENCE, parts)


def overtraining_parallel(view: View) -> Finding:
    """A method's gap to Data-Parallel at the most tokens less that at the fewest."""
    fewest, *_, most = map(times, MULTIPLIERS)
    parts = [
        bounded_part(
            view,
            OVERTRAINING,
            f"{view.named(OVERTRAINING, size)}, M = {m}",
            [f"{size} | {method} | {k}" for k in (most, fewest) for method in (DP, replica_label(m))],
            lambda dp, method, dp_few, method_few: (method - dp) - (method_few - dp_few),
            -SIMILAR,
            SIMILAR,
        )
        for size in view.sizes(OVERTRAINING)
        for m in (1, 2, 4)
    ]
    measure = f"Loss less that of Data-Parallel at {most} less that at {fewest}."
    return Judge("above", f"{SIMILAR:g}", "our reading", measure)(view, OVERTRAINING, parts)


def _slopes_over_replicas(view: View) -> Iterator[JudgedDifference]:
    for size in view.sizes(CADENCE):
        for m in (2, 4):
            rows = _cadence_rows(size, m) + _cadence_rows(size, 1)
            name = f"{view.named(CADENCE, size)}, M = {m} less M = 1"
            yield order_part(view, CADENCE, name, rows, lambda a, b, c, d: (b - a) - (d - c))


def _slopes_over_sizes(view: View) -> Iterator[JudgedDifference]:
    sizes = view.sizes(CADENCE)
    for smaller, larger in pairwise(sizes):
        for m in (1, 2, 4):
            rows = _cadence_rows(smaller, m) + _cadence_rows(larger, m)
            name = f"M = {m}, {' less '.join(view.named(CADENCE, size) for size in (smaller, larger))}"
            yield order_part(view, CADENCE, name, rows, lambda a, b, c, d: (b - a) - (d - c))


def _cadence_rows(size: str, replicas: int) -> list[str]:
    return [f"{size} | {replica_label(replicas)} | {cadence_label(every)}" for every in (SHORT, LONG)]


def _ends(view: View, experiment: str) -> tuple[str, str]:
    """The smallest and the largest size of a scale; the same one twice, or "", where there are no two."""
    sizes = view.sizes(experiment) or ("",)
    return sizes[0], sizes[-1]


def _rate_rows(one: tuple[str, int, int], other: tuple[str, int, int]) -> list[str]:
    """A low and a high rate of one point (size, M, H), then of another."""
    return [rate_row(*point, rate) for point in (one, other) for rate in (LOW, HIGH)]


def _less(low: float, high: float, other_low: float, other_high: float) -> float:
    """What the high rate adds at the first point less at the second."""
    return (high - low) - (other_high - other_low)


def _measure_rates(what: str) -> str:
    return f"Loss that an outer rate of {HIGH:g} adds to that of {LOW:g}: {what}."


def _batch_part(view: View, fewer: int, more: int) -> JudgedDifference:
    """The difference of two best batches, seed by seed; losses lend it no spread, as it is none of losses."""
    name = f"{replica_label(more)} less {replica_label(fewer)}"
    best, results = [], []
    for m in (fewer, more):
        rows = [row for factor in FACTORS if view.row(BATCHES, row := batch_row(m, factor))]
        runs = [view.row(BATCHES, row) for row in rows]
        if len(rows) < PARABOLA:
            return JudgedDifference(name, judge_order(()), ())
        logs = [math.log2(row[0].run.config.batch) for row in runs]
        by_seed = [view.losses(BATCHES, row) for row in rows]
        seeds = set.intersection(*(set(losses) for losses in by_seed))
        best.append({seed: lowest_of_parabola(logs, [losses[seed] for losses in by_seed]) for seed in seeds})
        results += [result for row in runs for result in row]
    differences = [best[1][seed] - best[0][seed] for seed in sorted(best[0].keys() & best[1].keys())]
    return JudgedDifference(name, judge_order(differences), tuple(results))


def lowest_of_parabola(logs: Sequence[float], losses: Sequence[float]) -> float:
    """Where the parabola through (log2 B, loss) is lowest, at most at the ends of the grid."""
    curve, slope, _ = np.polyfit(logs, losses, 2)
    if curve <= 0:
        return logs[int(np.argmin(losses))]
    return float(np.clip(-slope / (2 * curve), min(logs), max(logs)))


CLAIMS: dict[str, Callable[[View], Finding]] = {
    "relative-loss-falls-with-n": relative_loss_falls,
    "best-batch-grows-with-m": best_batch_grows,
    "dp-degrades-with-batch": data_parallel_degrades,
    "outer-rate-grows-with-m": outer_rate_grows_with_m,
    "outer-rate-grows-with-h": outer_rate_grows_with_h,
    "outer-rate-not-with-n": outer_rate_not_with_n,
    "h-slope-smaller-with-m1": cadence_slope,
    "overtraining-parallel": overtraining_parallel,
}
