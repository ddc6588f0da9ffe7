"""Table 5 from invented runs: means, verdicts by scale, slopes."""

import math
import statistics
from collections.abc import Mapping
from pathlib import Path

import pytest
from fabricated import finish, finish_all, invented_loss, planned, summary

from analysis.paper import published
from analysis.tables.contents import Table, runs_table, table5
from analysis.tables.rows import TableRow
from experiments.streaming.table5 import DP, EXPERIMENT, STREAM_30, STREAM_100
from repro.results.read import Result, collect


def tabled(results: tuple[Result, ...]) -> Table:
    return table5(results, published.load_cells("table5"), EXPERIMENT, published.load_cells("statements"))


def invented(scale: str, losses: Mapping[str, list[float]]) -> Table:
    """Runs with given losses by the paper's row, one a seed; the other rows are planned and not run."""
    seeds = max(map(len, losses.values()))
    results = []
    for run in planned(scale, seeds):
        values = losses.get(run.paper_row, [])
        done = run.config.seed < len(values)
        results.append(Result(run, summary(run.config, values[run.config.seed]) if done else None))
    return tabled(tuple(results))


def row(table: Table, paper_row: str) -> TableRow:
    return next(r for r in table.rows if r.paper_row == paper_row)


def test_mean_and_spread_over_seeds(tmp_path: Path):
    runs = finish_all(tmp_path, seeds=3)
    table = tabled(collect(runs, tmp_path))
    ours = row(table, f"35M | {DP}")
    expected = [invented_loss(r) for r in runs if r.paper_row == ours.paper_row]
    assert (ours.point, ours.method, len(ours.losses)) == (ours.results[0].run.config.model.size, DP, 3)
    assert ours.mean == pytest.approx(sum(expected) / 3)
    assert ours.spread == pytest.approx(statistics.stdev(expected))


def test_every_printed_row_is_there_once_and_those_without_a_miniature_are_not_run(tmp_path: Path):
    table = tabled(collect(finish_all(tmp_path), tmp_path))
    printed = list(dict.fromkeys(c.row for c in published.load_cells("table5") if c.column == "Eval Loss"))
    assert [r.paper_row for r in table.rows] == printed
    assert {r.paper_row.split(" | ")[0] for r in table.rows if r.verdict == "not run"} == {"300M", "500M", "1B", "4B"}


def test_a_miniature_never_gets_a_paper_verdict():
    same = {r.paper_row: [r.printed["Eval Loss"].value or 0.0] * 3 for r in invented("mini", {"": [0.0]}).rows}
    table = invented("mini", same)
    assert {r.verdict for r in table.rows if r.results} == {"mini: no paper verdict"}
    assert {r.tolerance for r in table.rows} == {None}


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([3.512], "reproduced"),
        ([3.52], "undecided (one seed)"),
        ([3.40], "undecided (one seed)"),
        ([3.50, 3.53], "reproduced"),
        ([3.54, 3.54, 3.5401], "deviates worse"),
        ([3.45, 3.45, 3.4501], "deviates better"),
        ([], "not run"),
    ],
)
def test_verdicts_at_paper_scale(losses: list[float], expected: str):
    """The paper prints 3.51 for data-parallel at 35M."""
    table = invented("paper", {f"35M | {DP}": losses, f"35M | {STREAM_30}": [3.5]})
    assert row(table, f"35M | {DP}").verdict == expected


def test_the_tolerance_is_that_of_one_run_against_a_mean_of_n():
    ours = row(invented("paper", {f"35M | {DP}": [3.0, 3.2]}), f"35M | {DP}")
    assert ours.tolerance == pytest.approx(12.7062 * math.sqrt(0.02) * math.sqrt(1.5))  # t of one degree of freedom


def test_slopes_are_fitted_to_our_means_and_to_the_printed_cells(tmp_path: Path):
    runs = planned(seeds=2)
    for run in runs:
        finish(run, tmp_path, loss=9.0 - 0.2 * math.log(run.config.flops) + 0.01 * (-1) ** run.config.seed)
    slopes = {s.method: s for s in tabled(collect(runs, tmp_path)).slopes}
    assert slopes[DP].ours is not None and slopes[DP].ours.slope == pytest.approx(-0.2)
    assert slopes[DP].paper is not None and round(slopes[DP].paper.slope, 5) == -0.13148
    assert {m: s.printed.text for m, s in slopes.items() if s.printed} == {DP: "-0.13149", STREAM_100: "-0.13539"}


def test_one_size_has_no_slope():
    slopes = invented("mini", {f"35M | {DP}": [9.0, 9.1]}).slopes
    assert all(s.ours is None and s.ours_power is None for s in slopes)


def test_a_partly_run_row_counts_what_is_there(tmp_path: Path):
    runs = planned(seeds=3)
    for run in runs[:-12]:
        finish(run, tmp_path)
    table = tabled(collect(runs, tmp_path))
    assert {len(r.losses) for r in table.rows if r.results} == {2}


def test_other_experiments_have_rows_of_their_own(tmp_path: Path):
    runs = finish_all(tmp_path, scale="smoke")
    table = runs_table(collect(runs, tmp_path), EXPERIMENT)
    assert len(table.rows) == 12 and not any(r.printed for r in table.rows)


def test_a_table_needs_a_planned_run():
    with pytest.raises(ValueError, match="at least one planned run"):
        tabled(())


def test_rows_of_unlike_seeds_are_told_and_slopes_take_the_seeds_that_all_have():
    """The first size has three seeds; a mean over them beside single ones would tilt the line."""
    points = [
        (f"{size} | {DP}", losses) for size, losses in (("35M", [4.0, 9.0, 9.0]), ("100M", [3.5]), ("200M", [3.0]))
    ]
    table = invented("mini", dict(points))
    alone = invented("mini", {row: losses[:1] for row, losses in points})
    assert table.seeds_in_words() == "n = 1 to 3 seeds" and alone.seeds_in_words() == "n = 1 seed"
    assert (row(table, points[0][0]).mean, row(alone, points[0][0]).mean) == (pytest.approx(22 / 3), 4.0)
    slopes = [next(s for s in made.slopes if s.method == DP).ours for made in (table, alone)]
    assert slopes[0] is not None and slopes[0] == slopes[1]
