"""The sentences above and below a table of trained runs: its scale, its legend, where its numbers come from."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from analysis.paper.assumptions import footnotes
from analysis.render import Notes
from analysis.tables import score_layout
from analysis.tables.contents import Table
from analysis.tables.rows import TableRow, short_method
from experiments.registry import item, paper_of
from experiments.streaming.base import OUTER
from repro.results.read import Result
from repro.spec.config import OuterConfig
from repro.spec.experiment import PlannedRun, expand, left_out, rounds, shared_rows
from repro.spec.identity import canonical
from repro.spec.metric import METRIC_VERSION
from repro.words import counted, last_line, span

OLDER = (
    f"bits a byte of a version before {METRIC_VERSION} are never compared with newer ones (docs/data.md), losses and "
    "scores are the same in all"
)


def lead(table: Table) -> Iterator[str]:
    """The scale, the models, the seeds and the outer settings."""
    seeds = f"{table.seeds_in_words()} a row"
    if table.scale == "paper":
        yield f"Scale paper, {seeds}. Outer settings: {_outer(table)}."
        return
    models = ", ".join(dict.fromkeys(r.run.config.model.size for r in table.results))
    yield (
        f"Scale {table.scale}: the paper in miniature, own small models ({models}) and text, {seeds}. "
        f"Outer settings: {_outer(table)}."
    )
    if table.cells:
        yield "A value here says nothing about the paper's beside it; the judgements below are on orders and shapes."
    if table.scale == "smoke":
        yield "Scale smoke only shows that everything runs: nothing is learned in so few steps."


def closing(table: Table) -> tuple[Notes, ...]:
    """What stands below the tables: rows left out, sources, run ids, assumptions."""
    missing: dict[str, list[str]] = {}
    for row, why in left_out(table.experiment, table.scale):
        missing.setdefault(why, []).append(row)
    runs = [result.run for result in table.results]
    stated = paper_of(table.experiment.name).states
    sections = (
        Notes(f"Left out at scale {table.scale}", tuple(f"{why}: {'; '.join(rows)}" for why, rows in missing.items())),
        Notes("Rows that are one run", shared_rows(runs)),
        Notes("Where the numbers come from", tuple(_sources(table))),
        Notes("Runs", tuple(_run_lines(table.rows))),
        Notes(
            "What the paper leaves open",
            (
                *table.experiment.notes,
                *(assumption.sentence for assumption in footnotes(runs, stated)),
            ),
        ),
    )
    return tuple(notes for notes in sections if notes.lines)


def _outer(table: Table) -> str:
    """Whether the outer optimiser is the paper's or another one, with its numbers."""
    settings = {r.run.config.sync.outer for r in table.results if r.run.config.sync}
    words = sorted(map(_settings, settings))
    if settings == {OUTER}:
        return f"the paper's ({words[0]}, the momentum assumed)"
    return f"not the paper's ({'; '.join(words)})" if words else "none"


def _settings(outer: OuterConfig) -> str:
    """The optimiser and those of its numbers that are set."""
    numbers = {name: value for name, value in canonical(outer).items() if isinstance(value, float) and value}
    return ", ".join([outer.optimizer, *(f"{name.replace('_', ' ')} {value:g}" for name, value in numbers.items())])


def legend(table: Table) -> Iterator[str]:
    """What the columns and words mean."""
    for method in dict.fromkeys(row.method_run for row in table.rows):
        if short_method(method) != method:
            yield f"{short_method(method)}: {method}."
    yield "Eval Loss: nats a token on held-out text. ±: standard deviation over the n seeds."
    if any(row.ours for row in table.rows):
        yield "*: a point that the paper's text doesn't name."
    yield from _diverged(table)
    yield from score_layout.score_legend(table)
    if table.scale == "paper" and table.cells:
        yield (
            "Verdict on the loss, two-sided. Tolerance beyond the printed rounding: t s √(1 + 1/n), t Student's 97.5 % "
            "quantile, s our spread over n seeds, which the paper's single run is taken to share; with one seed no "
            "deviation is decided."
        )


def _diverged(table: Table) -> Iterator[str]:
    worse = [result for result in table.results if result.diverged]
    rows = [row.name for row in table.rows if any(result.diverged for result in row.results)]
    if worse:
        yield f"Diverged: {'; '.join(rows)}. The loss is above that of guessing, ln V = {worse[0].guessing:.2f}."


