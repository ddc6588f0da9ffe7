"""docs/results.md and the numbers of README.md are those of the collected results."""

import re
from pathlib import Path

import numpy as np

from analysis.pages import results
from analysis.pages.report import build_item
from analysis.paper.published import load_cells
from analysis.paper.simulated import table4_cells
from experiments.registry import load as load_spec
from experiments.streaming.table5 import DILOCO_30, DP, STREAM_30, STREAM_100
from repro.results.collected import records
from repro.spec.experiment import expand, unique

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results.md"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_page_is_what_the_command_writes(tmp_path: Path):
    """Where it differs: python -m repro build results --out docs."""
    assert "README.md repeats" in build_item("results", "mini", None, tmp_path / "runs", tmp_path)
    written = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert written == PAGE.read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["results.md"]


def test_the_table_of_the_miniature_is_what_the_command_writes(tmp_path: Path):
    """Where it differs: make miniature."""
    build_item("miniature", "mini", None, tmp_path / "runs", tmp_path)
    written = (tmp_path / "miniature.md").read_text(encoding="utf-8")
    assert written == (ROOT / "docs" / "miniature.md").read_text(encoding="utf-8")
    cells = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ") for line in written.splitlines()}
    assert cells["rounds of H = 100"][1] == "36" and cells["rounds of H = 30"][1] == "120"  # of 3,600 steps
    assert cells["warm-up over T"][1] == "10 %" and cells["fragments"][4:] == ["3", "7", "13"]


def test_every_collected_run_stands_in_the_page():
    """Its counts of runs and evaluations; a mean of three seeds is that of the three records."""
    page, stored = PAGE.read_text(encoding="utf-8"), records("mini")
    counted = [
        re.findall(r"\| (\d+) \| ([\d, ]+) \| (\d+) \| \d+\.\d \|$", line)[0] for line in _rows(page, "What the")
    ]
    assert not re.search(r"\de-1\d", page)  # what is nothing but rounding
    assert sum(int(runs) for runs, _, _ in counted) == len(stored)
    assert sum(int(scored) for _, _, scored in counted) == sum(len(record["evaluations"]) for record in stored)
    runs = [
        r for r in stored if r["config"]["replicas"] == 8 and r["config"]["sync"]["fragments"]["pattern"] == "whole"
    ]
    for rate in {r["config"]["inner"]["learning_rate"] for r in runs}:  # Figure 12 and the grid
        losses = [
            r["summary"]["validations"]["outer-512"]["loss"]
            for r in runs
            if r["config"]["inner"]["learning_rate"] == rate
        ]
        spread = f" ± {np.std(losses, ddof=1):.3f} ({len(losses)})" if len(losses) > 1 else ""
        assert f"| {np.mean(losses):.3f}{spread} |" in page


def _rows(page: str, title: str) -> list[str]:
    """The last table under a title."""
    return [line for line in page.rpartition(f"## {title}")[2].splitlines() if line.startswith("| ")][2:]


def test_readme_has_the_table_and_its_order():
    table = results.readme_table()
    assert table in README
    rows = [row.split(" | ") for row in table.splitlines()[2:]]
    losses = {row[0].removeprefix("| "): [float(cell.rstrip(" |")) for cell in row[1:]] for row in rows}
    dp, diloco, often, rarely = losses.values()
    assert list(losses) == ["Data-Parallel", "DiLoCo H=30", "Streaming H=30", "Streaming H=100"]
    assert all(a < b < c < d for a, b, c, d in zip(dp, often, diloco, rarely, strict=True))
    cells = {cell.row: cell.value for cell in load_cells("table5") if cell.column == "Eval Loss"}
    for name, ours in zip((DILOCO_30, STREAM_30, STREAM_100), (diloco, often, rarely), strict=True):
        theirs = [cells[f"{size} | {name}"] - cells[f"{size} | {DP}"] for size in ("35M", "100M", "200M")]
        assert min(a - b for a, b in zip(ours, dp, strict=True)) > 1.5 * max(theirs)


def test_readme_shows_real_output(tmp_path: Path):
    shown = [line[4:] for line in README.partition("eight lines:\n\n")[2].split("\n\n")[0].splitlines()]
    assert len(shown) == 8
    text = build_item("table5", "mini", 1, tmp_path / "runs", tmp_path / "build", own=False)
    assert [line for line in shown if line not in text.splitlines()] == []


def test_readme_counts_what_is_planned_and_simulated():
    text, cells = " ".join(README.split()), table4_cells()
    assert f"the paper's {len(unique(expand(load_spec('table5'), 'paper')))} runs" in text
    same = sum(cell.text == cell.paper.text for cell in cells)
    assert f"of the {len(cells)} simulated cells of Table 4 (`make table4`) {same} print as published" in text


def test_readme_counts_the_runs_of_seed_0():
    first = [record for record in records("mini") if record["config"]["seed"] == 0]
    scored = sum(len(record["evaluations"]) for record in first)
    assert f"{len(first)} runs and {scored} evaluations" in " ".join(README.split())
