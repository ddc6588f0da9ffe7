"""Figure 5: what is drawn where."""

from pathlib import Path

import pytest
from fabricated import finish_all, planned

from analysis.figures.scaling import figure5
from analysis.figures.style import SCALING, image
from analysis.paper import published
from analysis.tables.contents import Table, table5
from experiments.streaming.table5 import EXPERIMENT, METHODS
from repro.results.read import Result, collect


def tabled(results: tuple[Result, ...]) -> Table:
    return table5(results, published.load_cells("table5"), EXPERIMENT, published.load_cells("statements"))


def test_the_papers_points_and_ours_are_in_panels_of_their_own(tmp_path: Path):
    table = tabled(collect(finish_all(tmp_path, seeds=2), tmp_path))
    theirs, ours, scores, own_scores, *_ = figure5(table).axes
    assert all(y < 4 for line in theirs.lines for y in line.get_ydata())
    means = [[r.mean for r in table.rows if r.method == m and r.mean] for m in METHODS]
    assert [list(c.lines[0].get_ydata()) for c in ours.containers] == means  # type: ignore[union-attr]
    assert [c.lines[0].get_color() for c in ours.containers] == list(SCALING)  # type: ignore[union-attr]
    assert [len(line.get_ydata()) for line in scores.lines] == [7, 6, 6, 7]
    assert [t.get_text() for t in own_scores.texts] == ["not evaluated"]
    assert theirs.get_xscale() == ours.get_xscale() == scores.get_xscale() == "log"


def test_solid_lines_are_the_semi_log_fits(tmp_path: Path):
    table = tabled(collect(finish_all(tmp_path), tmp_path))
    solid = [
        line for line in figure5(table).axes[0].lines if len(line.get_xdata()) == 100 and line.get_linestyle() == "-"
    ]
    assert len(solid) == 2
    line = table.slopes[0].paper
    assert line is not None
    x, y = solid[0].get_xdata()[50], solid[0].get_ydata()[50]
    assert y == pytest.approx(line.at(x))


@pytest.mark.parametrize("form", ["png", "svg"])
def test_without_runs_the_papers_half_is_drawn_and_ours_says_not_run(form: str):
    figure = figure5(tabled(tuple(Result(run) for run in planned())))
    assert [t.get_text() for i in (1, 3) for t in figure.axes[i].texts] == ["not run"] * 2
    assert len(image(figure, form)) > 10_000