def _sources(table: Table) -> Iterator[str]:
    collected = sum(result.archived for result in table.results)
    if collected < len(table.results):
        yield "Ours: validations in summary.json of each run's folder, scores in evals/ beside; by the ids below."
    if collected:
        count = f"{collected} of {len(table.results)}"
        yield f"Ours: {count} results are the collected ones of data/results/{table.scale}.json, by the ids below."
    if table.cells:
        places = dict.fromkeys(cell.where for cell in table.cells)
        name = table.experiment.printed or item(table.experiment.name)
        path = f"data/papers/{paper_of(table.experiment.name).id}/{name}.csv"
        yield f"The paper's: {path} ({'; '.join(places)}), in the characters printed."
    yield from _rounds_beside(table)
    yield from _attempts(table.results)
    yield from _versions(table.results)
    domains = sorted({name for r in table.results if r.summary for name in r.summary.get("in_domain", ())})
    if domains:
        yield f"The training text holds train splits of {', '.join(domains)}: scores on these are in-domain."
    for result in table.results:
        if result.state == "failed" and result.failure:
            reason = last_line(result.failure["reason"])
            yield f"{result.run.run_id} failed: {reason}"
        elif result.state != "done" and any(r.state == "done" for r in table.results):
            yield f"{result.run.run_id}: {result.state}."


def _rounds_beside(table: Table) -> Iterator[str]:
    """Why a miniature may disagree: how many rounds it has where the paper has many more."""
    if table.scale == "paper" or not any(rounds(result.run.config) for result in table.results):
        return
    paper = expand(table.experiment, "paper")
    yield (
        f"Why a shape may disagree at scale {table.scale}: a run has {_span(r.run for r in table.results)} rounds of "
        f"H steps, one of the paper {_span(paper)}, so that its outer optimiser takes far fewer steps."
    )


def _span(runs: Iterable[PlannedRun]) -> str:
    return span(filter(None, (rounds(run.config) for run in runs)))


def _attempts(results: Iterable[Result]) -> Iterator[str]:
    """Commit, versions and machine of the attempts that finished these runs, each combination once."""
    counts: dict[str, int] = {}
    for result in results:
        attempts = (result.provenance or {}).get("attempts", [])
        if result.state == "done" and attempts:
            words = _attempt(attempts[-1], result.dirty)
            counts[words] = counts.get(words, 0) + 1
    for words, count in counts.items():
        yield f"{counted(count, 'run')}: {words}."


def _versions(results: Iterable[Result]) -> Iterator[str]:
    """By which versions the runs' numbers were counted."""
    counts = Counter(result.metric_version for result in results if result.metric_version is not None)
    if len(counts) == 1:
        yield f"Metric version {next(iter(counts))}" + ("." if METRIC_VERSION in counts else f": {OLDER}.")
    elif counts:
        parts = ", ".join(f"{version} ({counted(count, 'run')})" for version, count in sorted(counts.items()))
        yield f"Metric versions {parts}: {OLDER}."


def _attempt(facts: dict[str, Any], dirty: bool | None) -> str:
    commit = f"commit {str(facts.get('commit', 'unknown'))[:10]}"
    commit += {True: " with uncommitted changes", None: " and unknown changes", False: ""}[dirty]
    versions = facts.get("versions", {})
    named = [f"{name} {versions[name]}" for name in ("jax", "jaxlib") if name in versions]
    host = f"{counted(facts.get('cores', '?'), 'core')} of {facts.get('processor', 'an unknown processor')}"
    machine = _devices(facts.get("mesh", {})) + host
    return ", ".join([commit, f"Python {facts.get('python', '?')}", *named, machine])


def _devices(mesh: dict[str, Any]) -> str:
    """What was trained on, before the host's processor; records from before the platform was kept are of CPUs."""
    if mesh.get("platform", "cpu") == "cpu":
        return "on the CPU: "
    return f"on {mesh['replica'] * mesh['data'] * mesh['fsdp']} x {mesh['device']} ({mesh['platform']}) beside "


def _run_lines(rows: Iterable[TableRow]) -> Iterator[str]:
    for row in rows:
        if row.run_ids:
            yield f"{' '.join(row.cells)}: {', '.join(row.run_ids)}"
