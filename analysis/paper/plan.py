"""What the runs of an experiment are and cost, before any is run. At once: no JAX, no pandas.

python -m repro plan table5 --scale paper [--json]
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from analysis.paper.assumptions import footnotes, power_of_two
from analysis.paper.published import Published, by_place, cells_of, load_cells, printed_interval
from experiments.papers import DEFAULT
from experiments.registry import paper_of
from repro.corpora import CORPORA
from repro.errors import UserError
from repro.network.account import run_bytes
from repro.spec.config import RunConfig
from repro.spec.experiment import Experiment, PlannedRun, expand, left_out, unique
from repro.spec.fragments import cut
from repro.spec.scales import TOKENS_PER_PARAMETER
from repro.spec.schedule import age_at_end, sends_applied
from repro.spec.shapes import parameter_count
from repro.words import BYTE_UNITS, aligned, counted, short


@dataclass(frozen=True)
class Plan:
    """One run: `params` by the paper's rule, `true_params` with positions and norms; the printed numbers
    beside are those of the paper's row, None where it prints none or at another scale.
    """

    run_id: str
    row: str  # the first of those that show it
    rows: tuple[str, ...]  # all of them
    size: str
    params: int
    true_params: int
    tokens: int
    printed_budget: str | None
    batch_tokens: int  # of a step over all replicas
    steps: int
    rate: float  # of the inner optimiser at its peak
    flops: float
    printed_flops: str | None
    flops_as_printed: bool | None
    every: int | None  # H
    rounds: float | None  # of H steps; no whole number where H doesn't divide the steps
    fragments: int | None
    sends: int
    bytes_sent: int  # by each replica over the run, the trainer's payload
    ages: tuple[int, ...]  # steps since the last applied outer gradient, by fragment


def plan(experiment: Experiment, scale: str, seeds: int = 1) -> tuple[Plan, ...]:
    """Each run of `experiment` once, in order; UserError for what is simulated and has no runs."""
    printed = _printed(experiment)
    runs = _expanded(experiment, scale, seeds)
    rows: dict[str, list[str]] = {}
    for run in runs:
        rows.setdefault(run.run_id, []).append(run.full_row)
    return tuple(_planned(run, tuple(rows[run.run_id]), printed) for run in unique(runs))


def plan_json(experiment: Experiment, scale: str, seeds: int = 1) -> str:
    """The plan and its assumptions as JSON."""
    runs = _expanded(experiment, scale, seeds)
    facts = {
        "experiment": experiment.name,
        "scale": scale,
        "runs": [asdict(entry) for entry in plan(experiment, scale, seeds)],
        "left_out": [{"row": row, "why": why} for row, why in left_out(experiment, scale)],
        "notes": list(experiment.notes),
        "assumptions": [asdict(assumption) for assumption in footnotes(runs, paper_of(experiment.name).states)],
    }
    return json.dumps(facts, indent=1)


def plan_text(experiment: Experiment, scale: str, seeds: int = 1) -> str:
    """The plan for a terminal; for Table 2 the derived architectures beside its cells."""
    runs = _expanded(experiment, scale, seeds)
    entries = plan(experiment, scale, seeds)
    parts = [f"{experiment.title} ({experiment.place}), scale {scale}: {counted(len(entries), 'run')}", ""]
    if experiment.name == "table2":
        parts += [*_architectures(runs, entries), ""]
    else:
        parts += [*_run_lines(entries, scale), "", *_row_lines(entries), *_age_lines(entries), *_totals(entries), ""]
    missing = left_out(experiment, scale)
    if missing:
        parts += ["Left out:", *(f"- {row}: {why}" for row, why in missing), ""]
    parts += ["What the paper leaves open:", *(f"- {note}" for note in experiment.notes)]
    parts += [f"- {assumption.sentence}" for assumption in footnotes(runs, paper_of(experiment.name).states)]
    return "\n".join(parts)


def _expanded(experiment: Experiment, scale: str, seeds: int) -> tuple[PlannedRun, ...]:
    if not isinstance(experiment, Experiment):
        name = getattr(experiment, "name", experiment)
        raise UserError(f"{name} is computed and has no runs to plan: `python -m repro build {name}` shows it.")
    return expand(experiment, scale, seeds)


def _printed(experiment: Experiment) -> dict[tuple[str, str], Published]:
    """The cells that stand beside a plan: FLOPs of the experiment's own table, budgets of Table 2."""
    own = (cell for cell in cells_of(experiment) if cell.column == "Flops")
    budgets = load_cells("table2") if paper_of(experiment.name).name == DEFAULT else ()
    return by_place([*budgets, *own])


def _planned(run: PlannedRun, rows: tuple[str, ...], printed: dict[tuple[str, str], Published]) -> Plan:
    config, sync = run.config, run.config.sync
    size = run.paper_row.split(" | ")[0]
    at_paper = config.scale == "paper"
    flops = printed.get((size, "Flops")) if at_paper else None
    budget = printed.get((size, "Token budget")) if at_paper and CORPORA[config.corpus].budgets else None
    fragments = len(cut(sync.fragments, config.model.layers)) if sync else None
    return Plan(
        run_id=run.run_id,
        row=run.row,
        rows=rows,
        size=config.model.size,
        params=config.model.params_by_rule,
        true_params=parameter_count(config.model),
        tokens=config.tokens,
        printed_budget=budget.text if budget else None,
        batch_tokens=config.batch * config.model.seq_len,
        steps=config.steps,
        rate=config.inner.learning_rate,
        flops=config.flops,
        printed_flops=flops.text if flops else None,
        flops_as_printed=_prints_as(flops, config.flops) if flops else None,
        every=sync.every if sync else None,
        rounds=config.steps / sync.every if sync else None,
        fragments=fragments,
        sends=_sends(config, fragments),
        bytes_sent=run_bytes(config),
        ages=_ages(config, fragments),
    )


