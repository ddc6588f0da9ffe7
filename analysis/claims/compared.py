"""Claims that are data: rows of a spec compared in pairs (`repro.spec.experiment.Claim`), or with published cells.

What each kind of claim asks of a pair stands here once; a statement that needs more arithmetic than that has a function
in a module beside.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from analysis.claims.evidence import View
from analysis.claims.judging import (
    NOT_RUN,
    REPRODUCED,
    UNDECIDED,
    Finding,
    Judge,
    JudgedDifference,
    Number,
    bounded_part,
)
from analysis.paper import published
from analysis.paper.deciding import Judgement
from analysis.paper.published import Published, verdict
from analysis.paper.statements import quoted
from analysis.tables.rows import LABELS, LOSS, TableRow
from analysis.tables.score_statistics import difference
from experiments.registry import paper_of
from repro.evaluation.tasks import TABLE_METRIC
from repro.spec.experiment import Claim, Experiment, Kind, Pair, Points, Side


class Way(NamedTuple):
    """How a kind of claim is put in words: its tolerance, {0}, and the {first} and {second} row of its pairs."""

    off: Side  # where ours lies when it fails
    tolerance: str
    measure: str  # what the numbers are


LESS = "Loss of {second} less that of {first}."
POINTS = f"{TABLE_METRIC} of {{second}} less that of {{first}}, points, paired by question."
WAYS: dict[Kind, Way] = {
    "order": Way("worse", "{0}", LESS),
    "slight": Way("worse", "0 to {0}", LESS),
    "parity": Way("above", "{0}", LESS),
    "added": Way("above", "{0}", "{0} less the loss that {second} adds to that of {first}."),
    "percent": Way("above", "{0} %", "{0} % of the loss of {first} less what {second} adds to it, nats."),
    "score slight": Way("worse", "0 to {0} points", POINTS),
    "score parity": Way("above", "{0} points", POINTS),
}


def compared(view: View, experiment: Experiment, claim: Claim) -> Finding:
    """What the runs of an experiment say of one of its claims, at the view's scale."""
    if claim.cells and view.scale == "paper":
        return _against_cells(view, experiment, claim)
    pairs = _pairs(view, experiment.name, claim)
    parts = [part for pair in pairs for part in _parts(view, experiment, claim, pair)]
    way, allowed = WAYS[claim.kind], f"{_tolerance(experiment.name, claim):g}"
    first, second = _sides(pairs)
    measure = way.measure.format(allowed, first=first, second=second)
    judge = Judge(claim.off or way.off, way.tolerance.format(allowed), claim.origin, measure)
    note = " ".join(filter(None, (claim.note, _printed(experiment, claim))))
    return judge(view, experiment.name, parts, note)


def printed(cells: Iterable[Published], pairs: Iterable[Pair], at: Points = "all") -> str:
    """A sentence: these comparisons in the paper's own cells, which decide nothing here; "" where it prints none."""
    measured = [cell for cell in cells if cell.column == LOSS and cell.value is not None]
    digits = max((len(cell.text.partition(".")[2]) for cell in measured), default=0)
    losses = {cell.row: cell.value for cell in measured if cell.value is not None}
    chosen = _at([pair for pair in pairs if pair.first in losses and pair.second in losses], at)
    gaps = [f"{losses[pair.second] - losses[pair.first]:+.{digits}f} ({pair.label})" for pair in chosen]
    first, second = _sides(chosen)
    return f"The paper's own cells, {second} less {first}: {', '.join(gaps)}." if gaps else ""


def _sides(pairs: Sequence[Pair]) -> tuple[str, str]:
    """What stands first and second, each where it is the same in every pair: a row's labels but for the point's."""
    firsts, seconds = {_names(pair)[0] for pair in pairs}, {_names(pair)[1] for pair in pairs}
    return (
        firsts.pop() if len(firsts) == 1 else "the first",
        seconds.pop() if len(seconds) == 1 else "the second",
    )


def _names(pair: Pair) -> tuple[str, str]:
    rows = [row.split(LABELS) for row in (pair.first, pair.second)]
    shared = pair.at if all(pair.at in labels for labels in rows) else ""
    first, second = (", ".join(label for label in labels if label != shared) for labels in rows)
    return first, second


def _tolerance(experiment: str, claim: Claim) -> float:
    if not isinstance(claim.tolerance, str):
        return claim.tolerance
    allowed = quoted(claim.tolerance, paper_of(experiment).name).value
    if allowed is None:
        raise ValueError(f"claim {claim.statement!r}: the paper prints no number at {claim.tolerance}")
    return allowed


