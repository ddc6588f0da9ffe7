"""The page of everything: one file that asks for nothing else, with every item, the scoreboard first."""

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fabricated import finish_all

from analysis.pages import items, page, report
from analysis.pages.items import BESIDE, Source, show
from analysis.render import Document, Grid, Notes, body
from experiments.registry import experiment_names, in_order
from repro.errors import UserError
from repro.results.collected import seeds_there

DOT = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")
VOID = ("meta", "img")


class Reader(HTMLParser):
    """Tags in order, what each loads, and whether every tag is closed where it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, self.getpos()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page without runs of one's own; figures are drawn by their own tests, here each is a dot."""
    out = tmp_path_factory.mktemp("page")

    def dot(name: str) -> Path:
        path = out / f"{name}.png"
        path.write_bytes(DOT)
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "drawn", lambda table, out, forms: dot(table.experiment.name))
        patch.setattr(report, "draw_figure", lambda name, out, forms: str(dot(name)))
        return page.report_page(Source("mini", 1, out / "no-runs"), out)


@pytest.fixture(scope="module")
def read(whole: str) -> Reader:
    reader = Reader()
    reader.feed(whole)
    assert reader.open == []
    return reader


def test_it_asks_for_nothing_else(whole: str, read: Reader):
    loading = [attrs.get("src") or attrs.get("href") or "" for _, attrs in read.tags]
    assert all(place.startswith(("#", "data:image/png;base64,")) for place in loading if place)
    assert not {tag for tag, _ in read.tags} & {"script", "link", "iframe", "object"}
    style = whole[whole.index("<style>") : whole.index("</style>")]
    assert "url(" not in style and "@import" not in style


def test_every_item_has_a_section_and_the_scoreboard_is_first(read: Reader):
    sections = [attrs["id"] for tag, attrs in read.tags if tag == "section"]
    assert sections == ["scoreboard", *in_order(), *BESIDE]
    assert sorted(in_order()) == sorted(experiment_names("streaming")) and in_order()[0] == "table1"
    links = {attrs["href"] for tag, attrs in read.tags if tag == "a"}
    assert links == {"#contents", *(f"#{name}" for name in sections)}


def test_every_drawn_item_has_its_figure_with_words_for_it(read: Reader):
    images = [attrs for tag, attrs in read.tags if tag == "img"]
    drawn = {alt.split(":")[0] for attrs in images if (alt := attrs["alt"])}
    figures = {name for name in experiment_names("streaming") if name.startswith("figure")}
    assert drawn >= figures | {"fedpart", "table5", "figure6b"} and len(images) == len(drawn)


def test_a_statement_stands_under_its_items(whole: str):
    section = whole[whole.index('<section id="table4">') : whole.index('<section id="table5">')]
    assert "The bandwidths of Table 4" in section and "73 of 75 cells print as published." in section
    board = whole[: whole.index('<section id="table1">')]
    assert "Statements by verdict" in board and "What the words mean" in board


def test_a_page_wide_enough_for_a_phone(whole: str, read: Reader):
    boxes = [(before, after) for (before, _), (after, _) in zip(read.tags, read.tags[1:], strict=False)]
    assert all(before == "div" for before, after in boxes if after == "table")
    assert ".wide{overflow-x:auto}" in whole and 'name="viewport"' in whole


def test_long_notes_open_on_a_click():
    notes = Document("T", (), (Notes("Open", ("a", "b")), Notes("", ("c", "d")), Grid("G", ("x",), (("1",), ("2",)))))
    assert "<details>" not in "".join(body(notes))
    folded = "".join(body(notes, 2, fold=1))
    assert folded.count("<details>") == 1 and "<summary>Open (2)</summary>" in folded and "<h3>G</h3>" in folded


def test_runs_of_ones_own_are_told_from_the_collected(tmp_path: Path):
    finish_all(tmp_path, seeds=2)
    found = items.results(["table5"], Source("mini", 2, tmp_path))["table5"]
    assert not any(result.archived for result in found)
    tuned = {own: items.results(["tuning"], Source("mini", 1, tmp_path, own=own))["tuning"] for own in (True, False)}
    assert any(result.archived for result in tuned[False]) and not any(result.archived for result in tuned[True])
    assert seeds_there("mini", tmp_path, own=True) == 2 and seeds_there("smoke", tmp_path) == 1


def test_seeds_are_those_of_the_runs_of_a_scale_whatever_their_ids_begin_with(tmp_path: Path):
    """An id at paper scale has no prefix; a folder without a run counts for nothing."""
    (tmp_path / "notes").mkdir()
    finish_all(tmp_path, scale="paper", seeds=3)
    finish_all(tmp_path, scale="mini", seeds=2)
    assert [seeds_there(scale, tmp_path, own=True) for scale in ("paper", "mini", "smoke")] == [3, 2, 1]


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path):
    with pytest.raises(UserError, match="is no folder"):
        show("table5", tmp_path / "none")
    with pytest.raises(UserError, match="did you mean 'table5'"):
        show("tabel5")
    with pytest.raises(UserError, match="choose one of paper"):
        page.build_page("huge", None, tmp_path, tmp_path / "build")
    assert not (tmp_path / "build").exists()


def test_words_of_a_result_are_no_markup():
    told = "".join(body(Document("<b>", ("a & b",), (Grid("", ("<i>",), (("<script>",),)),))))
    assert re.findall(r"<(b|i|script)>", told) == [] and "&lt;script&gt;" in told
