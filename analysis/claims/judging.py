"""How a statement is decided from runs: paired differences over seeds become one finding at one scale.

At paper scale a statement that our runs agree with is "reproduced", one they disagree with "deviates" to a named side.
In miniature it is a shape that agrees or not, never a paper verdict. Too few seeds decide nothing at either scale.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from analysis.claims.evidence import BySeed, Spread, View
from analysis.paper.published import Agreement, Judgement, judge_all, judge_order, judge_parity
from experiments.registry import load
from repro.results.read import Result
from repro.spec.config import SCALES, RunConfig
from repro.spec.experiment import Origin, PlannedRun, Side, expand, rounds
from repro.words import span

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

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"{self.verdict!r} is no verdict: use one of {', '.join(VERDICTS)}")


def computed(
    holds: bool, off: Side, numbers: Iterable[tuple[str, float]], tolerance: str, origin: Origin, sentence: str
) -> Finding:
    """A finding of the simulator or of an account: nothing in it is left to chance."""
    ours = tuple(Number(name, value) for name, value in numbers)
    return Finding(REPRODUCED if holds else DEVIATES[off], ours, tolerance, origin, (), sentence)


def not_decidable(sentence: str) -> Finding:
    """What the paper's text can't decide, and why."""
    return Finding(NOT_DECIDABLE, sentence=sentence)


@dataclass(frozen=True)
class JudgedDifference:
    """One difference of a statement, judged: how far ours lies on the stated side, or off a parity."""

    name: str
    judgement: Judgement
    results: tuple[Result, ...]
    spread: Spread | None = None  # known from elsewhere and used


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
        parts = tuple(p for p in every if p.results)
        agreement = judge_all(part.judgement for part in parts)
        numbers = tuple(
            Number(p.name, p.judgement.difference, p.judgement.standard_error, p.judgement.seeds, p.judgement.verdict)
            for p in parts
            if p.judgement.difference is not None
        )
        if not numbers:
            return Finding(NOT_RUN, sentence=" ".join(filter(None, (_absent(view, experiment, every), note))))
        runs = tuple(dict.fromkeys(r.run.run_id for p in parts for r in p.results if r.summary is not None))
        sentence = " ".join(filter(None, (self.measure, note, *_remarks(view, experiment, parts, agreement))))
        return Finding(
            verdict_words(view.scale, self.off)[agreement], numbers, self.tolerance, self.origin, runs, sentence
        )


def order_part(
    view: View, experiment: str, name: str, rows: Sequence[str], combine: Callable[..., float], spreads: float = 1.0
) -> JudgedDifference:
    """Whether `combine(losses of the rows) >= 0`, one value a seed.

    `spreads` is how many times the spread of one paired difference a single value has.
    """
    values, known, results = _values(view, experiment, rows, combine)
    judgement = judge_order(values, known.value * spreads if known else None)
    return JudgedDifference(name, judgement, results, known)


def parity_part(
    view: View,
    experiment: str,
    name: str,
    rows: Sequence[str],
    combine: Callable[..., float],
    tolerance: float,
    spreads: float = 1.0,
) -> JudgedDifference:
    """Whether `|combine(losses of the rows)| <= tolerance`, one value a seed; `spreads` as for an order."""
    values, known, results = _values(view, experiment, rows, combine)
    judgement = judge_parity(values, tolerance, known.value * spreads if known else None)
    return JudgedDifference(name, judgement, results, known)


def _values(
    view: View, experiment: str, rows: Sequence[str], combine: Callable[..., float]
) -> tuple[tuple[float, ...], Spread | None, tuple[Result, ...]]:
    """One value for each seed that all rows have, the spread known from elsewhere if it is needed, the results."""
    by_row = [view.row(experiment, row) for row in rows]
    if not by_row or not all(by_row):
        return (), None, ()
    losses: list[BySeed] = [view.losses(experiment, row) for row in rows]
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in losses)))
    values = tuple(combine(*(by_seed[seed] for by_seed in losses)) for seed in seeds)
    known = view.spread(*(results[0].run for results in by_row)) if len(values) == 1 else None
    return values, known, tuple(result for row in by_row for result in row)


def _remarks(view: View, experiment: str, parts: Sequence[JudgedDifference], agreement: Agreement) -> Iterator[str]:
    spreads = dict.fromkeys(p.spread.sentence for p in parts if p.spread)
    yield from (f"{sentence}." for sentence in spreads)
    if agreement == "undecided" and any(p.judgement.seeds == 1 and p.judgement.standard_error is None for p in parts):
        yield "One seed, and no spread is known."
    if agreement == "disagrees" and view.scale == "mini":
        yield why([r.run for p in parts for r in p.results], experiment)


def _absent(view: View, experiment: str, parts: Sequence[JudgedDifference]) -> str:
    planned = {r.run.run_id: r for p in parts for r in p.results}
    if not planned:
        return f"{experiment} has no such rows at scale {view.scale}."
    done = sum(r.summary is not None for r in planned.values())
    return f"{done} of {len(planned)} runs are there." if done else ""


def why(runs: Iterable[PlannedRun], experiment: str) -> str:
    """What differs between these miniatures and the paper's runs of the same rows, in numbers."""
    ours = list(runs)
    rows = {run.paper_row for run in ours}
    theirs = [run for run in expand(load(experiment), "paper") if run.paper_row in rows]
    facts = []
    if any(run.config.sync for run in ours):
        facts.append(f"{_span(ours, rounds)} rounds of H steps where the paper's have {_span(theirs, rounds)}")
    facts += [
        f"{_span(ours, lambda c: c.steps)} steps where they have {_span(theirs, lambda c: c.steps)}",
        f"{_span(ours, lambda c: c.model.params_by_rule)} parameters where they have "
        f"{_span(theirs, lambda c: c.model.params_by_rule)}",
    ]
    return f"Why it may disagree: these runs have {'; '.join(facts)}."


def _span(runs: Iterable[PlannedRun], count: Callable[[RunConfig], int]) -> str:
    return span(filter(None, (count(run.config) for run in runs)))
