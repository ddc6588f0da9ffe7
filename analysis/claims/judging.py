"""How a statement is decided from runs: paired differences over seeds become one finding at one scale.

At paper scale a statement that our runs agree with is "reproduced", one they disagree with "deviates" to a named side.
In miniature it is a shape that agrees or not, never a paper verdict. Too few seeds decide nothing at either scale.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from analysis.claims.evidence import BySeed, Spread, View
from analysis.paper.published import Claim, Published, judge_all, judge_order, judge_parity, verdict
from analysis.tables.rows import Row
from analysis.tables.scores import difference
from experiments.registry import load
from repro.evaluation.tasks import SHOWN
from repro.results.read import Result
from repro.spec.config import RunConfig
from repro.spec.experiment import PlannedRun, expand, rounds
from repro.words import span

Side = Literal["above", "below", "better", "worse"]
Origin = Literal["", "seed spread", "binomial error", "rounding", "grid bin", "stated in the text", "our reading"]
NOT_RUN, NOT_DECIDABLE = "not run", "not decidable from the paper"
REPRODUCED, UNDECIDED = "reproduced", "undecided (paper)"
DEVIATES: dict[Side, str] = {
    "above": "deviates above", "below": "deviates below", "better": "deviates better", "worse": "deviates worse",
}  # fmt: skip
MINI = {
    "agrees": "shape agrees (mini)",
    "disagrees": "shape disagrees (mini)",
    "undecided": "undecided (mini)",
    "not run": NOT_RUN,
}
SCORED = f"{SHOWN} of the second less that of the first, points, paired by question."
VERDICTS = (REPRODUCED, *DEVIATES.values(), UNDECIDED, *MINI.values(), NOT_DECIDABLE)


@dataclass(frozen=True)
class Number:
    """One of our numbers, with its standard error where it has one and the seeds behind it."""

    name: str
    value: float
    error: float | None = None
    seeds: int = 0

    @property
    def text(self) -> str:
        """`τ = 10: 0.0012 ± 0.0004 (n=3)`."""
        error = "" if self.error is None else f" ± {self.error:.2g}"
        return f"{self.name}: {self.value:.4g}{error}" + (f" (n={self.seeds})" if self.seeds else "")


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


def told(sentence: str) -> Finding:
    """What the paper's text can't decide, and why."""
    return Finding(NOT_DECIDABLE, sentence=sentence)


@dataclass(frozen=True)
class Part:
    """One difference of a statement: `claim.difference` is how far ours lies on the stated side, or off a parity."""

    name: str
    claim: Claim
    results: tuple[Result, ...]
    spread: Spread | None = None  # known from elsewhere and used


@dataclass(frozen=True)
class Judge:
    """A way to decide parts: their tolerance with its origin, and the side that a disagreement lies on."""

    off: Side
    tolerance: str
    origin: Origin
    measure: str  # what the numbers are

    def __call__(self, view: View, experiment: str, parts: Iterable[Part], note: str = "") -> Finding:
        """The finding of these parts at the view's scale."""
        every = tuple(parts)
        parts = tuple(p for p in every if p.results)
        said = judge_all(part.claim for part in parts)
        if view.scale == "paper":
            words = {"agrees": REPRODUCED, "disagrees": DEVIATES[self.off], "undecided": UNDECIDED, "not run": NOT_RUN}
        else:
            words = MINI
        numbers = tuple(
            Number(p.name, p.claim.difference, p.claim.standard_error, p.claim.seeds)
            for p in parts
            if p.claim.difference is not None
        )
        if not numbers:
            return Finding(NOT_RUN, sentence=note or _absent(view, experiment, every))
        runs = tuple(dict.fromkeys(r.run.run_id for p in parts for r in p.results if r.summary is not None))
        sentence = " ".join(filter(None, (self.measure, note, *_remarks(view, experiment, parts, said))))
        return Finding(words[said], numbers, self.tolerance, self.origin, runs, sentence)


def order_part(
    view: View, experiment: str, name: str, rows: Sequence[str], combine: Callable[..., float], spreads: float = 1.0
) -> Part:
    """The claim `combine(losses of the rows) >= 0`, one value a seed.

    `spreads` is how many times the spread of one paired difference a single value has.
    """
    values, known, results = _values(view, experiment, rows, combine)
    claim = judge_order(values, known.value * spreads if known else None)
    return Part(name, claim, results, known)


def parity_part(
    view: View,
    experiment: str,
    name: str,
    rows: Sequence[str],
    combine: Callable[..., float],
    tolerance: float,
    spreads: float = 1.0,
) -> Part:
    """The claim `|combine(losses of the rows)| <= tolerance`."""
    values, known, results = _values(view, experiment, rows, combine)
    claim = judge_parity(values, tolerance, known.value * spreads if known else None)
    return Part(name, claim, results, known)


def ordered(
    view: View, experiment: str, pairs: Iterable[tuple[str, str, str]], off: Side = "worse", note: str = ""
) -> Finding:
    """The loss of the first row of each (name, low, high) is at most that of the second."""
    parts = [order_part(view, experiment, name, (high, low), lambda h, lo: h - lo) for name, low, high in pairs]
    return Judge(off, "0", "seed spread", "Loss of the second less that of the first.")(view, experiment, parts, note)


