"""Downstream scores over seeds, and whether two methods differ by more than the questions' sampling error.

Only like is put together: the same questions, split, prompt, metric and kind of parameters. Every run answers the same
questions, so a difference between methods is taken question by question, which is sharper than two separate errors.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.paper.deciding import t_quantile
from repro.errors import UserError

LIKE = (
    "task",
    "split",
    "prompt",
    "questions",
    "of",
    "limit",
    "seed",
    "questions_digest",
)  # what makes two scores alike


@dataclass(frozen=True)
class Score:
    """One method on one task, as shares of 1. `answers` holds, for each question, the share of seeds that got it."""

    metric: str
    facts: tuple[Any, ...]
    answers: tuple[float, ...]
    by_seed: tuple[float, ...]
    right: Mapping[int, tuple[float, ...]]  # by seed, the answers

    def of(self, seeds: Iterable[int]) -> tuple[float, ...]:
        """For each question, the share of these seeds that got it."""
        return _shares([self.right[seed] for seed in seeds])

    @property
    def mean(self) -> float:
        """The share of right answers, over questions and seeds."""
        return statistics.fmean(self.answers)

    @property
    def standard_error(self) -> float | None:
        """The mean's, over questions drawn like these; None for one question. More seeds don't draw more questions."""
        return _error(self.answers)

    @property
    def spread(self) -> float | None:
        """Standard deviation over the seeds; None with fewer than two."""
        return statistics.stdev(self.by_seed) if len(self.by_seed) > 1 else None

    def fact(self, name: str) -> Any:
        """One of `LIKE`, or "parameters"."""
        return self.facts[(*LIKE, "parameters").index(name)]

    @property
    def partial(self) -> bool:
        """Whether it is of some of the questions only: then it is held against nothing published."""
        return self.fact("questions") < self.fact("of")

    @property
    def asked(self) -> str:
        """`1,000 of 10,042 validation questions`."""
        count, total = self.fact("questions"), self.fact("of")
        return f"{count:,}{f' of {total:,}' if count < total else ''} {self.fact('split')} questions"


@dataclass(frozen=True)
class Difference:
    """Score − score of another method on the same questions, paired.

    `standard_error` is of questions and seeds together, of the questions alone for one seed; None for one question.
    `seeds` is how many both have.
    """

    mean: float
    standard_error: float | None
    seeds: int
    degrees: float

    @property
    def inside(self) -> bool:
        """Whether the 95 % t interval holds 0: nothing is said by it."""
        return self.standard_error is None or abs(self.mean) <= t_quantile(self.degrees) * self.standard_error


def gather_scores(
    evaluations: Iterable[dict[str, Any]], column: str, metric: str, seeds: Sequence[int] | None = None
) -> Score | None:
    """The score of a column of the paper from the evaluations of one method's seeds (0, 1, … where none are named).

    None without any.

    UserError when they are not of the same questions.
    """
    evaluations = list(evaluations)
    numbered = zip(range(len(evaluations)) if seeds is None else seeds, evaluations, strict=True)
    asked = [(seed, e, score) for seed, e in numbered for score in e["scores"] if score["column"] == column]
    if not asked:
        return None
    facts = {(*(score[name] for name in LIKE), e["parameters"]) for _, e, score in asked}
    if len(facts) > 1:
        ids = ", ".join(e["run_id"] for _, e, _ in asked)
        raise UserError(f"{column} was asked in different ways of {ids}: delete their evals folders, evaluate again.")
    right = {seed: _answers(score["right"][metric], score["questions"]) for seed, _, score in asked}
    shares = tuple(score[metric] for _, _, score in asked)
    return Score(metric, facts.pop(), _shares(list(right.values())), shares, right)


def difference(score: Score, other: Score) -> Difference:
    """The paired difference of two methods over the seeds that both have. ValueError for scores that are not alike.

    The variance of questions and that of seeds are added, their degrees of freedom by Satterthwaite.
    """
    if (score.metric, score.facts[: len(LIKE)]) != (other.metric, other.facts[: len(LIKE)]):
        raise ValueError(f"{score.metric} on {score.asked} is not to be compared with {other.metric} on {other.asked}")
    shared = sorted(score.right.keys() & other.right.keys())
    answers = (score.of(shared), other.of(shared)) if shared else (score.answers, other.answers)
    paired = tuple(a - b for a, b in zip(*answers, strict=True))
    gaps = tuple(statistics.fmean(score.right[s]) - statistics.fmean(other.right[s]) for s in shared)
    terms = [(error, len(values) - 1) for values in (paired, gaps) if (error := _error(values)) is not None]
    mean = statistics.fmean(paired)
    if not terms or len(paired) < 2:
        return Difference(mean, None, len(shared), 1)
    variance = math.fsum(error**2 for error, _ in terms)
    fourth = math.fsum(error**4 / degrees for error, degrees in terms)
    return Difference(mean, math.sqrt(variance), len(shared), variance**2 / fourth if fourth else terms[0][1])


def _shares(right: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(map(statistics.fmean, zip(*right, strict=True))) if len(right) > 1 else right[0]


def _error(values: tuple[float, ...]) -> float | None:
    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (count - 1) / count)


def _answers(bits: str, count: int) -> tuple[float, ...]:
    whole = "".join(f"{byte:08b}" for byte in bytes.fromhex(bits))
    return tuple(float(bit) for bit in whole[:count])
