"""Builds what `make <item>` leaves in build/: text, Markdown, LaTeX, HTML, CSV and the figure.

The figure is redrawn only when its inputs changed, so that a table of finished runs prints without
importing a plotting library. Files are written under another name and renamed.
"""

import csv
import hashlib
import io
from collections.abc import Callable
from pathlib import Path

from analysis import render
from analysis.tables import Table, runs_table, table5
from analysis.views import COLUMNS, csv_rows, document
from repro import paper
from repro.archive import archive_path, filled
from repro.config import SCALES
from repro.errors import UserError
from repro.experiment import Experiment, expand, load, trained
from repro.files import write_bytes
from repro.plan import plan_text
from repro.results import collect

DRAWING = Path(__file__).parent / "figures.py"


def build(
    name: str, scale: str, seeds: int, root: Path, out: Path, eval_set: str | None = None, *, own: bool = True
) -> str:
    """Write everything of an item under `out`; the text to print. UserError for an unknown item.

    Without `own`, runs that aren't finished under `root` are filled from the collected results.
    """
    if scale not in SCALES:
        raise UserError(f"scale={scale!r}: choose one of {', '.join(SCALES)}.")
    if name in COMPUTED:
        return COMPUTED[name](out)
    if name == "all":
        built = [build(item.name, scale, seeds, root, out, eval_set, own=own) for item in trained("all")]
        built += [make(out) for make in COMPUTED.values()]
        built.append(build("claims", scale, seeds, root, out, own=own))
        return "\n\n".join(built)
    if name == "claims":
        from analysis.claims.board import build_claims  # the simulator, which no table of runs needs

        return build_claims(seeds, root, out, own=own)
    experiment = load(name)
    if not isinstance(experiment, Experiment):
        raise UserError(f"{name} has no table: `make figures-simulated` draws what is simulated.")
    if name == "table2":
        text = plan_text(experiment, scale, seeds)
        write_bytes(out / "table2.txt", text.encode())
        return text
    return build_runs(experiment, scale, seeds, root, out, eval_set, own=own)


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
    """The same for an experiment of trained runs, finished or not; `eval_set` as in `repro.evals.SETS`."""
    results = collect(expand(experiment, scale, seeds), root, eval_set, syncs=experiment.syncs)
    if not own:
        results = filled(results, archive_path(scale), eval_set)
    if experiment.name == "table5":
        table = table5(results, paper.load("table5"), experiment, paper.load("statements"))
        picture = _figure(table, out / "figure5")
    else:
        table, picture = runs_table(results, experiment), None
    stem = out / experiment.name
    full, terminal = document(table, picture), render.text(document(table, terminal=True))
    files = {".md": render.markdown(full), ".tex": render.latex(full), ".html": render.page(full)}
    for suffix, content in (files | {".csv": _csv(table), ".txt": terminal + "\n"}).items():
        write_bytes(stem.with_suffix(suffix), content.encode())
    shown = ", ".join(f"{experiment.name}{suffix}" for suffix in (".md", ".tex", ".html", ".csv"))
    figure = f" and {picture.name}" if picture else ""
    return f"{terminal}\n\nWritten to {out}: {shown}{figure}."


def _table4(out: Path) -> str:
    from analysis.simulated import build_table4  # only where it is asked for: it simulates

    return build_table4(out)


def _simulated_figures(out: Path) -> str:
    from analysis.simulated_figures import build_figures

    return "\n".join(str(path) for path in build_figures(out))


def _accounts(out: Path) -> str:
    from analysis.simulated import build_accounts

    return build_accounts(out)


def _inconsistencies(out: Path) -> str:
    from analysis.inconsistencies import build_inconsistencies  # NumPy, which the table of runs doesn't need

    return build_inconsistencies(out)


COMPUTED: dict[str, Callable[[Path], str]] = {
    "table4": _table4,
    "accounts": _accounts,
    "figures-simulated": _simulated_figures,
    "inconsistencies": _inconsistencies,
}


def _figure(table: Table, stem: Path) -> Path:
    """Draw figure5.png and .svg unless those that lie there were made from the same inputs."""
    png, svg, stamp = (stem.with_suffix(suffix) for suffix in (".png", ".svg", ".inputs"))
    digest = _inputs(table)
    current = stamp.read_text().strip() if stamp.exists() else ""
    if current != digest or not (png.exists() and svg.exists()):
        from analysis.figures import figure5, image  # matplotlib: half a second that most calls don't pay

        figure = figure5(table)
        for path in (png, svg):
            write_bytes(path, image(figure, path.suffix.removeprefix(".")))
        write_bytes(stamp, f"{digest}\n".encode())
    return png


def _inputs(table: Table) -> str:
    """sha256 over the numbers drawn and the code that draws them."""
    drawn = [(r.run.run_id, r.run.row, r.run.config.flops, r.loss) for r in table.results]
    cells = [(c.row, c.column, c.text) for c in table.cells]
    slopes = [(s.method, s.printed.text if s.printed else "") for s in table.slopes]
    text = repr((table.scale, drawn, cells, slopes))
    return hashlib.sha256(text.encode() + DRAWING.read_bytes()).hexdigest()


def _csv(table: Table) -> str:
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows([COLUMNS, *csv_rows(table)])
    return lines.getvalue()
