"""What stands in a table of trained runs: which published cell beside which run, then verdicts, slopes and accounts.

Pure functions of results and published cells (`analysis.paper.published` reads them), one for each table of the paper;
`analysis.tables.layout` writes it out. No pandas, no plotting, no JAX, so that a table of finished runs prints at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.laws.powers import Interval
from analysis.paper.fits import Line, power_interval, power_law, published_points, semi_log
from analysis.paper.published import Published, by_place, cells_of, load_cells
from analysis.paper.simulated import Account, accounts_of
from analysis.tables.rows import LABELS, LOSS, SCORES, TableRow, own_points
from experiments.papers import DEFAULT
from experiments.registry import load, paper_of
from experiments.streaming.base import DP
from experiments.streaming.table5 import STREAM_100
from repro.evaluation.tasks import TABLE_METRIC
from repro.results.read import Result
from repro.spec.experiment import Experiment, expand
from repro.words import span

PRINTED_SLOPES = {DP: "scaling slope | Data-Parallel", STREAM_100: "scaling slope | Streaming DiLoCo"}


@dataclass(frozen=True)
class Slope:
    """Loss on ln(FLOPs) of one method, and the power law beside it; None with fewer than two sizes."""

    method: str  # in the paper's words
    method_run: str
    ours: Line | None
    ours_power: Line | None
    paper: Line | None  # from the printed cells
    paper_power: Line | None
    intervals: tuple[Interval | None, Interval | None]  # of the exponents of both power laws, over sizes
    printed: Published | None


@dataclass(frozen=True)
class Table:
    """All that is shown of an experiment at a scale."""

    experiment: Experiment
    scale: str
    seeds: int
    rows: tuple[TableRow, ...]
    slopes: tuple[Slope, ...]
    results: tuple[Result, ...]
    cells: tuple[Published, ...]
    accounts: tuple[Account, ...] = ()  # hours and bytes, which follow without a run
    statements: tuple[Published, ...] = ()  # numbers of the text that its figure marks

    def seeds_in_words(self, scored: str = "") -> str:
        """`n = 3 seeds`, or `n = 1 to 3 seeds` where rows have more and fewer; of the scores of a column, if named."""
        if scored:
            counts = [len(score.by_seed) for row in self.rows if (score := row.score(scored, TABLE_METRIC)) is not None]
        else:
            counts = [len(row.losses) for row in self.rows if row.losses]
        counts = counts or [self.seeds]
        return f"n = {span(counts)} seed{'' if max(counts) == 1 else 's'}"


def table_of(experiment: Experiment, results: Sequence[Result]) -> Table:
    """The table of an experiment: beside the published cells where its paper prints a table, its rows alone elsewhere.

    ValueError without results.
    """
    if paper_of(experiment.name).name != DEFAULT:
        return _other_papers(experiment, results)
    item = experiment.printed or experiment.name
    printed = {"table1": table1, "table3": table3, "table6": table6, "table7": table7}
    if item in printed:
        return printed[item](results, load_cells(item), experiment)
    if item == "table5":
        return table5(results, load_cells(item), experiment, load_cells("statements"))
    elsewhere = printed_elsewhere(experiment, {name: load_cells(name) for name in ("table5", "table6", "table7")})
    return runs_table(results, experiment, load_cells("statements"), elsewhere)


def _other_papers(experiment: Experiment, results: Sequence[Result]) -> Table:
    """A table of a paper that needs no view of its own: losses and scores beside those printed, or rows alone."""
    cells = tuple(cell for cell in cells_of(experiment) if cell.column in (LOSS, *SCORES))
    if not any(cell.column == LOSS for cell in cells):
        return runs_table(results, experiment)
    return _table(results, cells, experiment, printed_rows(results, cells))


def table1(results: Sequence[Result], cells: Sequence[Published], experiment: Experiment) -> Table:
    """Table 1: overtraining with M = 2; hours and terabytes are accounts at paper scale, with or without runs."""
    return _table(results, cells, experiment, printed_rows(results, cells), accounts=accounts_of(cells))


def table3(results: Sequence[Result], cells: Sequence[Published], experiment: Experiment) -> Table:
    """Table 3: one run over its seeds, evaluated with three kinds of parameters."""
    return _table(results, cells, experiment, printed_rows(results, cells))


def table5(
    results: Sequence[Result],
    cells: Sequence[Published],
    experiment: Experiment,
    statements: Sequence[Published] = (),
) -> Table:
    """Table 5: every printed row, with our runs of it or of its miniature; `statements` hold the slopes.

    ValueError without results.
    """
    rows = printed_rows(results, cells)
    return _table(results, cells, experiment, rows, _slopes(rows, cells, statements))


def table6(results: Sequence[Result], cells: Sequence[Published], experiment: Experiment) -> Table:
    """Table 6: two and four replicas, H = 30 and 100, at every size."""
    return _table(results, cells, experiment, printed_rows(results, cells))


def table7(results: Sequence[Result], cells: Sequence[Published], experiment: Experiment) -> Table:
    """Table 7: overtraining with M = 2 and M = 4; terabytes are accounts at paper scale, with or without runs."""
    return _table(results, cells, experiment, printed_rows(results, cells), accounts=accounts_of(cells))


def runs_table(
    results: Sequence[Result],
    experiment: Experiment,
    statements: Sequence[Published] = (),
    elsewhere: Mapping[str, Published] | None = None,
) -> Table:
    """Any other experiment: its rows; `statements` are for its figure, `elsewhere` is `printed_elsewhere`.

    ValueError without results.
    """
    rows = own_rows(results, elsewhere or {})
    return replace(_table(results, (), experiment, rows), statements=tuple(statements))


def printed_elsewhere(experiment: Experiment, tables: Mapping[str, Sequence[Published]]) -> dict[str, Published]:
    """The loss that one of `tables` prints, by row of `experiment`: of rows that are a run of it at paper scale.

    `tables` holds cells by experiment; where several print the same run the first counts.
    """
    losses: dict[str, Published] = {}
    for name, cells in tables.items():
        place = by_place(cells)
        for run in expand(load(name), "paper"):
            if run.parameters == "outer" and (run.paper_row, LOSS) in place:
                losses.setdefault(run.run_id, place[run.paper_row, LOSS])
    runs = (run for run in expand(experiment, "paper") if run.parameters == "outer")
    return {run.paper_row: losses[run.run_id] for run in runs if run.run_id in losses}


def printed_rows(results: Iterable[Result], cells: Iterable[Published]) -> tuple[TableRow, ...]:
    """A row for each printed row with a loss, in printed order."""
    by_row: dict[str, dict[str, Published]] = {}
    for cell in cells:
        by_row.setdefault(cell.row, {})[cell.column] = cell
    ours = grouped(results)
    return tuple(_row(name, ours.get(name, ()), printed) for name, printed in by_row.items() if LOSS in printed)


def own_rows(results: Iterable[Result], elsewhere: Mapping[str, Published]) -> tuple[TableRow, ...]:
    """A row for each of the spec's that has runs; `elsewhere` has the loss that a table prints of the same run."""
    beside = {paper_row: {LOSS: cell} for paper_row, cell in elsewhere.items()}
    return tuple(_row(paper_row, by_seed, beside.get(paper_row, {})) for paper_row, by_seed in grouped(results).items())


