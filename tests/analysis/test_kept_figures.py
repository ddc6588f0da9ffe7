"""Figures are drawn once: what lies there as code and numbers draw it is kept, and layout is found once."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.pages import ahead, report, stamps
from analysis.pages.stamps import digest
from analysis.tables.contents import table_of
from experiments.registry import load
from repro.results.read import Result
from repro.spec.experiment import expand


def _empty() -> Figure:
    figure = style.column()
    figure.subplots().set_xlabel("a label that takes room")
    return figure


def test_a_figure_without_runs_is_drawn_once_until_its_code_or_the_forms_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    saved = []
    monkeypatch.setattr(
        style, "save_drawn", lambda _, stem, forms: saved.append([stem.with_suffix(f".{f}").touch() for f in forms])
    )
    for forms, count in ((("png",), 1), (("png",), 1), (("png", "svg"), 2), (("png",), 2)):
        report.draw_figure("figure4", tmp_path, forms)
        assert len(saved) == count
    (tmp_path / "figure4.png").unlink()
    report.draw_figure("figure4", tmp_path, ("png",))
    assert len(saved) == 3
    monkeypatch.setattr(stamps, "sources", lambda module: ())
    report.draw_figure("figure4", tmp_path, ("png",))
    assert len(saved) == 4


def test_table5_and_figure5_are_one_picture():
    pictures = []
    for name in ("table5", "figure5"):
        table = table_of(load(name), [Result(run) for run in expand(load(name), "mini")])
        pictures.append(digest(table, "analysis.figures.scaling"))
    assert pictures[0] == pictures[1]


def test_places_found_beforehand_are_those_of_drawing():
    before, by_drawing = _empty(), _empty()
    style.lay_out(before)
    assert before.get_layout_engine() is None
    style.image(by_drawing, "png")
    assert before.axes[0].get_position().bounds == by_drawing.axes[0].get_position().bounds


def test_a_process_that_goes_ahead_draws_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ahead, "cores", lambda: [0, 1])
    with ahead.drawing_ahead(("figure2",), tmp_path, ("png",)) as drawn:
        drawn()
    assert report.is_kept("figure2", tmp_path, ("png",)) and not report.is_kept("figure2", tmp_path, ("png", "svg"))
    monkeypatch.setattr(ahead, "SUITE", tmp_path / "no-such-place")  # nothing is started for what is there
    with ahead.drawing_ahead(("figure2",), tmp_path, ("png",)) as drawn:
        drawn()
