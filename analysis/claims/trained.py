"""Statements that trained runs decide: as the claim that a spec holds as data, or by the function that computes it.

The same judgements stand on the scoreboard, from all the runs there are, and under a table, from the runs in it alone:
there a row of one seed decides nothing, so that a table says less than the scoreboard, never the contrary.
"""

from collections.abc import Callable, Iterator, Sequence

from analysis.claims import ablations, laws, scaling, similarity
from analysis.claims.compared import compared
from analysis.claims.evidence import View
from analysis.claims.judging import Finding, Number, corrected
from analysis.paper.statements import Statement, statements
from analysis.render import Grid
from analysis.tables.contents import Table
from analysis.tables.rows import short_method
from experiments.papers import DEFAULT
from experiments.registry import load, paper_of
from repro.spec.experiment import Experiment

COMPUTED: dict[str, Callable[[View], Finding]] = scaling.CLAIMS | ablations.CLAIMS | similarity.CLAIMS | laws.CLAIMS


def finding(statement: Statement, view: View) -> Finding:
    """What the runs of a view say. KeyError where neither a spec nor a module here decides the statement."""
    if statement.id in COMPUTED:
        return COMPUTED[statement.id](view)
    (experiment,) = map(load, statement.experiments)
    return compared(view, experiment, {claim.statement: claim for claim in experiment.claims}[statement.id])


def findings(view: View, of: str = DEFAULT) -> dict[str, Finding]:
    """What the runs of a view say of every statement of a paper, corrected over those of one table (Holm)."""
    raw: dict[tuple[str, ...], dict[str, Finding]] = {}
    for statement in statements(of):
        if statement.by == "runs":
            raw.setdefault(statement.experiments, {})[statement.id] = finding(statement, view)
    return {name: one for table in raw.values() for name, one in corrected(table, view.scale).items()}


def judged(experiment: Experiment, view: View, *, stated: bool = True) -> Iterator[tuple[str, str, Finding]]:
    """(id, words, finding) of each statement that an experiment's runs decide, then of its own claims, if it has any.

    Without `stated` its own alone.
    """
    on = [s for s in statements(paper_of(experiment.name).name) if stated and experiment.name in s.experiments]
    outcomes = corrected({s.id: finding(s, view) for s in on}, view.scale)
    yield from ((s.id, s.text, outcomes[s.id]) for s in on)
    for claim in experiment.claims:
        if claim.sentence:
            own = {claim.statement: compared(view, experiment, claim)}
            yield claim.statement, claim.sentence, corrected(own, view.scale)[claim.statement]


def judgement_grids(table: Table, *, terminal: bool = False, stated: bool = True) -> Sequence[Grid]:
    """What a table's own runs say of the paper's statements on it; none where it has none, or nothing is run.

    `terminal` names a statement by its id and leaves the sentences out.
    """
    view = View(table.scale, {table.experiment.name: table.results}, lends=False)
    rows: list[tuple[str, ...]] = []
    for name, sentence, outcome in judged(table.experiment, view, stated=stated):
        first = (name, "", "", outcome.verdict) if terminal else (sentence, "", "", outcome.verdict, outcome.sentence)
        rows += [first, *(_part(number, len(first)) for number in outcome.ours)]
    if not any(result.loss is not None for result in table.results) or not rows:
        return ()
    head = ("Statement", "Where", "Ours", "Verdict")
    title = f"Judged on these runs ({table.scale}): differences paired over seeds, ± standard error"
    if terminal:
        longer = f"{title}; what each is, in {table.experiment.name}.md"
        return (Grid(longer, head, tuple(rows), left=2, last_left=True),)
    return (Grid(title, (*head, "What the numbers are"), tuple(rows), left=5),)


def _part(number: Number, columns: int) -> tuple[str, ...]:
    error = "" if number.error is None else f" ± {number.error:.4f}"
    difference = f"{number.value:+.4f}{error} (n={number.seeds})"
    return ("", short_method(number.name), difference, number.verdict or "", *("",) * (columns - 4))
