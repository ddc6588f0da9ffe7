"""The four forms of a loss over N and M (arXiv 2503.09799, section 6.5 and Table 13), fitted as it says.

The sum of Huber losses of ln f − ln L is minimised by L-BFGS from many random starts. Each form is a sum of terms
exp(linear in its parameters), so that ln f is a log-sum-exp whose derivative is exact; the parameters of a term are
turned to orthogonal ones, without which L-BFGS stops long before the minimum. SciPy is imported where a fit is made.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
HUBER = 1e-3  # δ: the paper gives none; that of Hoffmann et al. (2022), whose strategy it names
STARTS = 64
SAME = 1e-6  # two minima are one within this share


@dataclass(frozen=True)
class Form:
    """`terms(ln N, M)` gives the columns of each term's exponent; starts are drawn uniformly from `ranges`."""

    name: str  # as printed
    terms: Callable[[Array, Array], list[list[Array]]]
    ranges: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Fitted:
    """One form's best fit: the mean residual of what was held out, the objective, and how many starts reached it."""

    residual: float
    objective: float
    reached: int
    starts: int


LOG_A, ALPHA, BETA, LOG_C = (0.0, 5.0), (-0.5, 0.0), (-0.1, 0.1), (-2.0, 1.0)
FORMS = (
    Form("A N^α M^β", lambda n, m: [[n**0, n, np.log(m)]], (LOG_A, ALPHA, BETA)),
    Form("A N^α M^β + C", lambda n, m: [[n**0, n, np.log(m)], [n**0]], (LOG_A, ALPHA, BETA, LOG_C)),
    Form("A N^(α+βM) + C", lambda n, m: [[n**0, n, m * n], [n**0]], (LOG_A, ALPHA, (-0.01, 0.01), LOG_C)),
    Form(
        "A N^α + B M^β + C",
        lambda n, m: [[n**0, n], [n**0, np.log(m)], [n**0]],
        (LOG_A, ALPHA, (-3.0, 1.0), (-0.5, 0.5), LOG_C),
    ),
)


def fit_form(
    form: Form,
    points: Sequence[tuple[float, float, float]],
    held_out: Sequence[tuple[float, float, float]],
    starts: int,
    seed: int = 0,
) -> Fitted:
    """Fit (N, M, loss) points from `starts` random starts; of these the one that predicts `held_out` best."""
    from scipy.optimize import minimize

    n, m, losses = np.array([*points, *held_out]).T
    problem = _Problem(form.terms(np.log(n), m), np.log(losses), len(points))
    draws = np.random.default_rng(seed)
    outcomes = []
    for _ in range(starts):
        start = problem.turned([draws.uniform(*bounds) for bounds in form.ranges])
        options: dict[str, Any] = {"maxiter": 1_000, "ftol": 1e-12, "gtol": 1e-8}
        best = minimize(problem.objective, start, jac=True, method="L-BFGS-B", options=options)
        outcomes.append((problem.held_out(best.x), float(best.fun)))
    residual, objective = min(outcomes)
    least = min(value for _, value in outcomes)
    reached = sum(value <= least * (1 + SAME) for _, value in outcomes)
    return Fitted(residual, objective, reached, starts)


class _Problem:
    """One form's objective over orthogonal parameters; the first `count` points are fitted, the others held out."""

    def __init__(self, terms: list[list[Array]], logs: Array, count: int) -> None:
        self.logs, self.count = logs, count
        designs = [np.column_stack(columns) for columns in terms]
        self.turns = [np.linalg.qr(design[:count])[1] / math.sqrt(count) for design in designs]
        self.bases = [design @ np.linalg.inv(turn) for design, turn in zip(designs, self.turns, strict=True)]
        self.cuts = np.cumsum([design.shape[1] for design in designs])[:-1]

    def turned(self, parameters: Sequence[float]) -> Array:
        """Parameters as the form has them, made orthogonal."""
        parts = np.split(np.asarray(parameters), self.cuts)
        return np.concatenate([turn @ part for turn, part in zip(self.turns, parts, strict=True)])

    def objective(self, turned: Array) -> tuple[float, Array]:
        """Mean Huber loss in units of δ², and its derivative."""
        log_f, exponents = self._logs(turned, slice(0, self.count))
        error = log_f - self.logs[: self.count]
        size = np.abs(error)
        loss = np.where(size <= HUBER, error**2 / 2, HUBER * (size - HUBER / 2))
        slope = np.exp(exponents - log_f) * np.clip(error, -HUBER, HUBER)
        parts = [basis[: self.count].T @ one for basis, one in zip(self.bases, slope, strict=True)]
        return float(loss.mean()) / HUBER**2, np.concatenate(parts) / self.count / HUBER**2

    def held_out(self, turned: Array) -> float:
        """Mean |ln f − ln L| of what was held out."""
        log_f, _ = self._logs(turned, slice(self.count, None))
        return float(np.abs(log_f - self.logs[self.count :]).mean())

    def _logs(self, turned: Array, which: slice) -> tuple[Array, Array]:
        """ln f and the exponents of its terms, a row a term."""
        parts = np.split(turned, self.cuts)
        exponents = np.stack([basis[which] @ part for basis, part in zip(self.bases, parts, strict=True)])
        return np.logaddexp.reduce(exponents, axis=0), exponents
