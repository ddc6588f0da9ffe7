"""Builds what `make <item>` leaves in build/: text, Markdown, LaTeX, HTML, CSV and the figure.

The figure is redrawn only when its inputs changed, so that a table of finished runs prints without
importing a plotting library. Files are written under another name and renamed.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis import render
from analysis.calculated import COLUMNS as CALCULATED
from analysis.calculated import Calculated, Results, calculate
from analysis.claims.trained import judgement_grids
from analysis.pages.stamps import code_digest, digest
from analysis.paper.plan import plan_text
from analysis.paper.statements import statements
from analysis.render import Document
from analysis.tables.contents import Table, table_of
from analysis.tables.layout import COLUMNS, csv_rows, document
from experiments.papers import DEFAULT
from experiments.registry import experiment_names, in_order, load, trained
from repro.errors import UserError, check_known
from repro.files import read_json, write_bytes
from repro.results.collected import archive_path, filled, seeds_there
from repro.results.read import Result, collect
from repro.spec.config import SCALES
from repro.spec.experiment import Calculation, Experiment, expand

ILLUSTRATED = ("figure1", "figure2")
ABLATIONS = ("figure6", "figure8", "figure10", "figure11", "figure12", "figure13", "fedpart")
FIGURES = {  # experiment -> the function that draws its runs, and its module
    **dict.fromkeys(("table5", "figure5"), ("figure5", "analysis.figures.scaling")),
    **{name: (name, "analysis.figures.ablations") for name in ABLATIONS},
    **{name: (name, "analysis.figures.similarity") for name in ("figure17", "figure18")},
}


def build_item(
    name: str,
    scale: str,
    seeds: int | None,
    root: Path,
    out: Path,
    eval_set: str | None = None,
    *,
    own: bool = True,
    of: str = DEFAULT,
) -> str:
    """Write everything of an item under `out`; the text to print. UserError for an unknown item.

    `of` is the paper of `all` and `claims`. `seeds` None: one, and as many as there are of the statements and
    of what is calculated. Without `own`, runs that aren't finished under `root` are filled from the collected results.
    """
    if scale not in SCALES:
        raise UserError(f"scale={scale!r}: choose one of {', '.join(SCALES)}.")
    if name in COMPUTED:
        return COMPUTED[name](out)
    if name == "all":
        built = [build_item(item, scale, seeds, root, out, eval_set, own=own) for item in _tables(of)]
        if of == DEFAULT:
            # all but the pages of docs, which are not of a root
            built += [make(out) for item, make in COMPUTED.items() if item not in DOCS]
            built += [draw_figure(figure, out) for figure in ILLUSTRATED]
        if statements(of):
            built.append(build_item("claims", scale, seeds, root, out, own=own, of=of))
        return "\n\n".join(built)
    if name == "claims":
        if not statements(of):
            raise UserError(f"{of} has no statements: its folder of data/papers lacks a claims.csv.")
        from analysis.claims.board import build_claims  # the simulator, which no table of runs needs

        return build_claims(seeds, root, out, own=own, of=of)
    check_known("unknown item", name, (*experiment_names(), *COMPUTED, "claims", "all"))
    experiment = load(name)
    if isinstance(experiment, Calculation):
        return _build_calculation(experiment, scale, seeds, root, out, own)
    seeds = 1 if seeds is None else seeds
    if not isinstance(experiment, Experiment):
        return draw_figure(name, out)
    if name == "table2":
        text = plan_text(experiment, scale, seeds)
        write_bytes(out / "table2.txt", text.encode())
        return text
    return build_runs(experiment, scale, seeds, root, out, eval_set, own=own)


def unused(name: str) -> tuple[str, ...]:
    """The options of `build` that change nothing of an item, by what `build` hands on."""
    if name == "claims":
        return "scale", "eval"
    if name == "all" or name not in (*experiment_names(), *COMPUTED):
        return ()
    return ("paper", *_unread(name))


def _unread(name: str) -> tuple[str, ...]:
    experiment = None if name in COMPUTED else load(name)
    if isinstance(experiment, Calculation) and experiment.reads:
        return ("eval",)
    if not isinstance(experiment, Experiment):
        return "scale", "seeds", "root", "eval", "own"
    if name == "table2":
        return "root", "eval", "own"
    return () if experiment.scored else ("eval",)


def _tables(of: str) -> tuple[str, ...]:
    """What of a paper is trained, and what is calculated by its spec."""
    calculated = tuple(name for name in in_order(of) if isinstance(load(name), Calculation))
    return (*(experiment.name for experiment in trained("all", of)), *calculated)


def results_at(scale: str, seeds: int | None, root: Path, own: bool, eval_set: str | None = None) -> Results:
    """What reads the results of an experiment: from run folders and, but for `own`, from the collected ones.

    `seeds` None: as many as there are at the scale that is read.
    """

    def results(name: str, at: str = "") -> Sequence[Result]:
        experiment, there = load(name), at or scale
        count = seeds_there(there, root, own) if seeds is None else seeds
        runs = collect(expand(experiment, there, count), root, eval_set, syncs=experiment.syncs)
        return runs if own else filled(runs, archive_path(there), eval_set)

    return results


def _build_calculation(spec: Calculation, scale: str, seeds: int | None, root: Path, out: Path, own: bool) -> str:
    outcome = calculate(spec, results_at(scale, seeds, root, own))
    stem = out / spec.name
    files = [f"{spec.name}{suffix}" for suffix in (".md", ".tex", ".html", ".csv")]
    picture = drawn_by(outcome, stem) if outcome.figure else None
    render.write(replace(outcome.document, picture=picture), stem)
    write_bytes(stem.with_suffix(".csv"), render.csv_text(CALCULATED, outcome.lines).encode())
    figure = f" and {picture.name}" if picture else ""
    return f"{render.terminal_text(outcome.document)}\n\nWritten to {out}: {', '.join(files)}{figure}."


def drawn_by(outcome: Calculated, stem: Path, forms: Sequence[str] = ("png", "svg")) -> Path | None:
    """The figure of a calculation, drawn anew: it takes less than to tell whether it would be the same."""
    if outcome.figure is None:
        return None
    from analysis.figures.style import save_figure  # matplotlib

    save_figure(outcome.figure(), stem, forms)
    return stem.with_suffix(".png")


def build_runs(
    experiment: Experiment,
    scale: str,
    seeds: int,
    root: Path,
    out: Path,
    eval_set: str | None = None,
    *,
    own: bool = True,
) -> str:
    """Write all of an experiment of trained runs, finished or not; `eval_set` as in `repro.evaluation.tasks.SETS`."""
    table = table_of(experiment, results_at(scale, seeds, root, own, eval_set)(experiment.name))
    picture = drawn(table, out) if experiment.name in FIGURES else None
    beside = draw_figure("figure6b", out) if experiment.name == "figure6" else ""
    stem = out / experiment.name
    full = document(table, picture, judgement_grids(table))
    terminal = render.terminal_text(document(table, judgements=judgement_grids(table, terminal=True), terminal=True))
    files = {".md": render.markdown(full), ".tex": render.latex(full), ".html": render.html_page(full)}
    for suffix, content in (
        files | {".csv": render.csv_text(COLUMNS, csv_rows(table)), ".txt": terminal + "\n"}
    ).items():
        write_bytes(stem.with_suffix(suffix), content.encode())
    written = ", ".join(f"{experiment.name}{suffix}" for suffix in (".md", ".tex", ".html", ".csv"))
    figure = f" and {picture.name}" if picture else ""
    return f"{terminal}\n\nWritten to {out}: {written}{figure}." + (f"\n{beside}" if beside else "")


def draw_figure(name: str, out: Path, forms: Sequence[str] = ("png", "svg")) -> str:
    """Draw a figure that needs no run, unless it lies there as its code draws it; its files."""
    module = _module(name)
    _keep(name, out, forms, code_digest(module), lambda: importlib.import_module(module).DRAWN[name]())
    return "\n".join(str(out / f"{name}.{form}") for form in forms)


def is_kept(name: str, out: Path, forms: Sequence[str]) -> bool:
    """Whether a figure that needs no run lies there as its code draws it."""
    return _is_drawn_from(code_digest(_module(name)), name, out, forms)


def _module(name: str) -> str:
    return f"analysis.figures.{'schedule' if name in ILLUSTRATED else 'simulated'}"


def _table4(out: Path) -> str:
    from analysis.paper.simulated import build_table4  # only where it is asked for: it simulates

    return build_table4(out)


def _simulated_figures(out: Path) -> str:
    from analysis.figures.simulated import build_figures

    return "\n".join(str(path) for path in build_figures(out))


def _accounts(out: Path) -> str:
    from analysis.paper.simulated import build_accounts

    return build_accounts(out)


def _inconsistencies(out: Path) -> str:
    from analysis.paper.inconsistencies import build_inconsistencies  # NumPy, which the table of runs doesn't need

    return build_inconsistencies(out)


def compiled_page() -> Document:
    """What runs of the paper were like, compiled for TPU slices: data/results, as `repro compile` left it."""
    from analysis.pages.compiled import COMPILED, compiled_document

    record = read_json(archive_path(COMPILED))
    assert record is not None, "data/results is part of the repository"
    runs = (run for spec in trained("all") for run in expand(spec, "paper"))
    planned = {run.run_id: run.config.batch * run.config.model.seq_len for run in runs}
    return compiled_document("Runs at scale paper, compiled for TPU slices", record, planned)


def _compiled(out: Path) -> str:
    page = compiled_page()
    render.write(page, out / "compiled")
    return render.terminal_text(page)


def _results(out: Path) -> str:
    from analysis.pages.results import build_results  # the scoreboard, and pandas

    return build_results(out)


def _miniature(out: Path) -> str:
    from analysis.pages.miniature import build_miniature

    return build_miniature(out)


COMPUTED: dict[str, Callable[[Path], str]] = {
    "table4": _table4,
    "accounts": _accounts,
    "figures-simulated": _simulated_figures,
    "inconsistencies": _inconsistencies,
    "compiled": _compiled,
    "results": _results,
    "miniature": _miniature,
}
DOCS = ("results", "miniature")  # pages of docs


def drawn(table: Table, out: Path, forms: Sequence[str] = ("png", "svg")) -> Path:
    """Draw <figure>.png, the path, and .svg unless those that lie there were made from the same inputs."""
    name, module = FIGURES[table.experiment.name]
    _keep(name, out, forms, digest(table, module), lambda: getattr(importlib.import_module(module), name)(table))
    return out / f"{name}.png"


def _keep(name: str, out: Path, forms: Sequence[str], inputs: str, draw: Callable[[], Any]) -> None:
    """Draw a figure's files unless they lie there and were made from the same `inputs`."""
    if not _is_drawn_from(inputs, name, out, forms):
        from analysis.figures.style import save_drawn  # matplotlib: half a second that most calls don't pay

        save_drawn(draw, out / name, forms)
        write_bytes(_stamp(name, out), f"{' '.join((inputs, *forms))}\n".encode())


def _is_drawn_from(inputs: str, name: str, out: Path, forms: Sequence[str]) -> bool:
    stamp = _stamp(name, out)
    drawn_from, *there = stamp.read_text(encoding="utf-8").split() if stamp.exists() else [""]
    return drawn_from == inputs and set(forms) <= set(there) and all((out / f"{name}.{f}").exists() for f in forms)


def _stamp(name: str, out: Path) -> Path:
    return out / f"{name}.inputs"
