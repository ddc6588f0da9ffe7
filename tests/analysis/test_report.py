"""`build`: files left behind, redrawn only when needed, and light when everything is there."""

import csv
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fabricated import finish, finish_all, planned

from analysis.pages import report, stamps
from analysis.pages.report import build_item
from analysis.pages.stamps import PACKAGES, digest, sources
from analysis.tables.contents import table_of
from analysis.tables.layout import COLUMNS
from experiments.registry import load
from repro.errors import UserError
from repro.results.read import Result
from repro.spec.experiment import expand

ROOT = Path(__file__).resolve().parents[2]
FILES = {f"table5{s}" for s in (".md", ".tex", ".html", ".csv", ".txt")}
FILES |= {"figure5.png", "figure5.svg", "figure5.inputs"}


def test_table5_leaves_all_its_files(tmp_path: Path):
    finish_all(tmp_path / "runs", seeds=2)
    text = build_item("table5", "mini", 2, tmp_path / "runs", tmp_path / "build")
    assert {path.name for path in (tmp_path / "build").iterdir()} == FILES
    assert "table5.md" in text and (tmp_path / "build" / "table5.txt").read_text(encoding="utf-8").strip() in text
    with (tmp_path / "build" / "table5.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS


def test_nothing_run_is_a_table_too(tmp_path: Path):
    text = build_item("table5", "mini", 1, tmp_path / "runs", tmp_path / "build")
    assert "not run" in text and {path.name for path in (tmp_path / "build").iterdir()} == FILES


def test_the_figure_is_drawn_again_only_for_other_numbers(tmp_path: Path):
    runs, out = finish_all(tmp_path / "runs"), tmp_path / "build"
    build_item("table5", "mini", 1, tmp_path / "runs", out)
    first, drawn = (out / "figure5.png").read_bytes(), (out / "figure5.png").stat().st_mtime_ns
    build_item("table5", "mini", 1, tmp_path / "runs", out)
    assert (out / "figure5.png").stat().st_mtime_ns == drawn
    finish(runs[0], tmp_path / "runs", loss=1.0)
    build_item("table5", "mini", 1, tmp_path / "runs", out)
    assert (out / "figure5.png").read_bytes() != first
    (out / "figure5.svg").unlink()
    build_item("table5", "mini", 1, tmp_path / "runs", out)
    assert (out / "figure5.svg").exists()


def test_a_figure_is_stamped_with_all_that_its_code_imports():
    """Beside what Python itself imports for it, but for a package's own file, which holds no code."""
    module = "analysis.figures.similarity"
    program = f"import sys, {module}; print(*(getattr(m, '__file__', None) for m in sys.modules.values()), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    imported = {Path(line) for line in done.stdout.splitlines()}
    ours = {path for path in imported if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES}
    assert {path for path in ours if path.name != "__init__.py"} <= set(sources(module))
    stems = [{path.stem for path in sources(module)} for _, module in report.FIGURES.values()]
    assert all({"fits", "rows", "score_statistics", "contents", "series", "style"} <= found for found in stems)
    assert "similarity" in stems[-1]


def test_other_code_or_another_axis_is_another_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = table_of(load("figure8"), [Result(run) for run in expand(load("figure8"), "mini")])
    before = digest(table, "analysis.figures.ablations")
    renamed = replace(table, experiment=replace(table.experiment, axis="another"))
    assert digest(table, "analysis.figures.ablations") == before != digest(renamed, "analysis.figures.ablations")
    changed = tmp_path / "fits.py"
    changed.write_text("# other code\n", encoding="utf-8")
    files = tuple(changed if path.name == "fits.py" else path for path in sources("analysis.figures.ablations"))
    monkeypatch.setattr(stamps, "sources", lambda module: files)
    assert digest(table, "analysis.figures.ablations") != before


def test_equal_numbers_give_equal_files(tmp_path: Path):
    finish_all(tmp_path / "runs")
    for out in ("one", "two"):
        build_item("table5", "mini", 1, tmp_path / "runs", tmp_path / out)
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_all_done_path_imports_nothing_heavy(tmp_path: Path):
    finish_all(tmp_path / "runs")
    build_item("table5", "mini", 1, tmp_path / "runs", tmp_path / "build")
    code = (
        "import sys; from pathlib import Path; from analysis.pages.report import build_item;"
        f"build_item('table5', 'mini', 1, Path({str(tmp_path / 'runs')!r}), Path({str(tmp_path / 'build')!r}));"
        "print([m for m in ('jax', 'pandas', 'matplotlib', 'pyarrow', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.strip() == "[]"


def test_table2_is_derived(tmp_path: Path):
    assert "35.3M" in build_item("table2", "paper", 1, tmp_path / "runs", tmp_path / "build")


def test_unknown_items_are_one_sentence(tmp_path: Path):
    with pytest.raises(UserError, match="did you mean 'table5'"):
        build_item("tabel5", "mini", 1, tmp_path, tmp_path / "build")
    with pytest.raises(UserError, match="did you mean 'claims'"):
        build_item("claim", "mini", 1, tmp_path, tmp_path / "build")
    assert not (tmp_path / "build").exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path):
    (tmp_path / "build").write_text("a file where the folder should be", encoding="utf-8")
    with pytest.raises(UserError, match="can't be made"):
        build_item("table2", "paper", 1, tmp_path, tmp_path / "build")


def test_other_seeds_make_another_table(tmp_path: Path):
    finish_all(tmp_path / "runs", seeds=1)
    text = build_item("table5", "mini", 2, tmp_path / "runs", tmp_path / "build")
    assert f"{planned(seeds=2)[-1].run_id}: not run." in text
