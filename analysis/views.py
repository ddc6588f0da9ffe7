"""What a table of trained runs looks like: its columns, notes and CSV lines. Every view says its scale."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from analysis import score_views
from analysis.fits import Line
from analysis.render import Document, Grid, Notes
from analysis.tables import FLOPS, LOSS, SCORES, Row, Table, short
from experiments.base import OUTER
from repro.assumptions import footnotes
from repro.evals import METRICS, SHOWN
from repro.experiment import expand
from repro.paper import Claim, Published, verdict
from repro.results import Result

COLUMNS = ("row", "column", "ours", "spread", "n", "paper", "tolerance", "verdict", "runs")
NOTHING = "–"


def document(table: Table, picture: Path | None = None, terminal: bool = False) -> Document:
    """The whole account; `terminal` has the same rows in columns that fit 120 characters."""
    title = f"{table.experiment.title} ({table.experiment.place})"
    runs = [result.run for result in table.results]
    grid = _terminal_grid(table) if terminal else _grid(table)
    sections: list[Grid | Notes] = [grid, Notes("", tuple(_legend(table)))]
    sections += score_views.grids(table, (SHOWN,) if terminal else METRICS)
    if table.claims:
        sections.append(_claims(table))
    if any(slope.ours or slope.paper for slope in table.slopes):
        sections.append(_slopes(table))
    sections += [
        Notes("Where the numbers come from", tuple(_sources(table))),
        Notes("Runs", tuple(_run_lines(table.rows))),
        Notes("What the paper leaves open", tuple(made.sentence for made in footnotes(runs))),
    ]
    name = "" if table.scale == "paper" else f", at scale {table.scale}"
    return Document(title + name, tuple(_lead(table)), tuple(sections), picture)


def csv_rows(table: Table) -> tuple[tuple[str, ...], ...]:
    """Lines under `COLUMNS`: every printed cell once, beside our run of it or of its miniature."""
    lines: list[tuple[str, ...]] = []
    flops = {cell.row: cell for cell in table.cells if cell.column == FLOPS}
    seen: set[str] = set()
    for row in table.rows:
        paper_size = row.paper_row.split(" | ")[0]
        if paper_size in flops and paper_size not in seen:
            seen.add(paper_size)
            lines.append(_flops_line(row, flops[paper_size], table.scale))
        lines += _row_lines(row)
    return tuple(lines)


def _row_lines(row: Row) -> Iterator[tuple[str, ...]]:
    name = " | ".join(filter(None, (row.size, row.method)))
    paper = row.printed[LOSS].text if LOSS in row.printed else ""
    numbers = (_full(row.mean), _full(row.spread), str(len(row.losses)), paper, _full(row.tolerance))
    yield (name, LOSS, *numbers, row.verdict, " ".join(row.run_ids))
    for column in SCORES:
        if column in row.printed:
            yield score_views.csv_line(row, name, column)


def _flops_line(row: Row, cell: Published, scale: str) -> tuple[str, ...]:
    """FLOPs follow from the config, so they are judged with or without a run, at paper scale alone."""
    if row.flops is None:
        return (row.size, FLOPS, "", "", "0", cell.text, "", "not run", "")
    at_paper = scale == "paper"
    said = verdict(cell, row.flops, 0.0, scale) if at_paper else f"{scale}: no paper verdict"
    tolerance = "0" if at_paper else ""
    runs = " ".join(row.run_ids)
    return (row.size, FLOPS, _full(row.flops), "", str(len(row.losses)), cell.text, tolerance, said, runs)


def _grid(table: Table) -> Grid:
    beside = any(row.printed for row in table.rows)
    head = ("Size", "Method", "FLOPs", LOSS, "±", "n", "State")
    if beside:
        paper = ("Paper: size", f"Paper: {LOSS}", *(f"Paper: {score}" for score in SCORES))
        head = (*head[:-1], *SCORES, *paper, "Verdict")
    rows = []
    for row in table.rows:
        ours = (row.size, row.short, _flops(row), *_loss(row))
        if beside:
            size = row.paper_row.split(" | ")[0]
            scores = tuple(score_views.cell(row, column) for column in SCORES)
            rows.append((*ours, *scores, size, *_printed(row), row.verdict))
        else:
            rows.append((*ours, row.state))
    return Grid(_heading(table), head, tuple(rows), left=2, last_left=True)


def _terminal_grid(table: Table) -> Grid:
    beside = any(row.printed for row in table.rows)
    if not beside:
        return _grid(table)
    head = (
        "size",
        "method",
        "FLOPs",
        "Eval\nLoss",
        "±",
        "n",
        "\nHSwag",
        "\nPiqa",
        "\nArcE",
        "paper\nsize",
        "paper\nLoss",
    )
    head = (*head, "paper\nHSwag", "paper\nPiqa", "paper\nArcE", "verdict")
    rows = []
    for row in table.rows:
        scores = tuple(score_views.short_cell(row, column) for column in SCORES)
        size = row.paper_row.split(" | ")[0]
        ours = (row.size, row.short, _flops(row), *_loss(row))
        judged = row.verdict.replace("no paper verdict", "no verdict")  # for the width; the heading says whose
        rows.append((*ours, *scores, size, *_printed(row), judged))
    return Grid(_heading(table), head, tuple(rows), left=2, last_left=True)


def _loss(row: Row) -> tuple[str, str, str]:
    mean = NOTHING if row.mean is None else f"{row.mean:.3f}"
    spread = NOTHING if row.spread is None else f"{row.spread:.3f}"
    return mean, spread, str(len(row.losses))


def _flops(row: Row) -> str:
    return NOTHING if row.flops is None else f"{row.flops:.2g}".replace("e+", "e")


def _printed(row: Row) -> tuple[str, ...]:
    return tuple(row.printed[column].text if column in row.printed else "" for column in (LOSS, *SCORES))


def _heading(table: Table) -> str:
    if table.scale == "paper":
        return "Ours beside the paper's"
    if table.cells:
        return f"Ours ({table.scale}) beside the paper's row of the same method, at another size: never compared"
    return f"Ours ({table.scale})"


def _lead(table: Table) -> Iterator[str]:
    seeds = f"n = {table.seeds} seed{'' if table.seeds == 1 else 's'} a row"
    if table.scale == "paper":
        yield f"Scale paper, {seeds}. Outer settings: {_outer(table)}."
        return
    yield (
        f"Scale {table.scale}: the paper in miniature, own small models and text, {seeds}. "
        f"Outer settings: {_outer(table)}."
    )
    if table.cells:
        yield "A value here says nothing about the paper's beside it; the claims below are about orders and shapes."
    if table.scale == "smoke":
        yield "Scale smoke only shows that everything runs: nothing is learned in so few steps."


def _outer(table: Table) -> str:
    """Whether the outer optimiser is the paper's or another one, with its numbers."""
    found = {r.run.config.sync.outer for r in table.results if r.run.config.sync}
    told = [
        f"{o.optimizer}, learning rate {o.learning_rate:g}, momentum {o.momentum:g}"
        for o in sorted(found, key=lambda o: (o.optimizer, o.learning_rate, o.momentum))
    ]
    if found == {OUTER}:
        return f"the paper's ({told[0]}, the momentum assumed)"
    return f"not the paper's ({'; '.join(told)})" if told else "none"


