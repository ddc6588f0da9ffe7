"""Documents in four forms."""

import html.parser
from pathlib import Path

from analysis.render import WIDTH, Document, Grid, Notes, html_page, latex, markdown, terminal_text

GRID = Grid("Losses", ("Size", "Eval\nLoss", "Verdict"), (("55k | a", "5.10", "ok"), ("1<2", "12.3", "")), 1, True)
DOCUMENT = Document("A & B", ("Words " * 60,), (GRID, Notes("Why", ("100 % of τ ≤ 1, α_1", "word " * 50))))


def test_text_aligns_and_wraps():
    lines = terminal_text(DOCUMENT).splitlines()
    assert max(map(len, lines)) <= WIDTH
    start = lines.index("Losses")
    assert lines[start + 1 : start + 6] == [
        "         Eval",
        "Size     Loss  Verdict",
        "-------  ----  -------",
        "55k | a  5.10  ok",
        "1<2      12.3",
    ]


def test_markdown_escapes_the_bar_and_keeps_heads_on_one_line():
    lines = markdown(DOCUMENT).splitlines()
    assert "| Size | Eval Loss | Verdict |" in lines
    assert "| --- | ---: | --- |" in lines
    assert r"| 55k \| a | 5.10 | ok |" in lines


def test_latex_is_ascii_and_balanced():
    source = latex(DOCUMENT)
    assert source.isascii()
    assert r"100 \% of $\tau$ $\le$ 1, $\alpha$\_1" in source
    assert source.count("\\begin{tabular}") == source.count("\\end{tabular}") == 1
    plain = source.replace(r"\{", "").replace(r"\}", "")
    assert plain.count("{") == plain.count("}")


class Cells(html.parser.HTMLParser):
    """Labels of the cells and what is loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.labels, self.outside = [], []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "td":
            self.labels.append(found["data-label"])
        self.outside += [v for k, v in attrs if k in ("src", "href") and not str(v).startswith("data:")]


def test_page_is_self_contained_and_labels_each_cell(tmp_path: Path):
    picture = tmp_path / "figure5.png"
    picture.write_bytes(b"\x89PNG")
    source = html_page(Document("A & B", (), (GRID,), picture))
    reader = Cells()
    reader.feed(source)
    assert reader.labels == ["Size", "Eval Loss", "Verdict"] * 2
    assert reader.outside == []
    assert "data:image/png;base64,iVBORw==" in source and "1&lt;2" in source and "A &amp; B" in source
