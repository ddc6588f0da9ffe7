"""Loss against compute: the paper's "scaling law slope" and a power law beside it.

The slopes printed in §3.2.1 are not power-law exponents: least squares of the *loss itself* on ln(FLOPs)
over Table 5's cells gives them, a fit of ln(loss) does not. Both lines are fitted here the same way.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.laws import powers
from analysis.paper.published import Published, by_place

Point = tuple[float, float]  # (FLOPs, loss)


@dataclass(frozen=True)
class Line:
    """y = intercept + slope·ln(FLOPs)."""

    slope: float
    intercept: float

    def at(self, flops: float) -> float:
        """y at a number of FLOPs."""
        return self.intercept + self.slope * math.log(flops)


def loss_slope(points: Sequence[Point]) -> float:
    """The slope of the loss on ln(FLOPs), in nats per e-fold of compute: the paper's "scaling law slope"."""
    return semi_log(points).slope


def semi_log(points: Sequence[Point]) -> Line:
    """Least squares of loss = a + b·ln(FLOPs); points are (FLOPs, loss), at least two different FLOPs."""
    return _least_squares(points, [loss for _, loss in points])


def power_law(points: Sequence[Point]) -> Line:
    """Least squares of ln(loss) = a + b·ln(FLOPs): loss = exp(a)·FLOPs^b."""
    _centred_log_flops(points)  # a slope needs two different numbers of FLOPs
    law = powers.fit_power_law(*_columns(points))
    return Line(law.exponents[0], math.log(law.factor))


def power_interval(points: Sequence[Point]) -> powers.Interval | None:
    """The bootstrap interval of a power law's exponent over the points; None for fewer than three."""
    if len({flops for flops, _ in points}) < 3:
        return None
    return powers.bootstrap_intervals(*_columns(points), groups=[flops for flops, _ in points])[0]


def _columns(points: Sequence[Point]) -> tuple[list[list[float]], list[float]]:
    """The one variable of a law, FLOPs, and its values."""
    return [[flops for flops, _ in points]], [loss for _, loss in points]


def slope_rounding(points: Sequence[Point], half_unit: float) -> float:
    """How far `loss_slope` can move if each loss was rounded by at most `half_unit`."""
    centred = _centred_log_flops(points)
    return float(half_unit * np.abs(centred).sum() / (centred @ centred))


def published_points(cells: Iterable[Published], method: str) -> tuple[Point, ...]:
    """(FLOPs, Eval Loss) as printed for one method of Table 5; sizes without a loss are left out."""
    place = by_place(cells)
    points = []
    for (row, column), flops in place.items():
        loss = place.get((f"{row} | {method}", "Eval Loss"))
        if column == "Flops" and flops.value is not None and loss is not None and loss.value is not None:
            points.append((flops.value, loss.value))
    return tuple(points)


def _least_squares(points: Sequence[Point], values: Sequence[float]) -> Line:
    centred = _centred_log_flops(points)
    slope = float(centred @ np.asarray(values) / (centred @ centred))
    mean_log = math.fsum(math.log(flops) for flops, _ in points) / len(points)
    return Line(slope, math.fsum(values) / len(values) - slope * mean_log)


def _centred_log_flops(points: Sequence[Point]) -> np.ndarray:
    log_flops = np.log([flops for flops, _ in points])
    if len(set(log_flops)) < 2:
        raise ValueError(f"{len(points)} points at one number of FLOPs: a slope needs two different ones.")
    return log_flops - log_flops.mean()
