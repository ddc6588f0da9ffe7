"""The paper's text, where it lies beside this checkout, and what stands at a place of it."""

import re
from functools import cache
from pathlib import Path

import pytest

PAPER_TEXT = Path(__file__).resolve().parents[3] / "shared" / "reference" / "paper.txt"
needs_paper = pytest.mark.skipif(not PAPER_TEXT.exists(), reason="the paper's text is not beside this checkout")
SECTION = re.compile(r"\d(\.\d)* [A-Z]|Supplementary Materials$")
PARAGRAPH = re.compile(r"[A-Z][\w ’']{3,60}\.$")  # the heading of one in the supplementary materials


@cache
def lines() -> tuple[str, ...]:
    """Those of the paper, without LaTeX's braces round a comma."""
    text = PAPER_TEXT.read_text(encoding="utf-8").replace("{,}", ",").replace("’", "'")
    return tuple(text.splitlines())


def passage(place: str) -> str:
    """The text of `section 2.5`, `Table 4, caption` or `Supplementary Materials, "Paragraph"`; KeyError for none."""
    if caption := re.fullmatch(r"((?:Table|Figure) \d+), caption", place):
        return _caption(caption[1])
    head, _, paragraph = place.removeprefix("section ").partition(', "')
    start = next((i for i, line in enumerate(lines()) if line == head or line.startswith(f"{head} ")), None)
    if start is None:
        raise KeyError(place)
    own = lines()[start + 1 :]
    if not paragraph:
        return "\n".join(own[: _first(own, SECTION)])
    begin = own.index(paragraph.removesuffix('"') + ".") + 1
    return "\n".join(own[begin : begin + _first(own[begin:], PARAGRAPH)])


def _caption(name: str) -> str:
    """The caption with those of its parts, which stand before it."""
    at = next((i for i, line in enumerate(lines()) if line.startswith(f"{name}:")), None)
    if at is None:
        raise KeyError(f"{name}, caption")
    begin = at
    while begin and (not lines()[begin - 1] or re.match(r"\([a-z]\) ", lines()[begin - 1])):
        begin -= 1
    return "\n".join(lines()[begin : at + 1])


def _first(of: tuple[str, ...], heading: re.Pattern[str]) -> int:
    return next((i for i, line in enumerate(of) if heading.match(line)), len(of))