def _legend(table: Table) -> Iterator[str]:
    for method in dict.fromkeys(row.method for row in table.rows):
        if short(method) != method:
            yield f"{short(method)}: {method}."
    yield "Eval Loss: nats a token on held-out text. ±: standard deviation over the n seeds."
    if not any(row.printed for row in table.rows):
        return
    yield from score_views.legend(table)
    if table.scale == "paper":
        yield (
            "Verdict on the loss, two-sided. Tolerance beyond the printed rounding: 2 s √(1 + 1/n), s our spread "
            "over n seeds, which the paper's single run is taken to share; with one seed no deviation is decided."
        )


def _claims(table: Table) -> Grid:
    rows = []
    for decided in table.claims:
        rows.append((decided.claim.text, "all", "", decided.verdict))
        rows += [("", name, _difference(part), part.verdict) for name, part in decided.parts]
    head = ("Claim", "Where", "Difference", "Verdict")
    title = f"Claims on these runs ({table.scale}): paired differences over seeds, ± standard error"
    return Grid(title, head, tuple(rows), left=2, last_left=True)


def _difference(part: Claim) -> str:
    if part.difference is None:
        return ""
    error = "" if part.standard_error is None else f" ± {part.standard_error:.4f}"
    return f"{part.difference:+.4f}{error} (n={part.seeds})"