def _prints_as(cell: Published, value: float) -> bool:
    low, high = printed_interval(cell)
    return low <= value <= high


def _sends(config: RunConfig, fragments: int | None) -> int:
    if config.sync is None or fragments is None:
        return config.steps
    return sum(sends_applied(config.sync, fragments, p, config.steps) for p in range(fragments))


def _ages(config: RunConfig, fragments: int | None) -> tuple[int, ...]:
    if config.sync is None or fragments is None:
        return ()
    return tuple(age_at_end(config.sync, fragments, p, config.steps) for p in range(fragments))


def _run_lines(entries: Sequence[Plan], scale: str) -> list[str]:
    head = ["run", "N", "true N", "tokens", "batch", "rate", "steps", "FLOPs", "H", "rounds", "frag.", "sends", "sent"]
    rows = [_cells(entry) for entry in entries]
    if scale == "paper":
        head[4:4], head[9:9] = ["printed"], ["printed"]
        for row, entry in zip(rows, entries, strict=True):
            flops = (entry.printed_flops or "-") + (" *" if entry.flops_as_printed is False else "")
            row[4:4], row[9:9] = [entry.printed_budget or "-"], [flops]
    notes = [
        "N = 12 d² L + V d, as the printed budgets and FLOPs count; true N adds positions and norms. "
        "FLOPs = 6 N · tokens.",
        "sent: payload of each replica, codes and scales; Data-Parallel two bytes a parameter a step.",
    ]
    off = [entry for entry in entries if entry.flops_as_printed is False]
    if off:
        by_size = "; ".join(dict.fromkeys(map(_flops_beside, off)))
        notes.append(f"* FLOPs that don't print as published: {by_size}.")
    return [*aligned(head, rows), "", *notes]


def _flops_beside(entry: Plan) -> str:
    budget = TOKENS_PER_PARAMETER * entry.params
    exact = 6.0 * entry.params * budget
    whole = f", and {exact:.3g} before the tokens were rounded to whole rounds" if entry.tokens != budget else ""
    return f"{entry.size}: {entry.flops:.3g} against the printed {entry.printed_flops}{whole}"


def _cells(entry: Plan) -> list[str]:
    return [
        entry.run_id,
        short(entry.params),
        short(entry.true_params),
        short(entry.tokens),
        power_of_two(entry.batch_tokens),
        f"{entry.rate:g}",
        f"{entry.steps:,}",
        f"{entry.flops:.3g}".replace("e+", "e"),
        "-" if entry.every is None else str(entry.every),
        "-" if entry.rounds is None else f"{entry.rounds:,.4g}",
        "-" if entry.fragments is None else str(entry.fragments),
        f"{entry.sends:,}",
        short(entry.bytes_sent, BYTE_UNITS),
    ]


def _row_lines(entries: Sequence[Plan]) -> list[str]:
    """Every row beside the id of its run."""
    rows = [(entry.run_id if i == 0 else "the same run", row) for entry in entries for i, row in enumerate(entry.rows)]
    return ["Rows, each with the values that are run:", *aligned(("run", "row"), rows, left=2), ""]


def _age_lines(entries: Sequence[Plan]) -> list[str]:
    aged = [entry for entry in entries if entry.ages]
    if not aged:
        return []
    head = "Age of each fragment as scored at the end, in steps since its last applied outer gradient, in order:"
    rows = [(entry.run_id, " ".join(map(str, entry.ages))) for entry in aged]
    return [head, *aligned(("run", "ages"), rows, left=2), ""]


def _totals(entries: Sequence[Plan]) -> list[str]:
    tokens, flops = sum(entry.tokens for entry in entries), sum(entry.flops for entry in entries)
    return [f"In all: {counted(len(entries), 'run')}, {short(tokens)} tokens, {flops:.3g} FLOPs."]


def _architectures(runs: Sequence[PlannedRun], entries: Sequence[Plan]) -> list[str]:
    at_paper = runs[0].config.scale == "paper"
    head = ("size", "hidden dim", "layers", "heads", "d", "head", "N", "true N", "tokens")
    rows = []
    for run, entry in zip(runs, entries, strict=True):
        model = run.config.model
        shape = (model.ffn_width, model.layers, model.heads, model.width, model.head_size)
        counts = (short(entry.params), short(entry.true_params), short(entry.tokens))
        rows.append((model.size, *(f"{value:,}" for value in shape), *counts))
    if not at_paper:
        return aligned(head, rows)
    beside = ("Hidden dim", "Num layers", "Num heads", "Token budget")
    cells = by_place(load_cells("table2"))
    rows = [(*row, *(cells[row[0], column].text for column in beside)) for row in rows]
    note = (
        "The hidden dim is the width of the feed-forward layer: d = F / 4. N = 12 d² L + V d; tokens: 20 N, in whole "
        "rounds."
    )
    return [
        *aligned((*head, *(f"{column}*" for column in beside)), rows),
        "",
        note,
        "* as printed in Table 2.",
    ]
