"""A document of tables and notes as plain text, Markdown, LaTeX and HTML; lines as CSV. Standard library only."""

import base64
import csv
import html
import io
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro.files import write_bytes

WIDTH = 120  # of a terminal

_LATEX = {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", "|": r"\textbar{}", "\n": " "}
_LATEX |= {character: f"\\{character}" for character in "&%$#_{}"}
_LATEX |= {"§": r"\S{}", "–": "--", "—": "---", "’": "'", "“": "``", "”": "''", "é": r"\'e"}
_LATEX |= {
    character: f"${name}$"
    for character, name in {
        "−": "-",
        "±": r"\pm",
        "·": r"\cdot",
        "×": r"\times",
        "≤": r"\le",
        "≥": r"\ge",
        "≠": r"\ne",
        "≈": r"\approx",
        "ŷ": r"\hat{y}",
        "γ": r"\gamma",
        "…": r"\dots",
        "→": r"\to",
        "√": r"\surd",
        "²": "^2",
        "α": r"\alpha",
        "β": r"\beta",
        "ε": r"\varepsilon",
        "τ": r"\tau",
        "θ": r"\theta",
        "Δ": r"\Delta",
    }.items()
}

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#1b1b1b}
h1{font-size:1.5em;line-height:1.25}h2{font-size:1.1em;margin-top:2em}
table{border-collapse:collapse;font-size:.92em}
th,td{padding:.25em .6em;text-align:right;vertical-align:top;border-bottom:1px solid #ddd}
th{vertical-align:bottom}th.left,td.left{text-align:left}
.wide{overflow-x:auto}img{max-width:100%;height:auto}li{margin:.2em 0;overflow-wrap:anywhere}
@media screen and (max-width:56em){thead{display:none}table,tbody{display:block}
tr{display:block;padding:.6em 0;border-bottom:2px solid #bbb}
td,td.left{display:flex;justify-content:space-between;gap:1em;text-align:right;border:0;padding:.1em 0}
td::before{content:attr(data-label);color:#666;text-align:left;flex:none;max-width:55%}
td.empty{display:none}}
"""


@dataclass(frozen=True)
class Grid:
    """A table of text cells; the first `left` columns and the last if `last_left` are aligned left.

    A head may hold a line break, kept in plain text only.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    last_left: bool = False

    def to_left(self, column: int) -> bool:
        """Whether a column's cells are aligned left."""
        return column < self.left or (self.last_left and column == len(self.head) - 1)


@dataclass(frozen=True)
class Notes:
    """A titled list of sentences."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Document:
    """A title, opening sentences, then tables and notes; `picture` (PNG) goes into the HTML page."""

    title: str
    lead: tuple[str, ...]
    sections: tuple[Grid | Notes, ...]
    picture: Path | None = None


def terminal_text(document: Document) -> str:
    """For a terminal: tables as wide as they are, sentences wrapped at 120 characters."""
    lines = [document.title, *_wrapped(document.lead)]
    for section in document.sections:
        lines += ["", *([section.title] if section.title else [])]
        lines += _aligned(section) if isinstance(section, Grid) else _wrapped(section.lines, "- ")
    return "\n".join(lines)


def markdown(document: Document) -> str:
    """GitHub's form; `|` inside a cell is escaped."""
    lines = [f"# {document.title}", ""]
    for paragraph in document.lead:
        lines += [paragraph, ""]
    for section in document.sections:
        lines += [f"## {section.title}", ""] if section.title else []
        lines += markdown_grid(section) if isinstance(section, Grid) else [f"- {x}" for x in section.lines]
        lines.append("")
    return "\n".join(lines)


def latex(document: Document) -> str:
    """A fragment to \\input: booktabs tables scaled to the line (graphicx), notes as small paragraphs."""
    lines = [f"% {_latex(document.title)}", "% needs booktabs and graphicx"]
    lines += [f"\\par {_latex(paragraph)}" for paragraph in document.lead]
    for section in document.sections:
        lines += [f"\\par\\medskip\\noindent\\textbf{{{_latex(section.title)}}}"] if section.title else []
        if isinstance(section, Grid):
            lines += _latex_grid(section)
        else:
            lines += [f"\\par{{\\footnotesize {_latex(line)}}}" for line in section.lines]
    return "\n".join([*lines, ""])


def csv_text(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A file for programs: a head and lines of cells."""
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows([head, *rows])
    return lines.getvalue()


def html_page(document: Document) -> str:
    """One self-contained HTML page; on a narrow screen each row becomes a card."""
    return whole_page(document.title, body(document))


def whole_page(title: str, parts: Iterable[str], style: str = "") -> str:
    """A self-contained page around `parts` in HTML; `style` follows the style of every page."""
    return "\n".join(
        [
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{_STYLE}{style}</style></head><body>",
            *parts,
            "</body></html>\n",
        ]
    )


def body(document: Document, level: int = 1, fold: int | None = None) -> list[str]:
    """The document as HTML under a heading of `level`; titled notes of more than `fold` lines open on a click."""
    parts = [f"<h{level}>{html.escape(document.title)}</h{level}>"] if document.title else []
    parts += [f"<p>{html.escape(line)}</p>" for line in document.lead]
    if document.picture is not None:
        data = base64.b64encode(document.picture.read_bytes()).decode()
        name = html.escape(f"{document.picture.stem}: {document.title}")
        parts.append(f'<p><img alt="{name}" src="data:image/png;base64,{data}"></p>')
    for section in document.sections:
        inside = _html_grid(section) if isinstance(section, Grid) else _html_list(section)
        title = html.escape(section.title)
        if isinstance(section, Notes) and title and fold is not None and len(section.lines) > fold:
            summary = f"<summary>{title} ({len(section.lines)})</summary>"
            parts += [f"<details>{summary}", *inside, "</details>"]
        else:
            parts += [f"<h{level + 1}>{title}</h{level + 1}>"] if title else []
            parts += inside
    return parts


def write(document: Document, stem: Path) -> None:
    """Write `stem`.md, .tex and .html."""
    for suffix, content in ((".md", markdown(document)), (".tex", latex(document)), (".html", html_page(document))):
        write_bytes(stem.with_suffix(suffix), content.encode())


def _wrapped(paragraphs: Iterable[str], bullet: str = "") -> Iterator[str]:
    for paragraph in paragraphs:
        yield from textwrap.wrap(
            paragraph,
            WIDTH,
            initial_indent=bullet,
            subsequent_indent=" " * len(bullet),
            break_long_words=False,
            break_on_hyphens=False,
        )


def _aligned(grid: Grid) -> list[str]:
    heads = [cell.split("\n") for cell in grid.head]
    depth = max(map(len, heads))
    head_rows = zip(*([""] * (depth - len(cell)) + cell for cell in heads), strict=True)
    table = [*head_rows, *grid.rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    rule = ["-" * width for width in widths]
    return [
        "  ".join(
            cell.ljust(width) if grid.to_left(i) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (*table[:depth], rule, *table[depth:])
    ]


def markdown_grid(grid: Grid) -> list[str]:
    rules = tuple("---" if grid.to_left(i) else "---:" for i in range(len(grid.head)))
    head = tuple(cell.replace("\n", " ") for cell in grid.head)
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (head, rules, *grid.rows)]


def _latex_grid(grid: Grid) -> list[str]:
    columns = "".join("l" if grid.to_left(i) else "r" for i in range(len(grid.head)))
    return [
        f"\\par\\noindent\\resizebox{{\\linewidth}}{{!}}{{\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        _latex_row(grid.head),
        "\\midrule",
        *(_latex_row(row) for row in grid.rows),
        "\\bottomrule",
        "\\end{tabular}}",
    ]


def _latex_row(row: Sequence[str]) -> str:
    return " & ".join(map(_latex, row)) + r" \\"


def _latex(words: str) -> str:
    return "".join(_LATEX.get(character, character) for character in words)


def _html_grid(grid: Grid) -> list[str]:
    heads = [html.escape(cell.replace("\n", " ")) for cell in grid.head]
    classes = ["left" if grid.to_left(i) else "" for i in range(len(heads))]
    head = "".join(f'<th class="{c}">{cell}</th>' for c, cell in zip(classes, heads, strict=True))
    rows = []
    for row in grid.rows:
        cells = (
            f'<td class="{c}{"" if cell else " empty"}" data-label="{label}">{html.escape(cell)}</td>'
            for c, label, cell in zip(classes, heads, row, strict=True)
        )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return [f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>', *rows, "</tbody></table></div>"]


def _html_list(notes: Notes) -> list[str]:
    return ["<ul>", *(f"<li>{html.escape(line)}</li>" for line in notes.lines), "</ul>"]
