"""Downstream scores over seeds, and whether two methods differ by more than the questions' sampling error.

Only like is put together: the same questions, split, prompt, metric and kind of parameters. Every run answers the same
questions, so a difference between methods is taken question by question, which is sharper than two separate errors.
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

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
    """Score − score of another method on the same questions, paired; `standard_error` None for one question."""

    mean: float
    standard_error: float | None

    @property
    def inside(self) -> bool:
        """Within two standard errors: nothing is said by it."""
        return self.standard_error is None or abs(self.mean) <= 2 * self.standard_error


def gather_scores(evaluations: Iterable[dict[str, Any]], column: str, metric: str) -> Score | None:
    """The score of a column of the paper from the evaluations of one method's seeds; None without any.

    UserError when they are not of the same questions.
    """
    pairs = [(result, score) for result in evaluations for score in result["scores"] if score["column"] == column]
    if not pairs:
        return None
    facts = {(*(score[name] for name in LIKE), result["parameters"]) for result, score in pairs}
    if len(facts) > 1:
        ids = ", ".join(result["run_id"] for result, _ in pairs)
        raise UserError(f"{column} was asked in different ways of {ids}: delete their evals folders, evaluate again.")
    right = [_answers(score["right"][metric], score["questions"]) for _, score in pairs]
    answers = tuple(statistics.fmean(each) for each in zip(*right, strict=True)) if len(right) > 1 else right[0]
    return Score(metric, facts.pop(), answers, tuple(score[metric] for _, score in pairs))


def difference(score: Score, other: Score) -> Difference:
    """The paired difference of two methods. ValueError for scores that are not alike."""
    if (score.metric, score.facts[: len(LIKE)]) != (other.metric, other.facts[: len(LIKE)]):
        raise ValueError(f"{score.metric} on {score.asked} is not to be compared with {other.metric} on {other.asked}")
    paired = tuple(a - b for a, b in zip(score.answers, other.answers, strict=True))
    return Difference(statistics.fmean(paired), _error(paired))


def _error(values: tuple[float, ...]) -> float | None:
    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (count - 1) / count)


def _answers(bits: str, count: int) -> tuple[float, ...]:
    whole = "".join(f"{byte:08b}" for byte in bytes.fromhex(bits))
    return tuple(float(bit) for bit in whole[:count])
