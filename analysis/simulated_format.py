"""A table of text cells as Markdown, LaTeX, HTML and plain text, with its notes below. Standard library
only.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from repro.files import write_bytes

_LATEX = {"\\": r"\textbackslash{}", "≠": r"$\neq$", "·": r"$\cdot$", "×": r"$\times$", "τ": r"$\tau$"}
_LATEX |= {"²": r"$^2$", "−": "-", "≥": r"$\geq$", "≤": r"$\leq$"}
_LATEX |= {c: f"\\{c}" for c in "&%$#_{}"} | {"^": r"\^{}", "~": r"\~{}", "|": r"\textbar{}"}


@dataclass(frozen=True)
class Sheet:
    """A title, one head, rows of as many cells, and notes."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """For a terminal: columns padded to their widest cell."""
        widths = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (self.head, *self.rows)
        ]
        return "\n".join([self.title, "", *lines, "", *self.notes])

    def markdown(self) -> str:
        """GitHub's table form; `|` inside a cell is escaped."""
        rows = [self.head, ("---",) * len(self.head), *self.rows]
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        notes = [f"- {note}" for note in self.notes]
        return "\n".join([f"# {self.title}", "", *lines, "", *notes, ""])

    def latex(self) -> str:
        """A booktabs tabular with the notes as paragraphs."""
        body = [self._latex_row(row) for row in self.rows]
        notes = [f"\\par\\footnotesize {_latex(note)}" for note in self.notes]
        spec = "l" * len(self.head)
        lines = [f"\\begin{{tabular}}{{{spec}}}", "\\toprule", self._latex_row(self.head), "\\midrule"]
        return "\n".join([f"% {self.title}", *lines, *body, "\\bottomrule", "\\end{tabular}", *notes, ""])

    def html(self) -> str:
        """One self-contained page."""
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.head)
        rows = "\n".join(f"<tr>{_html_cells(row)}</tr>" for row in self.rows)
        notes = "\n".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>{html.escape(self.title)}</title>\n"
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            "<style>body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:76em;padding:0 1em}"
            "div{overflow-x:auto}table{border-collapse:collapse}th,td{padding:.25em .7em;text-align:left;"
            "vertical-align:top;border-bottom:1px solid #ddd}</style></head><body>\n"
            f"<h1>{html.escape(self.title)}</h1>\n<div><table><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n"
            f"</tbody></table></div>\n<ul>\n{notes}\n</ul>\n</body></html>\n"
        )

    def _latex_row(self, row: Sequence[str]) -> str:
        return " & ".join(_latex(cell) for cell in row) + r" \\"


def write_sheet(sheet: Sheet, stem: Path) -> None:
    """Write `stem`.md, .tex and .html."""
    for suffix, content in ((".md", sheet.markdown()), (".tex", sheet.latex()), (".html", sheet.html())):
        write_bytes(stem.with_suffix(suffix), content.encode())


def _html_cells(row: Sequence[str]) -> str:
    return "".join(f"<td>{html.escape(cell)}</td>" for cell in row)


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
