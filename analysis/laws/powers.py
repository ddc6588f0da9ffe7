"""Power laws f = A Π xᵢ^αᵢ by least squares in logarithms, and how far their exponents can be trusted.

One fit for all: a loss over N (arXiv 2503.09799, Tables 7 and 10) and over FLOPs (2501.18512, Table 5), printed or
ours. Only NumPy, so that a table answers at once.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from repro.errors import UserError

RESAMPLES, SHARE = 2_000, 0.95  # of the bootstrap
Interval = tuple[float, float]


@dataclass(frozen=True)
class PowerLaw:
    """f = factor · Π xᵢ^exponentᵢ."""

    factor: float  # A
    exponents: tuple[float, ...]  # α, β, …

    def at(self, *variables: float) -> float:
        """f at a value of each variable."""
        return self.factor * math.prod(x**power for x, power in zip(variables, self.exponents, strict=True))


def fit_power_law(variables: Sequence[Sequence[float]], values: Sequence[float]) -> PowerLaw:
    """The law of some variables, each with a value for every point. ValueError where the points can't tell it."""
    design, logs = _design(variables), np.log(values)
    if np.linalg.matrix_rank(design) < design.shape[1]:
        raise ValueError(f"{len(values)} points don't tell {design.shape[1]} numbers: give points that differ in each.")
    log_factor, *exponents = np.linalg.lstsq(design, logs, rcond=None)[0]
    return PowerLaw(math.exp(log_factor), tuple(map(float, exponents)))


def rounding_slack(
    variables: Sequence[Sequence[float]], values: Sequence[float], half_unit: float
) -> tuple[float, tuple[float, ...]]:
    """How far the factor (as a share of it) and the exponents can move if each value was rounded by `half_unit`."""
    inverse = np.abs(np.linalg.pinv(_design(variables)))
    log_factor, *exponents = inverse @ (half_unit / np.asarray(values))
    return math.expm1(log_factor), tuple(map(float, exponents))


def bootstrap_intervals(
    variables: Sequence[Sequence[float]],
    values: Sequence[float],
    groups: Sequence[Hashable],
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Interval, ...]:
    """A bootstrap interval for each exponent: groups (sizes) are drawn with replacement, all points of one together.

    Draws of fewer than two different groups say nothing and are left out. UserError for fewer than three groups.
    """
    names = list(dict.fromkeys(groups))
    if len(names) < 3:
        raise UserError(f"a bootstrap over {len(names)} sizes says nothing: give at least three.")
    draws = np.random.default_rng(seed).multinomial(len(names), [1 / len(names)] * len(names), resamples)
    weights = draws[(draws > 0).sum(axis=1) > 1][:, [names.index(group) for group in groups]]
    design = _design(variables)
    design[:, 1:] -= design[:, 1:].mean(axis=0)  # for the condition of the sums; exponents don't change
    squares = np.einsum("rn,ni,nj->rij", weights, design, design)
    products = np.einsum("rn,ni,n->ri", weights, design, np.log(values))
    exponents = np.linalg.solve(squares, products[..., None])[:, 1:, 0]
    tail = 50 * (1 - SHARE)
    return tuple(map(tuple, np.percentile(exponents, [tail, 100 - tail], axis=0).T.tolist()))


def log_residual(predicted: float, value: float) -> float:
    """|ln y − ln ŷ| (2503.09799, section 6.3)."""
    return abs(math.log(value) - math.log(predicted))


def _design(variables: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    logs = np.log(np.asarray(variables, dtype=np.float64))
    return np.column_stack([np.ones(logs.shape[1]), *logs])
