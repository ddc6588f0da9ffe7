"""Cosine similarity of the replicas' outer gradients over a run, by size and by layer (Figures 17 and 18).

A run's log (`repro.training.similarity`) has records for each fragment taken: one for every layer, one for the
embedding if the
fragment holds it, one for the fragment as a whole, each with the mean cosine over pairs of replicas. As Figure 17's two
captions say, the embedding's fragment stands apart from all others. Three stretches of a run stand for its start, the
most of it and its end.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from analysis.paper.published import Published, by_place, verdict
from analysis.render import Grid, Notes
from analysis.tables.contents import Table
from analysis.tables.rows import TableRow, heads
from repro.results.read import Result

EMBEDDING, WHOLE, LAYER = "embedding", "fragment", "layer "  # parts of a record
STRETCHES = {"start": (0.0, 0.1), "middle": (0.3, 0.7), "end": (0.9, 1.0)}  # shares of the steps; our reading
GROUPS = {"other fragments": False, "embedding": True}
NOTHING = "–"

Series = list[tuple[float, float]]  # (share of the run's steps, cosine)


class Measure(NamedTuple):
    """A column: a number of one run, and the paper's beside it."""

    name: str
    of: Callable[[Result], float | None]
    printed: Published | None = None


def fragments(result: Result, embedding: bool) -> Series:
    """(share of the steps, cosine) of the embedding, or of the fragments without it, when they were taken."""
    with_embedding = {sync["fragment"] for sync in result.syncs if sync["part"] == EMBEDDING}
    if embedding:
        return _series(result, lambda sync: sync["part"] == EMBEDDING)
    return _series(result, lambda sync: sync["part"] == WHOLE and sync["fragment"] not in with_embedding)


def layer(result: Result, number: int) -> Series:
    """(share of the steps, cosine) of one transformer layer, counted from 0."""
    return _series(result, lambda sync: sync["part"] == f"{LAYER}{number}")


def by_layer(result: Result) -> dict[int, float]:
    """Mean cosine of each transformer layer over the whole run."""
    means = {number: mean(layer(result, number)) for number in range(result.run.config.model.layers)}
    return {number: average for number, average in means.items() if average is not None}


def stretch(points: Series, name: str) -> float | None:
    """Mean cosine of a stretch; None without a sync in it."""
    low, high = STRETCHES[name]
    return mean([(share, cosine) for share, cosine in points if low <= share <= high])


def mean(points: Series) -> float | None:
    """Mean cosine; None without a point."""
    return statistics.fmean(cosine for _, cosine in points) if points else None


def measures(table: Table) -> tuple[Measure, ...]:
    """What the table of an experiment shows: the stretches for Figure 17, each layer for Figure 18."""
    if table.experiment.name == "figure18":
        deepest = max(result.run.config.model.layers for result in table.results)
        return tuple(
            Measure(f"layer {number + 1}", lambda result, n=number: mean(layer(result, n))) for number in range(deepest)
        )
    printed = by_place(table.statements)
    return tuple(
        Measure(
            f"{group}, {name}",
            lambda result, e=embedding, n=name: stretch(fragments(result, e), n),
            printed.get((f"cosine | {name}", "Cosine")),
        )
        for group, embedding in GROUPS.items()
        for name in STRETCHES
    )


def sections(table: Table) -> Iterator[Grid | Notes]:
    """The mean cosine of each row over its seeds, with what the paper says of every size in a line of its own."""
    if not table.experiment.syncs or not any(result.syncs for result in table.results):
        return
    columns = measures(table)
    lines = [(*row.cells, *(_short(_by_seed(row, measure)) for measure in columns)) for row in table.rows]
    names = heads(table.rows)
    if any(measure.printed for measure in columns):
        about = (f"≈ {measure.printed.text}" if measure.printed else "" for measure in columns)
        lines.append(("Paper", "every size", *about))
    means = f"over pairs of replicas and {table.seeds_in_words()}"
    title = f"Mean cosine similarity of outer gradients ({table.scale}), {means}"
    yield Grid(title, (*names, *(m.name.replace(", ", ":\n") for m in columns)), tuple(lines), left=len(names))
    yield Notes("", (_meaning(table),))


def csv_lines(table: Table) -> Iterator[tuple[str, ...]]:
    """Lines under the columns of `analysis.tables.layout`."""
    for row in table.rows if table.experiment.syncs else ():
        for measure in measures(table):
            by_seed = _by_seed(row, measure)
            if by_seed:
                yield _csv_line(row, measure, by_seed, table.scale)


def _csv_line(row: TableRow, measure: Measure, by_seed: Mapping[int, float], scale: str) -> tuple[str, ...]:
    ours, printed = statistics.fmean(by_seed.values()), measure.printed
    spread = f"{statistics.stdev(by_seed.values()):.8g}" if len(by_seed) > 1 else ""
    said = "not published"
    if printed is not None:
        said = verdict(printed, ours, 0.0, scale) if scale == "paper" else f"{scale}: no paper verdict"
    numbers = (f"{ours:.8g}", spread, str(len(by_seed)), printed.text if printed else "", "0" if printed else "")
    runs = " ".join(result.run.run_id for result in row.results if result.run.config.seed in by_seed)
    return (row.name, f"Cosine: {measure.name}", *numbers, said, runs)


def _meaning(table: Table) -> str:
    if table.experiment.name == "figure18":
        return "layer 1: the one next to the embedding; the mean over the whole run."
    spans = ", ".join(f"{low:.0%} to {high:.0%}" for low, high in STRETCHES.values())
    return f"{', '.join(STRETCHES)}: {spans} of the steps (our reading of the text)."


def _by_seed(row: TableRow, measure: Measure) -> dict[int, float]:
    return {r.run.config.seed: value for r in row.results if (value := measure.of(r)) is not None}


def _short(by_seed: Mapping[int, float]) -> str:
    return f"{statistics.fmean(by_seed.values()):.3f}" if by_seed else NOTHING


def _series(result: Result, wanted: Callable[[Mapping[str, Any]], bool]) -> Series:
    steps = result.run.config.steps
    return [(s["taken"] / steps, float(s["cosine"])) for s in result.syncs if s["cosine"] is not None and wanted(s)]