def _pairs(view: View, experiment: str, claim: Claim) -> list[Pair]:
    """Those that a scale has, and in which two things are compared: rows may come to one run in miniature."""
    there = []
    for pair in claim.pairs:
        rows = [view.row(experiment, row) for row in (pair.first, pair.second)]
        if all(rows) and len({(row[0].run.run_id, row[0].run.parameters) for row in rows}) == 2:
            there.append(pair)
    return _at(there, claim.at)


def _at(pairs: list[Pair], points: Points) -> list[Pair]:
    if points == "all" or not pairs:
        return pairs
    every = list(dict.fromkeys(pair.at for pair in pairs))
    return [pair for pair in pairs if pair.at == every[0 if points == "first" else -1]]


def _parts(view: View, experiment: Experiment, claim: Claim, pair: Pair) -> Iterator[JudgedDifference]:
    name, rows, allowed = (
        _name(view, experiment.name, pair),
        (pair.first, pair.second),
        _tolerance(experiment.name, claim),
    )
    match claim.kind:
        case "order":
            yield bounded_part(view, experiment.name, name, rows, lambda a, b: b - a, 0.0, spreads=1.0)
        case "slight":
            yield bounded_part(view, experiment.name, name, rows, lambda a, b: b - a, 0.0, allowed, spreads=1.0)
        case "parity":
            yield bounded_part(view, experiment.name, name, rows, lambda a, b: b - a, -allowed, allowed, spreads=1.0)
        case "added":
            yield bounded_part(view, experiment.name, name, rows, lambda a, b: allowed - (b - a), 0.0, spreads=1.0)
        case "percent":
            share = allowed / 100
            yield bounded_part(view, experiment.name, name, rows, lambda a, b: share * a - (b - a), 0.0, spreads=1.0)
        case "score slight" | "score parity":
            yield from (_score(view, experiment.name, claim, pair, column, name) for column in claim.scores)


def _score(view: View, experiment: str, claim: Claim, pair: Pair, column: str, name: str) -> JudgedDifference:
    """The accuracies of one column, question by question and seed by seed."""
    results = [view.row(experiment, row) for row in (pair.first, pair.second)]
    first, second = (TableRow((), "", row, {}).score(column, TABLE_METRIC) for row in results)
    judgement = Judgement()
    if first is not None and second is not None:
        gap, allowed = difference(second, first), _tolerance(experiment, claim)
        error = None if gap.standard_error is None else 100 * gap.standard_error
        low = 0.0 if claim.kind == "score slight" else -allowed
        judgement = Judgement(100 * gap.mean, error, gap.seeds, gap.degrees, low, allowed, decisive=gap.seeds > 1)
    return JudgedDifference(", ".join(filter(None, (column, name))), judgement, (*results[0], *results[1]))


def _name(view: View, experiment: str, pair: Pair) -> str:
    """What tells a pair from the others, a label of the paper's as it is at our scale."""
    run = view.row(experiment, pair.second)[0].run
    ours = dict(zip(run.paper_row.split(LABELS), run.labels, strict=False))
    return replace(pair, at=ours.get(pair.at, pair.at)).label


def _printed(experiment: Experiment, claim: Claim) -> str:
    return "" if claim.scores else printed(published.cells_of(experiment), claim.pairs, claim.at)


def _against_cells(view: View, experiment: Experiment, claim: Claim) -> Finding:
    """Mean losses at paper scale, each held against its published cell, t s √(1 + 1/n) around it."""
    numbers, verdicts, runs, tolerances = [], [], [], []
    for name, reference in claim.cells:
        row = TableRow((name,), name, view.row(experiment.name, name), {})
        if row.mean is None:
            return Finding(NOT_RUN, sentence=claim.note)
        word = verdict(quoted(reference, paper_of(experiment.name).name), row.mean, row.tolerance or 0.0, view.scale)
        verdicts.append(UNDECIDED if row.tolerance is None and word != REPRODUCED else word)
        error = None if row.spread is None else row.spread / len(row.losses) ** 0.5
        numbers.append(Number(name, row.mean, error, len(row.losses)))
        runs += row.run_ids
        tolerances.append(f"{row.tolerance or 0.0:.2g}")
    worst = next((word for word in verdicts if word != REPRODUCED), REPRODUCED)
    sentence = f"Mean losses, each beside its printed one. {claim.note}".strip()
    return Finding(worst, tuple(numbers), ", ".join(tolerances), "seed spread", tuple(runs), sentence)