def _slopes(table: Table) -> Grid:
    head = (
        "Method",
        f"Ours ({table.scale})",
        "Ours: power law",
        "Paper: its cells",
        "Paper: printed",
        "Paper: power law",
    )
    rows = tuple(
        (
            short(slope.method),
            _slope(slope.ours),
            _slope(slope.ours_power),
            _slope(slope.paper),
            slope.printed.text if slope.printed else NOTHING,
            _slope(slope.paper_power),
        )
        for slope in table.slopes
    )
    return Grid("Slope of the loss on ln FLOPs, and exponent of a power law", head, rows)


def _slope(line: Line | None) -> str:
    return NOTHING if line is None else f"{line.slope:.5f}"


def _sources(table: Table) -> Iterator[str]:
    yield "Ours: validation_loss in summary.json of each run's folder, scores in evals/ beside it; the ids are below."
    if table.cells:
        places = dict.fromkeys(cell.where for cell in table.cells)
        item = table.experiment.name
        yield f"The paper's: data/paper/{item}.csv ({'; '.join(places)}), in the characters printed."
    yield from _disagreements(table)
    collected = sum(result.archived for result in table.results)
    if collected:
        yield f"{collected} of {len(table.results)} results are the collected ones of data/results/{table.scale}.json."
    yield from _made_by(table.results)
    domains = sorted({name for r in table.results if r.summary for name in r.summary.get("in_domain", ())})
    if domains:
        yield f"The training text holds train splits of {', '.join(domains)}: scores on these are in-domain."
    for result in table.results:
        if result.state == "failed" and result.failure:
            reason = str(result.failure["reason"]).strip().splitlines()[-1]
            yield f"{result.run.run_id} failed: {reason}"
        elif result.state != "done" and any(r.state == "done" for r in table.results):
            yield f"{result.run.run_id}: {result.state}."


def _disagreements(table: Table) -> Iterator[str]:
    """Why a miniature may disagree: how many rounds it has where the paper has many more."""
    if table.scale == "paper" or all(decided.verdict != "disagrees" for decided in table.claims):
        return
    ours, paper = _rounds(table.results), _rounds(Result(run) for run in expand(table.experiment, "paper"))
    yield (
        f"Why a claim may disagree at scale {table.scale}: a run has {ours[0]} to {ours[1]} rounds of H steps, one "
        f"of the paper {paper[0]:,} to {paper[1]:,}, so that its outer optimiser takes far fewer steps."
    )


def _rounds(results: Iterable[Result]) -> tuple[int, int]:
    found = [r.run.config.steps // r.run.config.sync.every for r in results if r.run.config.sync]
    return min(found), max(found)


def _made_by(results: Iterable[Result]) -> Iterator[str]:
    """Commit, versions and machine of the attempts that finished these runs, each combination once."""
    made: dict[str, int] = {}
    for result in results:
        attempts = (result.provenance or {}).get("attempts", [])
        if result.state == "done" and attempts:
            words = _attempt(attempts[-1])
            made[words] = made.get(words, 0) + 1
    for words, count in made.items():
        yield f"{count} run{'' if count == 1 else 's'}: {words}."


def _attempt(facts: dict[str, Any]) -> str:
    commit = f"commit {str(facts.get('commit', 'unknown'))[:10]}"
    commit += " with uncommitted changes" if facts.get("dirty") else ""
    versions = facts.get("versions", {})
    named = [f"{name} {versions[name]}" for name in ("jax", "jaxlib") if name in versions]
    machine = f"{facts.get('cores', '?')} cores of {facts.get('processor', 'an unknown processor')}"
    return ", ".join([commit, f"Python {facts.get('python', '?')}", *named, machine])


def _run_lines(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        if row.run_ids:
            name = " ".join(filter(None, (row.size, row.short)))
            yield f"{name}: {', '.join(row.run_ids)}"


def _full(value: float | None) -> str:
    return "" if value is None else f"{value:.8g}"
