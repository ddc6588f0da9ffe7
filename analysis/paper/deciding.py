"""How differences over seeds decide: one rule for orders, parities and sizes, fixed before any result is seen.

A statement says that a mean difference lies between two bounds, one of which may be infinite (an order). It agrees
where the t interval of the mean lies wholly between them, disagrees where it lies wholly beyond one, and is undecided
otherwise. For two finite bounds that is the test of equivalence by two one-sided tests. Each p is twice the one-sided
one, so that of equal methods at most one in twenty is decided. Nothing here knows of runs, scales or the paper.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from scipy.special import stdtr, stdtrit

ALPHA = 0.05
MOST_SEEDS = 1000  # beyond that no number of seeds is named

Agreement = Literal["agrees", "disagrees", "undecided", "not run"]


@dataclass(frozen=True)
class Lent:
    """Standard deviation of one paired difference as rows with more seeds have it, with their degrees of freedom."""

    value: float
    degrees: int


@dataclass(frozen=True)
class Judgement:
    """One judged difference.

    `difference` is the mean over seeds of what is to lie from `low` to `high`, `standard_error` that of this mean; None
    where there is no run or no known spread. `p_for` and `p_against` are those of agreeing and disagreeing.
    """

    difference: float | None = None
    standard_error: float | None = None
    seeds: int = 0
    degrees: float = 0.0
    low: float = -math.inf
    high: float = math.inf
    decisive: bool = True  # a lent spread shows what it would say, and decides nothing
    p_for: float | None = field(init=False)
    p_against: float | None = field(init=False)

    def __post_init__(self) -> None:
        tests = _tests(self.difference, self.standard_error, self.degrees, self.low, self.high)
        object.__setattr__(self, "p_for", tests and tests[0])
        object.__setattr__(self, "p_against", tests and tests[1])

    @property
    def verdict(self) -> Agreement:
        """Alone, before Holm's correction."""
        if self.difference is None:
            return "not run"
        if self.p_for is None or self.p_against is None or not self.decisive:
            return "undecided"
        return "agrees" if self.p_for <= ALPHA else "disagrees" if self.p_against <= ALPHA else "undecided"

    @property
    def p(self) -> float | None:
        """That of the side to which it leans."""
        return None if self.p_for is None or self.p_against is None else min(self.p_for, self.p_against)

    @property
    def inside(self) -> bool:
        """Whether the mean itself lies between the bounds."""
        return self.difference is not None and self.low <= self.difference <= self.high


def judge(
    values: Sequence[float], low: float = -math.inf, high: float = math.inf, lent: Lent | None = None
) -> Judgement:
    """Whether the mean of paired values, one a seed, lies from `low` to `high`; a single seed decides nothing."""
    if not values:
        return Judgement(low=low, high=high)
    mean, count = math.fsum(values) / len(values), len(values)
    if count > 1 and all(map(math.isfinite, values)):
        return Judgement(mean, statistics.stdev(values) / math.sqrt(count), count, count - 1, low, high)
    error, degrees = (lent.value, lent.degrees) if lent and count == 1 else (None, 0)
    return Judgement(mean, error, count, degrees, low, high, decisive=False)


def judge_order(values: Sequence[float], lent: Lent | None = None) -> Judgement:
    """Whether the mean of the paired values is at least 0."""
    return judge(values, low=0.0, lent=lent)


def judge_parity(values: Sequence[float], margin: float, lent: Lent | None = None) -> Judgement:
    """Whether the mean of the paired values is within the margin of 0: equivalence, by two one-sided tests."""
    return judge(values, -margin, margin, lent)


def judge_all(judgements: Iterable[Judgement]) -> tuple[Agreement, float | None]:
    """A statement of several parts in one word, with its p; None where none of them has a test.

    All must agree for it to hold; one that disagrees refutes it, which is corrected for their number (Bonferroni).
    """
    parts = list(judgements)
    tested = [part for part in parts if part.decisive and part.p_for is not None and part.p_against is not None]
    if not parts or all(part.difference is None for part in parts):
        return "not run", None
    if not tested:
        return ("not run" if any(part.difference is None for part in parts) else "undecided"), None
    against = min(1.0, len(tested) * min(part.p_against or 0.0 for part in tested))
    holds = max(part.p_for or 0.0 for part in tested) if len(tested) == len(parts) else 1.0
    if against <= ALPHA:
        return "disagrees", against
    if any(part.difference is None for part in parts):
        return "not run", None
    return ("agrees" if holds <= ALPHA else "undecided"), min(holds, against)


def holm(p_of: Mapping[str, float]) -> dict[str, float]:
    """Holm's adjusted p of each of several statements: what is at most `ALPHA` of them stands."""
    adjusted: dict[str, float] = {}
    least = 0.0
    for rank, name in enumerate(sorted(p_of, key=p_of.__getitem__)):
        least = max(least, min(1.0, (len(p_of) - rank) * p_of[name]))
        adjusted[name] = least
    return adjusted


def seeds_needed(judgements: Iterable[Judgement], tests: int = 1) -> int | None:
    """How many seeds would decide a statement, were means and spreads to stay as they are, at `ALPHA` / `tests`.

    None where no spread is known, or where more than `MOST_SEEDS` would be needed.
    """
    parts = [part for part in judgements if part.difference is not None]
    outside = [part for part in parts if not part.inside]
    if outside:
        needed = [_needed(part, ALPHA / tests / len(parts)) for part in outside]
        return min((n for n in needed if n is not None), default=None)
    needed = [_needed(part, ALPHA / tests) for part in parts]
    return None if not needed or None in needed else max(n for n in needed if n is not None)


def t_quantile(degrees: float, level: float = ALPHA) -> float:
    """How many standard errors the half of a two-sided interval of this level has."""
    return float(stdtrit(degrees, 1 - level / 2))


def slack(spread: float, seeds: int) -> float:
    """Half of the interval for one new value beside a mean of `seeds`: t s √(1 + 1/n). ValueError for one seed."""
    if seeds < 2:
        raise ValueError(f"{seeds} seeds: a spread needs two")
    return t_quantile(seeds - 1) * spread * math.sqrt(1 + 1 / seeds)


def _tests(
    mean: float | None, error: float | None, degrees: float, low: float, high: float
) -> tuple[float, float] | None:
    """(p of lying between the bounds, p of lying beyond one), each twice the one-sided one."""
    if mean is None or error is None or not math.isfinite(mean):
        return None
    above, below = _distance(mean - low, error), _distance(high - mean, error)
    agreeing = max(stdtr(degrees, -above), stdtr(degrees, -below))
    disagreeing = min(stdtr(degrees, above), stdtr(degrees, below))
    return min(1.0, 2 * float(agreeing)), min(1.0, 2 * float(disagreeing))


def _distance(margin: float, error: float) -> float:
    """In standard errors; what never varies lies where it lies, on its bound inside it."""
    return margin / error if error else math.copysign(math.inf, margin)


def _needed(part: Judgement, level: float) -> int | None:
    if part.standard_error is None or part.difference is None:
        return None
    spread = part.standard_error * math.sqrt(part.seeds)
    far = (part.difference - part.low, part.high - part.difference)
    margin = min(far) if part.inside else -min(far)
    for seeds in range(2, MOST_SEEDS + 1):
        if margin * math.sqrt(seeds) >= t_quantile(seeds - 1, level) * spread and (margin > 0 or spread == 0):
            return seeds
    return None
