"""How a statement is decided from runs: paired differences over seeds become one finding at one scale.

At paper scale a statement that our runs agree with is "reproduced", one they disagree with "deviates" to a named side.
In miniature it is a shape that agrees or not, never a paper verdict. Too few seeds decide nothing at either scale.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.claims.evidence import BySeed, Spread, View
from analysis.paper.deciding import (
    ALPHA,
    MOST_SEEDS,
    Agreement,
    Judgement,
    Lent,
    holm,
    judge,
    judge_all,
    seeds_needed,
)
from analysis.paper.dimensionless import compared_numbers
from repro.results.read import Result
from repro.spec.config import SCALES
from repro.spec.experiment import Origin, PlannedRun, Side
from repro.words import counted

NOT_RUN, NOT_DECIDABLE = "not run", "not decidable from the paper"
REPRODUCED, UNDECIDED = "reproduced", "undecided (paper)"
DEVIATES: dict[Side, str] = {
    "above": "deviates above", "below": "deviates below", "better": "deviates better", "worse": "deviates worse",
}  # fmt: skip


def verdict_words(scale: str, off: Side) -> Mapping[Agreement, str]:
    """The verdict at a scale for what is agreed; `off` is the side that a disagreement at paper scale lies on."""
    if scale == "paper":
        return {"agrees": REPRODUCED, "disagrees": DEVIATES[off], "undecided": UNDECIDED, "not run": NOT_RUN}
    return {
        "agrees": f"shape agrees ({scale})",
        "disagrees": f"shape disagrees ({scale})",
        "undecided": f"undecided ({scale})",
        "not run": NOT_RUN,
    }


SHAPES = dict.fromkeys(word for scale in SCALES if scale != "paper" for word in verdict_words(scale, "above").values())
VERDICTS = (REPRODUCED, *DEVIATES.values(), UNDECIDED, *SHAPES, NOT_DECIDABLE)


@dataclass(frozen=True)
class Number:
    """One of our numbers, with its standard error where it has one, the seeds behind it, and what it says alone."""

    name: str
    value: float
    error: float | None = None
    seeds: int = 0
    verdict: Agreement | None = None
    p: float | None = None

    @property
    def text(self) -> str:
        """`τ = 10: 0.0012 ± 0.0004 (n=3)`."""
        error = "" if self.error is None else f" ± {self.error:.2g}"
        # A difference that is nothing but rounding is 0, and not -0.
        return f"{self.name}: {round(self.value, 12) + 0.0:.4g}{error}" + (f" (n={self.seeds})" if self.seeds else "")


@dataclass(frozen=True)
class Finding:
    """What one kind of evidence says of a statement."""

    verdict: str
    ours: tuple[Number, ...] = ()
    tolerance: str = ""
    origin: Origin = ""
    runs: tuple[str, ...] = ()
    sentence: str = ""
    judgements: tuple[Judgement, ...] = ()
    p: float | None = None  # of what it says; None where nothing is tested
    reason: str = ""  # what a disagreement in miniature may hang on
    p_holm: float | None = None  # after Holm's correction over the statements of its table
    needed: int | None = None  # seeds that would decide it

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"{self.verdict!r} is no verdict: use one of {', '.join(VERDICTS)}")


def computed(
    holds: bool, off: Side, numbers: Iterable[tuple[str, float]], tolerance: str, origin: Origin, sentence: str
) -> Finding:
    """A finding of the simulator or of an account: nothing in it is left to chance."""
    ours = tuple(Number(name, value) for name, value in numbers)
    return Finding(REPRODUCED if holds else DEVIATES[off], ours, tolerance, origin, (), sentence)


def as_printed(same: int, of: int, off: Side, numbers: Iterable[tuple[str, float]], sentence: str) -> Finding:
    """A finding on cells that are to print as published: every one of them, whatever the item."""
    return computed(same == of, off, numbers, "as printed", "rounding", sentence)


def not_decidable(sentence: str) -> Finding:
    """What the paper's text can't decide, and why."""
    return Finding(NOT_DECIDABLE, sentence=sentence)


@dataclass(frozen=True)
class JudgedDifference:
    """One difference of a statement, judged: how far ours lies on the stated side, or off a parity."""

    name: str
    judgement: Judgement
    results: tuple[Result, ...]
    spread: Spread | None = None  # lent by other rows, and shown

    @property
    def diverged(self) -> bool:
        """Whether one of its runs is worse than guessing: how far off it lands decides nothing."""
        return any(result.diverged for result in self.results)


@dataclass(frozen=True)
class Judge:
    """A way to decide parts: their tolerance with its origin, and the side that a disagreement lies on."""

    off: Side
    tolerance: str
    origin: Origin
    measure: str  # what the numbers are

    def __call__(self, view: View, experiment: str, parts: Iterable[JudgedDifference], note: str = "") -> Finding:
        """The finding of these parts at the view's scale."""
        every = tuple(parts)
        there = tuple(p for p in every if p.results)
        parts = tuple(p for p in there if not p.diverged)
        judgements = tuple(part.judgement for part in parts)
        agreement, p = judge_all(judgements)
        numbers = tuple(map(_number, (part for part in parts if part.judgement.difference is not None)))
        if not numbers and len(parts) == len(there):
            return Finding(NOT_RUN, sentence=" ".join(filter(None, (_absent(view, experiment, every), note))))
        runs = tuple(dict.fromkeys(r.run.run_id for p in there for r in p.results if r.summary is not None))
        sentence = " ".join(filter(None, (self.measure, note, *_remarks(view, there))))
        reason = why(r.run for part in parts for r in part.results)
        return Finding(
            verdict_words(view.scale, self.off)[agreement if numbers else "undecided"],
            numbers,
            self.tolerance,
            self.origin,
            runs,
            sentence,
            judgements,
            p,
            reason if view.scale != "paper" else "",
        )


