"""One table or figure of the paper as HTML: what the page of everything shows of it, and what a notebook shows.

Nothing is decided or computed here: results come from run folders and the collected ones, documents from the module of
each item, statements from the scoreboard.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from analysis import render
from analysis.calculated import calculate
from analysis.claims.board import CALCULATED, MINI, PAPER, Decision, counts, decide_all
from analysis.claims.evidence import gather
from analysis.claims.trained import judgement_grids
from analysis.pages import report
from analysis.paper.statements import Statement
from analysis.render import Document, Grid, Notes
from analysis.tables.contents import table_of
from analysis.tables.layout import document
from experiments.papers import DEFAULT
from experiments.registry import in_order, item, load
from repro.errors import UserError
from repro.results.collected import archive_path, filled, seeds_there
from repro.results.read import Result, collect
from repro.spec.experiment import Calculation, Experiment, expand, left_out

BESIDE = ("accounts", "inconsistencies", "compiled")  # calculated, and no table or figure of the paper
PICTURE = ("png",)  # the form that a page holds
FOLD = 3  # notes with more lines than these open on a click


@dataclass(frozen=True)
class Source:
    """Where the numbers of a page come from; without `own` the collected results stand in for runs not under `root`."""

    scale: str
    seeds: int | None  # None: as many as there are
    root: Path
    eval_set: str | None = None
    own: bool = False
    of: str = DEFAULT  # the paper

    @cached_property
    def count(self) -> int:
        """Seeds of the trained items."""
        return seeds_there(self.scale, self.root, self.own) if self.seeds is None else self.seeds


@dataclass(frozen=True)
class Html:
    """HTML that a notebook displays."""

    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        return self.html


def item_names(of: str = DEFAULT) -> tuple[str, ...]:
    """Every item of a paper in its order: the experiments, then what is calculated beside them."""
    return (*in_order(of), *(BESIDE if of == DEFAULT else ()))


def results(wanted: Iterable[str], source: Source) -> dict[str, tuple[Result, ...]]:
    """The results of each item that is trained; the collected ones are read once."""
    by_item: dict[str, tuple[Result, ...]] = {}
    for name in wanted:
        experiment = None if name in BESIDE else load(name)
        if isinstance(experiment, Experiment) and not experiment.derived:
            runs = expand(experiment, source.scale, source.count)
            by_item[name] = collect(runs, source.root, source.eval_set, syncs=experiment.syncs)
    if source.own:
        return by_item
    every = iter(filled(itertools.chain(*by_item.values()), archive_path(source.scale), source.eval_set))
    return {name: tuple(itertools.islice(every, len(runs))) for name, runs in by_item.items()}


def documents(name: str, source: Source, by_item: Mapping[str, Sequence[Result]], out: Path) -> tuple[Document, ...]:
    """What is shown of an item; its figures are drawn under `out`, where they aren't there already."""
    if name in BESIDE:
        return (_beside(name),)
    experiment = load(name)
    if isinstance(experiment, Calculation):
        return (_calculated(experiment, source, out),)
    if not isinstance(experiment, Experiment):
        return (_simulated(name, experiment, out),)
    if experiment.derived:
        from analysis.paper.architectures import table2_document

        return (table2_document(experiment),)
    if not by_item[name]:
        why = tuple(f"{row}: {reason}" for row, reason in left_out(experiment, source.scale))
        return (Document(f"{experiment.title} ({experiment.place})", (), (Notes("Left out", why),)),)
    table = table_of(experiment, by_item[name])
    picture = report.drawn(table, out, PICTURE) if name in report.FIGURES else None
    of_runs = (
        document(table, picture, judgement_grids(table, stated=False)),
    )  # the statements stand below, at both scales
    if name != "figure6":
        return of_runs
    report.draw_figure("figure6b", out, PICTURE)
    return (*of_runs, Document("Reduction of the peak bandwidth (Figure 6b), counted", (), (), out / "figure6b.png"))


def is_figure_without_runs(name: str) -> bool:
    """Whether an item is a figure that its code alone decides."""
    return name not in (*BESIDE, "table4") and not isinstance(load(name), Calculation | Experiment)


def item_label(name: str) -> str:
    """`Table 5`, `Figure 12`, `FedPart`: its short name."""
    name = name if name in BESIDE else item(name)
    kind = name.rstrip("0123456789")
    if kind in ("table", "figure") and kind != name:
        return f"{kind.capitalize()} {name.removeprefix(kind)}"
    return {"fedpart": "FedPart"}.get(name, name.replace("_", " ").capitalize())


