"""What a table says: its scale, its sources, and the CSV that others read."""

from pathlib import Path

import pytest
from fabricated import ATTEMPT, finish, finish_all, planned

from analysis.claims.trained import judgement_grids
from analysis.paper import published
from analysis.paper.dimensionless import compared_numbers
from analysis.render import WIDTH, latex, terminal_text
from analysis.tables.contents import table5
from analysis.tables.layout import COLUMNS, csv_rows, document
from experiments.streaming.base import DP
from experiments.streaming.table5 import EXPERIMENT
from repro.files import write_json
from repro.results.read import Result, collect
from repro.runs.folder import open_folder
from repro.spec.experiment import vary


def tabled(results: tuple[Result, ...]):
    return table5(results, published.load_cells("table5"), EXPERIMENT, published.load_cells("statements"))


def lines_of(tmp_path: Path, scale: str = "mini", seeds: int = 1) -> dict[tuple[str, str], dict[str, str]]:
    table = tabled(collect(finish_all(tmp_path, scale, seeds), tmp_path))
    rows = [dict(zip(COLUMNS, line, strict=True)) for line in csv_rows(table)]
    return {(line["row"], line["column"]): line for line in rows}


def test_csv_has_every_printed_cell_once(tmp_path: Path):
    lines = lines_of(tmp_path)
    names = "row column ours spread n paper tolerance verdict runs metric_version"
    assert tuple(names.split()) == COLUMNS
    assert [line["paper"] for line in lines.values()] == [c.text for c in published.load_cells("table5")]


def test_csv_of_a_miniature_keeps_its_own_size_and_no_verdict(tmp_path: Path):
    lines, (run, *_) = lines_of(tmp_path, seeds=2), planned()
    size = run.config.model.size
    line = lines[f"{size} | {DP}", "Eval Loss"]
    assert line["n"] == "2" and line["verdict"] == "mini: no paper verdict" and line["tolerance"] == ""
    assert line["runs"].split() == [r.run_id for r in planned(seeds=2) if r.row == f"{size} | {DP}"]
    assert float(line["spread"]) > 0
    assert lines[f"{size} | {DP}", "HellaSwag"]["verdict"] == "not evaluated"
    assert float(lines[size, "Flops"]["ours"]) == pytest.approx(run.config.flops)
    assert lines[size, "Flops"]["verdict"] == "mini: no paper verdict"
    assert {lines[key]["verdict"] for key in lines if key[0].startswith(("300M", "4B"))} == {"not run"}


def test_csv_at_paper_scale_judges_flops_without_runs():
    table = tabled(tuple(Result(run) for run in planned("paper")))
    flops = {line[0]: line[7] for line in csv_rows(table) if line[1] == "Flops"}
    assert flops.pop("500M") == "deviates below"
    assert flops.pop("100M") == "deviates below"  # whole rounds leave it 2 % fewer tokens than 20 N
    assert set(flops.values()) == {"reproduced"} and len(flops) == 5


@pytest.mark.parametrize(("scale", "seeds"), [("mini", 1), ("mini", 3), ("paper", 2), ("smoke", 1)])
def test_the_terminal_view_fits_and_names_scale_runs_and_assumptions(tmp_path: Path, scale: str, seeds: int):
    runs = finish_all(tmp_path, scale, seeds)
    table = tabled(collect(runs, tmp_path))
    shown = terminal_text(document(table, judgements=judgement_grids(table, terminal=True), terminal=True))
    assert max(map(len, shown.splitlines())) <= WIDTH
    assert f"Judged on these runs ({scale})" in shown and "superior-to-diloco" in shown
    assert f"scale {scale}" in shown.lower() and all(run.run_id in shown for run in runs)
    shown = " ".join(shown.split())
    assert "Outer settings: the paper's (nesterov," in shown and "learning rate 0.4" in shown
    for words in ("What the paper leaves open", "not evaluated", "data/papers/2501.18512/table5.csv", "in-domain"):
        assert words in shown
    assert "commit 0123456789" in shown and "uncommitted" not in shown


def test_every_character_of_the_full_view_has_a_latex_form(tmp_path: Path):
    for scale in ("paper", "mini"):
        table = tabled(collect(finish_all(tmp_path, scale), tmp_path))
        assert latex(document(table, judgements=judgement_grids(table))).isascii()


def test_outer_settings_that_are_not_the_papers_are_named(tmp_path: Path):
    results = tuple(Result(run if run.config.sync is None else replace_outer(run)) for run in planned())
    shown = " ".join(terminal_text(document(tabled(results))).split())
    assert "Outer settings: not the paper's (nesterov, learning rate 0.7, momentum 0.9)" in shown


def replace_outer(run):
    from dataclasses import replace

    return replace(run, config=vary(run.config, sync__outer__learning_rate=0.7))


def test_failures_dirty_trees_and_missing_runs_are_told(tmp_path: Path):
    one, failed, missing, *_ = runs = planned()
    folder = finish(one, tmp_path)
    write_json(folder.path / "provenance.json", {"attempts": [ATTEMPT | {"commit": "abc", "dirty": True}]})
    reason = "Traceback\n  somewhere\nValueError: the loss of step 3 is nan"
    write_json(open_folder(tmp_path, failed.config).path / "failure.json", {"reason": reason})
    shown = " ".join(terminal_text(document(tabled(collect(runs, tmp_path)), terminal=True)).split())
    assert f"{failed.run_id} failed: ValueError: the loss of step 3 is nan" in shown
    assert f"{missing.run_id}: not run" in shown
    assert "commit abc with uncommitted changes" in shown


def test_a_shape_that_disagrees_comes_with_a_reason_why_it_may(tmp_path: Path):
    """It names the numbers in which the miniature is far from the paper's runs; none where it is far in none."""
    runs = finish_all(tmp_path, seeds=3)
    table = tabled(collect(runs, tmp_path))
    far = compared_numbers(run.config for run in runs)
    text = " ".join(terminal_text(document(table, judgements=judgement_grids(table))).split())
    assert all(number in text for number in far) and ("It may hang on: " in text) == bool(far)
    shown = terminal_text(document(table, judgements=judgement_grids(table, terminal=True), terminal=True))
    assert "shape disagrees (mini)" in shown and "Why a shape may disagree at scale mini" in shown
