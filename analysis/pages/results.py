"""docs/results.md: what the collected runs in miniature came to, and the lines of them that README.md repeats.

Run folders have no say in it: the page follows from data/results and the specs alone, so that a test can hold the
committed page against what `python -m repro build results --out docs` writes.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from analysis import render
from analysis.claims.board import MINI, Decision, board_document, decide_all, standing
from analysis.claims.evidence import gather
from analysis.render import Document, Grid, Notes
from analysis.tables import score_layout, similarity
from analysis.tables.contents import Table, table_of
from analysis.tables.rows import LABELS, LOSS, TableRow
from experiments.registry import load, trained
from repro.evaluation.tasks import TABLE_METRIC
from repro.files import write_bytes
from repro.results.collected import archive_path, filled, records, seeds_there
from repro.results.read import Result
from repro.spec.experiment import Experiment, expand

SCALE = "mini"
LEAD = (
    "Written by `python -m repro build results --out docs` from data/results/mini.json. Loss: nats a token on held-out "
    "text, the mean over seeds ± its standard deviation, (n) seeds; a bare number is one run, of seed 0, so compare "
    "within one n. inside, beyond: of the 95 % interval. *: a point that the paper's text doesn't name. In Table 6 "
    "a method is M | H.",
    "A value here says nothing about the paper's: models, text and budgets are others. Orders and shapes can be held "
    "against it, and the table of its statements does so. `python -m repro build ITEM` adds run ids, models and "
    "assumptions.",
)


def build_results(out: Path) -> str:
    """Write results.md under `out`; the text to print, which has the lines that README.md repeats."""
    decisions = _decisions()
    write_bytes(out / "results.md", results_page(decisions).encode())
    repeated = "\n\n".join(("README.md repeats:", readme_table(), standing(decisions)))
    return f"{repeated}\n\nWritten to {out}: results.md."


def results_page(decisions: tuple[Decision, ...] | None = None) -> str:
    """The page in Markdown; `decisions` are those of all statements on the collected results."""
    return render.markdown(_document(_decisions() if decisions is None else decisions)).rstrip("\n") + "\n"


def readme_table() -> str:
    """Table 5 in miniature, seed 0: sizes × methods, in Markdown."""
    rows = [row for row in _table(load("table5"), seeds=1).rows if row.results]
    return "\n".join(render.markdown_grid(_crossed(rows)[0]))


def _decisions() -> tuple[Decision, ...]:
    with TemporaryDirectory() as nowhere:
        return decide_all(gather(None, Path(nowhere), own=False))


def _document(decisions: tuple[Decision, ...]) -> Document:
    covered: set[tuple[str, str]] = set()  # runs, and what is read of them
    sections: list[Grid | Notes] = []
    for experiment in trained("all"):
        table = _table(experiment, seeds_there(SCALE, Path(), own=False))
        runs = {(result.run.run_id, result.run.parameters) for result in table.results}
        sections += _of_item(table, losses=not runs <= covered)
        covered |= runs
    return Document(
        "Results in miniature", LEAD, (board_document(decisions).sections[0], *sections, _said(decisions), _sources())
    )


def _table(experiment: Experiment, seeds: int) -> Table:
    runs = expand(experiment, SCALE, seeds)
    return table_of(experiment, filled(map(Result, runs), archive_path(SCALE)))


def _of_item(table: Table, losses: bool) -> Iterator[Grid | Notes]:
    """Losses, unless all of them stand in a table above; scores and cosine similarities where the item has them."""
    place = table.experiment.place[0].upper() + table.experiment.place[1:]
    if losses:
        first, *others = _crossed([row for row in table.rows if row.results])
        yield replace(first, title=": ".join(filter(None, (place, table.experiment.title, first.title))))
        yield from others
    scores = score_layout.score_grids(table, (TABLE_METRIC,)) if losses else ()
    for section in (*scores, *similarity.sections(table)):
        title = section.title and f"{place}, {section.title[0].lower()}{section.title[1:]}"
        yield replace(section, title=title)


def _crossed(rows: Sequence[TableRow]) -> tuple[Grid, ...]:
    """Methods × points, or of a table with more settings than points settings × methods, a grid a point.

    What has the same columns shares a grid.
    """
    points = tuple(dict.fromkeys(row.point for row in rows))
    if len(rows[0].labels) > 2 and len({row.labels[-1] for row in rows}) > len(points):
        grids = [_grids([row for row in rows if row.point == point], "Setting", point) for point in points]
        return tuple(itertools.chain(*grids))
    return _grids(rows, "Method", "")


def _grids(rows: Sequence[TableRow], head: str, title: str) -> tuple[Grid, ...]:
    import pandas as pd

    frame = pd.DataFrame(
        [(*_place(row, head == "Setting"), _loss(row)) for row in rows], columns=[head, "point", "loss"]
    )
    points = frame.groupby(head, sort=False)["point"].agg(tuple)
    grids = []
    for across in points.unique():
        lines = points.index[points == across]
        wide = frame.pivot(index=head, columns="point", values="loss").loc[lines, list(across)].reset_index()
        grids.append(Grid(title, tuple(wide.columns), tuple(wide.itertuples(index=False, name=None))))
        title = ""
    return tuple(grids)


def _place(row: TableRow, settings: bool) -> tuple[str, str]:
    """(method, point), or of what is tried at one size (setting, method)."""
    if settings:
        method, setting = row.short.rsplit(LABELS, 1)
        return setting, method
    return row.short, row.point + " *" * row.ours if row.point else LOSS


def _loss(row: TableRow) -> str:
    if row.mean is None:
        return row.state
    if any(result.diverged for result in row.results):
        return f"diverged ({row.mean:,.0f})"
    spread = "" if row.spread is None else f" ± {row.spread:.3f} ({len(row.losses)})"
    return f"{row.mean:.3f}{spread}"


def _said(decisions: Sequence[Decision]) -> Grid:
    rows = []
    for decision in decisions:
        if (finding := decision.findings.get(MINI)) is not None:
            ours = "; ".join(number.text for number in finding.ours)
            rows.append((decision.statement.place, decision.statement.text, finding.verdict, ours, finding.sentence))
    head = ("Place", "The paper", "In miniature", "Ours", "Told by")
    return Grid("What the paper says, and what the miniature shows", head, tuple(rows), left=len(head))


def _sources() -> Grid:
    """The commits and machines behind the runs, with their seeds and the processor time that they took."""
    import pandas as pd

    frame = pd.DataFrame([_facts(record) for record in records(SCALE)])
    keys = ["Commit", "Python, JAX", "Machine"]
    summed = frame.groupby(keys, sort=False, as_index=False).agg(
        Runs=("run", "nunique"),
        Seeds=("seed", lambda seeds: ", ".join(map(str, sorted(set(seeds))))),
        Evaluations=("evaluations", "sum"),
        Hours=("seconds", lambda seconds: f"{seconds.sum() / 3600:.1f}"),
    )
    rows = tuple(tuple(map(str, row)) for row in summed.itertuples(index=False, name=None))
    head = (*keys, "Runs", "Seeds", "Evaluations", "Processor hours of training")
    return Grid("What the runs were made from", head, rows, left=len(keys))


def _facts(record: Mapping[str, Any]) -> dict[str, Any]:
    source, unclean = record["made"], {True: " with uncommitted changes", None: " and unknown changes", False: ""}
    versions = source["versions"]
    return {
        "run": record["run_id"],
        "seed": record["config"]["seed"],
        "Commit": str(source["commit"])[:10] + unclean[source["dirty"]],
        "Python, JAX": f"{source['python']}, {versions['jax']}",
        "Machine": f"{source['processor']}, {source['cores']} of its cores",
        "evaluations": len(record["evaluations"]),
        "seconds": record["summary"].get("processor_seconds") or 0.0,
    }
