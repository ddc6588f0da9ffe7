"""Notebooks: they only call `analysis`, are committed without outputs, and run against the committed results."""

import ast
import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.pages import items
from experiments.registry import in_order
from repro.files import write_bytes

FOLDER = Path(__file__).parents[2] / "analysis" / "notebooks"
THEMES = ("ablations", "accounts-and-inconsistencies", "compression", "scaling", "simulation")


def cells(theme: str) -> list[str]:
    """The code of a notebook, which holds no output."""
    stored = json.loads((FOLDER / f"{theme}.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    return ["".join(cell["source"]) for cell in code]


def run(sources: list[str]) -> list[str]:
    """The HTML that each cell's last expression displays, cell after cell in one namespace, as a kernel does."""
    names: dict[str, object] = {}
    told = []
    for source in sources:
        *body, last = ast.parse(source).body
        if not isinstance(last, ast.Expr):
            body, last = [*body, last], None
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        if last is not None:
            told.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names)._repr_html_())
    return told


def unrendered(figure: Figure, stem: Path, forms: tuple[str, ...]) -> list[Path]:
    """In place of a figure's pixels, which are most of the time; what is in it is made, and tested on its own."""
    assert figure.axes
    path = stem.with_suffix(".png")
    write_bytes(path, b"pixels")
    return [path]


def test_there_is_one_for_each_theme_and_they_show_every_item():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == sorted(THEMES)
    told = "".join(source for theme in THEMES for source in cells(theme))
    missing = {name for name in items.item_names() if f'show("{name}", ROOT, SEEDS, SCALE)' not in told}
    assert missing == {"table5", "tuning"}  # the runs of Figure 5, which shows both; learning rates, no theme of these


@pytest.mark.parametrize("theme", THEMES)
def test_one_cell_says_whose_runs_and_the_others_only_call(theme: str):
    first, second, *calls = cells(theme)
    assert [line.split(" = ")[0] for line in first.splitlines()] == ["ROOT", "SEEDS", "SCALE"]
    assert second == "from analysis.pages.items import scoreboard, show"
    for call in calls:
        (node,) = ast.parse(call).body
        assert isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)
        assert node.value.func.id in {"show", "scoreboard"}


@pytest.mark.parametrize("theme", THEMES)
def test_it_runs_against_the_committed_results(theme: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(style, "save_figure", unrendered)
    sources = cells(theme)
    told = run(sources)
    assert len(told) == len(sources) - 2
    assert all("<table>" in html or "data:image/png;base64," in html for html in told)


def test_the_seeds_and_scale_of_the_first_cell_count(tmp_path: Path):
    found = run(
        [f"ROOT = {str(tmp_path)!r}", "from analysis.pages.items import show", 'show("table3", ROOT, 2, "smoke")']
    )
    assert "Scale smoke" in found[0] and "n = 2 seeds a row" in found[0] and "table3" in in_order()