def level(
    view: View,
    experiment: str,
    pairs: Iterable[tuple[str, str, str]],
    tolerance: float,
    origin: Origin = "our reading",
    note: str = "",
) -> Finding:
    """The losses of each (name, one, other) differ by at most `tolerance` nats."""
    parts = [parity_part(view, experiment, name, rows, lambda a, b: a - b, tolerance) for name, *rows in pairs]
    judge = Judge("above", f"{tolerance:g}", origin, "Loss of the first less that of the second.")
    return judge(view, experiment, parts, note)


def at_most(
    view: View,
    experiment: str,
    pairs: Iterable[tuple[str, str, str]],
    percent: float,
    origin: Origin = "stated in the text",
    note: str = "",
) -> Finding:
    """The loss of each (name, base, row) is at most `percent` above the base's; the numbers are what is left of it."""
    share = percent / 100
    parts = [
        order_part(view, experiment, name, (base, row), lambda b, r: share * b - (r - b)) for name, base, row in pairs
    ]
    measure = f"{percent:g} % of the base's loss less the increase over it, nats."
    return Judge("above", f"{percent:g} %", origin, measure)(view, experiment, parts, note)


def against_cells(view: View, experiment: str, cells: Iterable[tuple[str, Published]], note: str = "") -> Finding:
    """Mean losses of rows at paper scale, each held against its published cell, 2 s √(1 + 1/n) around it."""
    numbers, said, runs, tolerances = [], [], [], []
    for name, printed in cells:
        row = Row((name,), name, view.row(experiment, name), {})
        if row.mean is None:
            return Finding(NOT_RUN, sentence=note)
        found = verdict(printed, row.mean, row.tolerance or 0.0, view.scale)
        said.append(UNDECIDED if row.tolerance is None and found != REPRODUCED else found)
        error = None if row.spread is None else row.spread / len(row.losses) ** 0.5
        numbers.append(Number(name, row.mean, error, len(row.losses)))
        runs += row.run_ids
        tolerances.append(f"{row.tolerance or 0.0:.2g}")
    worst = next((v for v in said if v != REPRODUCED), REPRODUCED)
    return Finding(
        worst,
        tuple(numbers),
        ", ".join(tolerances),
        "seed spread",
        tuple(runs),
        f"Mean losses, each beside its printed one. {note}".strip(),
    )


def scores_level(
    view: View,
    experiment: str,
    columns: Sequence[str],
    pairs: Iterable[tuple[str, str, str]],
    tolerance: float,
    note: str = "",
) -> Finding:
    """The accuracies of each (name, one, other) differ by at most `tolerance` points, question by question."""
    parts = _scored(view, experiment, columns, pairs, lambda d, e: judge_parity(d, tolerance, e))
    return Judge("above", f"{tolerance:g} points", "binomial error", SCORED)(view, experiment, parts, note)


def scores_ordered(
    view: View, experiment: str, columns: Sequence[str], pairs: Iterable[tuple[str, str, str]], note: str = ""
) -> Finding:
    """The accuracy of the second of each (name, low, high) is at least the first's."""
    parts = _scored(view, experiment, columns, pairs, judge_order)
    return Judge("worse", "0 points", "binomial error", SCORED)(view, experiment, parts, note)


def _scored(
    view: View,
    experiment: str,
    columns: Sequence[str],
    pairs: Iterable[tuple[str, str, str]],
    judge: Callable[[Sequence[float], float | None], Claim],
) -> Iterator[Part]:
    for (name, *rows), column in itertools.product(pairs, columns):
        found = [view.row(experiment, row) for row in rows]
        scores = [Row((row,), row, results, {}).score(column, SHOWN) for row, results in zip(rows, found, strict=True)]
        claim = judge_order(())
        if scores[0] is not None and scores[1] is not None:
            gap = difference(scores[1], scores[0])
            error = None if gap.standard_error is None else 100 * gap.standard_error
            claim = judge((100 * gap.mean,), error)
        yield Part(f"{column}, {name}" if name else column, claim, tuple(itertools.chain(*found)))


def _values(
    view: View, experiment: str, rows: Sequence[str], combine: Callable[..., float]
) -> tuple[tuple[float, ...], Spread | None, tuple[Result, ...]]:
    """One value for each seed that all rows have, the spread known from elsewhere if it is needed, the results."""
    found = [view.row(experiment, row) for row in rows]
    if not all(found):
        return (), None, ()
    losses: list[BySeed] = [view.losses(experiment, row) for row in rows]
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in losses)))
    values = tuple(combine(*(by_seed[seed] for by_seed in losses)) for seed in seeds)
    known = view.spread(*(results[0].run for results in found)) if len(values) == 1 else None
    return values, known, tuple(result for row in found for result in row)


def _remarks(view: View, experiment: str, parts: Sequence[Part], said: str) -> Iterator[str]:
    spreads = dict.fromkeys(p.spread.sentence for p in parts if p.spread)
    yield from (f"{sentence}." for sentence in spreads)
    if said == "undecided" and any(p.claim.seeds == 1 and p.claim.standard_error is None for p in parts):
        yield "One seed, and no spread is known."
    if said == "disagrees" and view.scale == "mini":
        yield why([r.run for p in parts for r in p.results], experiment)


def _absent(view: View, experiment: str, parts: Sequence[Part]) -> str:
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
