"""The page of everything, build/report.html: where each statement of the paper stands, then each table and figure.

One file that asks for nothing else: styles inside, figures as data, no script.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from analysis import render
from analysis.claims.board import Decision, board_document, decide_all
from analysis.claims.evidence import gather
from analysis.pages import items
from analysis.pages.ahead import drawing_ahead
from analysis.pages.items import Source
from analysis.render import Document
from experiments.papers import DEFAULT, paper
from repro.errors import UserError
from repro.files import write_bytes
from repro.results.read import Result
from repro.spec.config import SCALES
from repro.words import counted

TITLE = "{}, reproduced: where the paper stands"
STYLE = """
body{background:#fff;max-width:78em}h2{font-size:1.3em}h3{font-size:1.05em;margin-top:1.6em}
nav{font-size:.92em;line-height:1.9;border:1px solid #ddd;border-radius:4px;padding:.5em .8em;margin:1em 0}
nav a{margin-right:.9em;white-space:nowrap}a{color:#0b57a4}
section{border-top:3px solid #ddd;margin-top:2.5em}.up{font-size:.9em}
details{margin:1em 0}summary{cursor:pointer;font-weight:600}td.left{max-width:30em;overflow-wrap:break-word}
img{max-height:44em}
@media print{nav,.up{display:none}section{break-before:page}.wide{overflow:visible}body{font-size:11px;margin:0}
details::details-content{content-visibility:visible;block-size:auto}img,tr{break-inside:avoid}}
"""


def build_page(
    scale: str,
    seeds: int | None,
    root: Path,
    out: Path,
    eval_set: str | None = None,
    *,
    own: bool = False,
    of: str = DEFAULT,
) -> Path:
    """Write report.html, of another paper with its prefix, and the figures under `out`; its path.

    `seeds` None takes as many as there are. UserError for an unknown scale.
    """
    if scale not in SCALES:
        raise UserError(f"scale={scale!r}: choose one of {', '.join(SCALES)}.")
    path = out / f"{paper(of).prefix}report.html"
    simulated = [name for name in items.item_names(of) if items.is_figure_without_runs(name)]
    with drawing_ahead(simulated, out, items.PICTURE) as drawn:
        write_bytes(path, report_page(Source(scale, seeds, root, eval_set, own, of), out, drawn).encode())
    return path


def report_page(source: Source, out: Path, drawn: Callable[[], object] = lambda: None) -> str:
    """The whole page; figures are drawn under `out`. `drawn` is called before those without runs are asked for."""
    decisions = decide_all(gather(source.seeds, source.root, own=source.own, of=source.of), source.of)
    names, title = items.item_names(source.of), TITLE.format(paper(source.of).short)
    by_item = items.results(names, source)
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{html.escape(_runs_in_words(source, by_item))}</p>",
        *(_scoreboard(decisions, names) if decisions else _contents(names, scoreboard=False)),
    ]
    documents = {name: items.documents(name, source, by_item, out) for name in names if name in by_item}
    drawn()
    documents |= {name: items.documents(name, source, by_item, out) for name in names if name not in by_item}
    for name in names:
        body = items.section(name, documents[name], decisions)
        parts += [f'<section id="{name}">', *body, '<p class="up"><a href="#contents">Contents</a></p>', "</section>"]
    return render.whole_page(title, parts, STYLE)


def _scoreboard(decisions: tuple[Decision, ...], names: Sequence[str]) -> list[str]:
    """Counts, the contents, then every statement."""
    stands = board_document(decisions)
    first = Document(stands.title, stands.lead, (items.verdict_grid(decisions),))
    return [
        '<section id="scoreboard">',
        *render.body(first, 2),
        *_contents(names),
        *render.body(Document("", (), stands.sections[1:]), 2),
        "</section>",
    ]


def _contents(names: Sequence[str], *, scoreboard: bool = True) -> list[str]:
    links = [f'<a href="#{name}">{html.escape(items.item_label(name))}</a>' for name in names]
    first = '<a href="#scoreboard">Scoreboard</a>' if scoreboard else ""
    return [f'<nav id="contents" aria-label="Contents">{first}', *links, "</nav>"]


def _runs_in_words(source: Source, by_item: Mapping[str, Sequence[Result]]) -> str:
    runs = {result.run.run_id: result for results in by_item.values() for result in results}
    done = [result for result in runs.values() if result.state == "done"]
    collected = sum(result.archived for result in done)
    unclean = {
        "were made from uncommitted changes": sum(result.dirty is True for result in done),
        "were made from code of no known commit": sum(result.dirty is None for result in done),
    }
    seeds = counted(source.count, "seed")
    sentence = (
        f"arXiv {paper(source.of).id}. Trained items at scale {source.scale}, {seeds}: "
        f"{len(done)} of {len(runs)} runs are finished, {collected} of them taken from the collected results"
    )
    return "; ".join([sentence, *(f"{count} {what}" for what, count in unclean.items() if count)]) + "."