def statements_on(name: str, decisions: Iterable[Decision]) -> Grid | None:
    """The paper's statements that an item speaks to, with what is found; None where there are none."""
    rows, label = [], item_label(name)
    for decision in decisions:
        statement = decision.statement
        if not speaks_to(name, label, statement):
            continue
        for kind in (CALCULATED, PAPER, MINI):
            if (finding := decision.findings.get(kind)) is not None:
                first = kind in (CALCULATED, PAPER)
                numbers = "; ".join(number.text for number in finding.ours)
                text = statement.text if first else ""
                rows.append((text, kind, finding.verdict, numbers, finding.sentence))
    head = ("Statement", "Evidence", "Verdict", "Ours", "Told by")
    return Grid("What the paper says of it", head, tuple(rows), left=len(head)) if rows else None


def speaks_to(name: str, label: str, statement: Statement) -> bool:
    """Whether the runs of an item, shown as `label`, decide a statement, or the paper makes it there."""
    places = statement.place.replace(",", ";").split(";")
    return name in statement.experiments or label in map(str.strip, places)


def section(name: str, item_documents: Sequence[Document], decisions: Iterable[Decision], level: int = 2) -> list[str]:
    """An item as HTML: its documents, then the paper's statements on it."""
    parts = [part for one in item_documents for part in render.body(one, level, FOLD)]
    if (grid := statements_on(name, decisions)) is not None:
        parts += render.body(Document("", (), (grid,)), level)
    return parts


def show(name: str, root: str | Path | None = None, seeds: int | None = None, scale: str = "mini") -> Html:
    """An item for a notebook: from the runs under `root`, the collected results standing in for what isn't there.

    None: the collected results alone, with all their seeds. UserError for an unknown item or a folder that isn't there.
    """
    with TemporaryDirectory() as folder:
        source = _source(root, seeds, scale, Path(folder))
        item_documents = documents(name, source, results([name], source), Path(folder))
        return Html("\n".join(section(name, item_documents, ())))


def scoreboard(wanted: Sequence[str], root: str | Path | None = None, seeds: int | None = None) -> Html:
    """The paper's statements on some items, decided at both scales; `root` and `seeds` as in `shown`."""
    with TemporaryDirectory() as folder:
        source = _source(root, seeds, "mini", Path(folder))
        decisions = decide_all(gather(source.seeds, source.root))
    grids = [(name, grid) for name in wanted if (grid := statements_on(name, decisions)) is not None]
    bodies = [render.body(Document(item_label(name), (), (grid,)), level=3) for name, grid in grids]
    return Html("\n".join(part for parts in bodies for part in parts))


def verdict_grid(decisions: tuple[Decision, ...]) -> Grid:
    """How many statements have each verdict, by the kind of evidence."""
    kinds = (CALCULATED, PAPER, MINI)
    by_kind = [counts(decisions, kind) for kind in kinds]
    verdicts = counts(decisions, *kinds)
    rows = tuple((verdict, *(str(tally.get(verdict, "")) for tally in by_kind)) for verdict in verdicts)
    return Grid("Statements by verdict", ("Verdict", *kinds), rows)


def _source(root: str | Path | None, seeds: int | None, scale: str, empty: Path) -> Source:
    if root is not None and not Path(root).is_dir():
        raise UserError(
            f"root={str(root)!r} is no folder: name the one with your runs, or None for the collected ones."
        )
    place = empty if root is None else Path(root)
    return Source(scale, seeds, place)


def _calculated(spec: Calculation, source: Source, out: Path) -> Document:
    read = report.results_at(source.scale, source.seeds, source.root, source.own, source.eval_set)
    outcome = calculate(spec, read)
    return replace(outcome.document, picture=report.drawn_by(outcome, out / spec.name, PICTURE))


def _simulated(name: str, spec: Any, out: Path) -> Document:
    """Table 4, or a figure drawn without runs."""
    if name == "table4":
        from analysis.paper.simulated import table4_cells, table4_document

        return table4_document(table4_cells())
    report.draw_figure(name, out, PICTURE)
    assumed = Notes("What the paper leaves open", tuple(spec.assumptions))
    sections = (assumed,) if assumed.lines else ()
    lead = ("Computed: no run stands behind it.",)
    return Document(f"{spec.title} ({spec.place})", lead, sections, out / f"{name}.png")


def _beside(name: str) -> Document:
    if name == "accounts":
        from analysis.paper.simulated import accounts_document, all_accounts

        return accounts_document(all_accounts())
    if name == "compiled":
        return report.compiled_page()
    from analysis.paper.inconsistencies import inconsistencies, inconsistencies_document

    return inconsistencies_document(inconsistencies())