def grouped(results: Iterable[Result]) -> dict[str, tuple[Result, ...]]:
    """Results by the paper's row, in the order of their seeds."""
    by_row: dict[str, tuple[Result, ...]] = {}
    for result in sorted(results, key=lambda r: r.run.config.seed):
        by_row[result.run.paper_row] = (*by_row.get(result.run.paper_row, ()), result)
    return by_row


def _table(
    results: Sequence[Result],
    cells: Sequence[Published],
    experiment: Experiment,
    rows: tuple[TableRow, ...],
    slopes: tuple[Slope, ...] = (),
    accounts: tuple[Account, ...] = (),
) -> Table:
    if not results:
        raise ValueError(f"{experiment.name}: a table needs at least one planned run")
    return Table(
        experiment=experiment,
        scale=results[0].run.config.scale,
        seeds=len({r.run.config.seed for r in results}),
        rows=rows,
        slopes=slopes,
        results=tuple(results),
        cells=tuple(cells),
        accounts=accounts,
    )


def _slopes(rows: Sequence[TableRow], cells: Sequence[Published], statements: Sequence[Published]) -> tuple[Slope, ...]:
    printed = by_place(statements)
    slopes = []
    for method in dict.fromkeys(row.method for row in rows):
        points = own_points(rows, method)
        published = published_points(cells, method)
        slopes.append(
            Slope(
                method,
                next(row.method_run for row in rows if row.method == method),
                semi_log(points) if len(points) > 1 else None,
                power_law(points) if len(points) > 1 else None,
                semi_log(published) if len(published) > 1 else None,
                power_law(published) if len(published) > 1 else None,
                (power_interval(points), power_interval(published)),
                printed.get((PRINTED_SLOPES.get(method, ""), "Slope")),
            )
        )
    return tuple(slopes)


def _row(paper_row: str, results: Sequence[Result], printed: Mapping[str, Published]) -> TableRow:
    labels = results[0].run.labels if results else tuple(paper_row.split(LABELS))
    return TableRow(labels, paper_row, tuple(results), printed)