def _number(part: JudgedDifference) -> Number:
    j = part.judgement
    assert j.difference is not None
    return Number(part.name, j.difference, j.standard_error, j.seeds, j.verdict, j.p)


def order_part(
    view: View,
    experiment: str,
    name: str,
    rows: Sequence[str],
    combine: Callable[..., float],
    spreads: float | None = None,
) -> JudgedDifference:
    """Whether `combine(losses of the rows) >= 0`, one value a seed.

    `spreads` is how many times the spread of one paired difference a single value has; None where that isn't known.
    """
    return bounded_part(view, experiment, name, rows, combine, 0.0, spreads=spreads)


def bounded_part(
    view: View,
    experiment: str,
    name: str,
    rows: Sequence[str],
    combine: Callable[..., float],
    low: float = -math.inf,
    high: float = math.inf,
    spreads: float | None = None,
) -> JudgedDifference:
    """Whether `combine(losses of the rows)` lies from `low` to `high`, one value a seed; `spreads` as for an order."""
    values, known, results = _values(view, experiment, rows, combine)
    known = known if spreads is not None else None
    lent = Lent(known.value * spreads, known.degrees) if known and spreads is not None else None
    return JudgedDifference(name, judge(values, low, high, lent), results, known)


def corrected(findings: Mapping[str, Finding], scale: str) -> dict[str, Finding]:
    """The findings on one table by Holm's correction over those of its statements that have a test."""
    ps = {name: finding.p for name, finding in findings.items() if finding.p is not None}
    adjusted, words = holm(ps), verdict_words(scale, "above")
    tested = []
    for name, finding in findings.items():
        p = adjusted.get(name)
        decided = finding.verdict not in (words["undecided"], words["not run"])
        verdict = words["undecided"] if p is not None and decided and p > ALPHA else finding.verdict
        tested.append((name, replace(finding, verdict=verdict, p_holm=p)))
    return {name: _completed(finding, scale, max(len(ps), 1)) for name, finding in tested}


def _completed(finding: Finding, scale: str, tests: int) -> Finding:
    """With the sentence that its verdict asks for: p, the seeds that would decide it, why it may disagree."""
    words = verdict_words(scale, "above")
    said = [finding.sentence]
    if finding.p is not None and finding.p_holm is not None:
        said.append(f"p = {finding.p:.2g}, by Holm over {counted(tests, 'statement')} {finding.p_holm:.2g}.")
    needed = None
    if finding.verdict == words["undecided"] and finding.judgements:
        needed = seeds_needed(finding.judgements, tests)
        said.append(_needed_sentence(finding.judgements, needed))
    if finding.verdict == words["disagrees"]:
        said.append(finding.reason)
    return replace(finding, sentence=" ".join(filter(None, said)), needed=needed)


def _needed_sentence(judgements: Sequence[Judgement], needed: int | None) -> str:
    if needed is not None:
        return f"About {counted(needed, 'seed')} would decide it, were mean and spread to stay as they are."
    if any(j.standard_error is None for j in judgements if j.difference is not None):
        return "No spread is known: it needs 2 seeds at least."
    return f"More than {MOST_SEEDS:,} seeds would be needed, were mean and spread to stay as they are."


def _values(
    view: View, experiment: str, rows: Sequence[str], combine: Callable[..., float]
) -> tuple[tuple[float, ...], Spread | None, tuple[Result, ...]]:
    """One value for each seed that all rows have, the spread lent by like rows to a single one, the results."""
    by_row = [view.row(experiment, row) for row in rows]
    if not by_row or not all(by_row):
        return (), None, ()
    losses: list[BySeed] = [view.losses(experiment, row) for row in rows]
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in losses)))
    values = tuple(combine(*(by_seed[seed] for by_seed in losses)) for seed in seeds)
    known = view.spread(*(results[0].run for results in by_row)) if len(values) == 1 and len(rows) == 2 else None
    return values, known, tuple(result for row in by_row for result in row)


def _remarks(view: View, parts: Sequence[JudgedDifference]) -> Iterator[str]:
    spreads = dict.fromkeys(p.spread.sentence for p in parts if p.spread)
    yield from (f"{sentence}." for sentence in spreads)
    diverged = [part.name for part in parts if part.diverged]
    if diverged:
        yield f"Left out, as a run of it diverged: {'; '.join(diverged)}."
    if any(p.judgement.seeds == 1 and p.judgement.standard_error is None for p in parts):
        yield "One seed, and no spread is known."


def _absent(view: View, experiment: str, parts: Sequence[JudgedDifference]) -> str:
    planned = {r.run.run_id: r for p in parts for r in p.results}
    if not planned:
        return f"{experiment} has no such rows at scale {view.scale}."
    done = sum(r.summary is not None for r in planned.values())
    return f"{done} of {len(planned)} runs are there." if done else ""


def why(runs: Iterable[PlannedRun]) -> str:
    """The dimensionless numbers on which a miniature's disagreement may hang, ours beside the paper's."""
    lines = compared_numbers(run.config for run in runs)
    return f"It may hang on: {'; '.join(lines)}." if lines else ""
