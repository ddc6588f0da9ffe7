"""docs/miniature.md: what of the paper's runs the miniature matches and what it doesn't, as dimensionless numbers.

All follow from the specs of Table 5 and the knobs of the scales; no run is read.
"""

from dataclasses import replace
from pathlib import Path

from analysis import render
from analysis.render import Document, Grid, Notes
from experiments.streaming.table5 import DP, STREAM_30, STREAM_100
from experiments.streaming.table5 import EXPERIMENT as TABLE5
from repro.files import write_bytes
from repro.spec.config import RunConfig, SyncConfig
from repro.spec.experiment import expand, rounds
from repro.spec.fragments import cut
from repro.spec.laws import BATCHES, DATA_PARALLEL, SEQUENCE
from repro.spec.scales import MINI_BATCH, SMALLEST_PARAMS, method_family
from repro.spec.schedule import age_at_end

PAPER_SIZES = ("35M", "500M", "4B")

LEAD = (
    "Written by `python -m repro build miniature --out docs` from the specs of Table 5. A miniature can't have the "
    "paper's sizes; what decides whether its orders and shapes may be held against the paper's are numbers without a "
    "unit. Each of them stands here for the three miniatures of Table 5 and for three of the paper's sizes.",
)
NOTES = (
    "Matched: H, τ, α, M, codec, outer optimiser, tokens a parameter, the end of the cosine, and at 35M the warm-up's "
    "share: a tenth of a miniature's steps, about what 1,000 are of that run.",
    "Not matched: rounds, of which the paper's larger sizes have many more; fragments, fewer in a small model "
    "than the large ones; and the size itself.",
    "Batch over the best batch: the paper's sizes over the law of arXiv 2503.09799; a miniature over the best of its "
    "grid at 45k (`make tuning`; 2 sequences, the fewest that two replicas can share), carried on to the larger sizes "
    "by the law's power of N.",
    "Lag: the most steps of which the copy that is scored has nothing, of any fragment, over all steps. A miniature is "
    "flushed after its last step (`sync.flush`), so that it has none; without it would have what stands in brackets.",
)


def build_miniature(out: Path) -> str:
    """Write miniature.md under `out`; the text to print."""
    page = _document()
    write_bytes(out / "miniature.md", (render.markdown(page).rstrip("\n") + "\n").encode())
    return f"{render.terminal_text(page)}\n\nWritten to {out}: miniature.md."


def _document() -> Document:
    runs = {
        (scale, run.config.model.size, run.paper_row.partition(" | ")[2]): run.config
        for scale in ("mini", "paper")
        for run in expand(TABLE5, scale)
    }
    mini = tuple(dict.fromkeys(size for scale, size, _ in runs if scale == "mini"))
    columns = [("mini", size) for size in mini] + [("paper", size) for size in PAPER_SIZES]
    head = ("Number", *mini, *(f"paper {size}" for size in PAPER_SIZES))
    cells = [_column(runs[*at, DP], runs[*at, STREAM_100], runs.get((*at, STREAM_30))) for at in columns]
    rows = tuple((name, *(column[name] for column in cells)) for name in cells[0])
    return Document("What the miniature matches", LEAD, (Grid("", head, rows), Notes("How to read it", NOTES)))


def _column(alone: RunConfig, rarely: RunConfig, often: RunConfig | None) -> dict[str, str]:
    """The numbers of a size: of Data-Parallel, of Streaming with H = 100, and with H = 30 where the paper ran it."""
    fragments = cut(_sync(rarely).fragments, rarely.model.layers)
    return {
        "parameters N, by the rule": f"{rarely.model.params_by_rule:,}",
        "steps T, Streaming": f"{rarely.steps:,}",
        "steps T, Data-Parallel": f"{alone.steps:,}",
        "tokens a parameter": f"{rarely.tokens / rarely.model.params_by_rule:.1f}",
        "rounds of H = 30": f"{rounds(often):,}" if often else "not run by the paper",
        "rounds of H = 100": f"{rounds(rarely):,}",
        "warm-up over T": _percent(rarely.inner.warmup_steps / rarely.steps),
        "batch over the best batch, Streaming": _batch_ratio(rarely),
        "batch over the best batch, Data-Parallel": _batch_ratio(alone),
        "fragments": str(len(fragments)),
        "layers of a fragment over all": f"{_sync(rarely).fragments.layers / rarely.model.layers:.2f}",
        "lag over T, H = 30": _lag(often) if often else "not run by the paper",
        "lag over T, H = 100": _lag(rarely),
    }


def _batch_ratio(config: RunConfig) -> str:
    """Over the law's batch; a miniature's over the best of its grid at 45k, times the law's power of N."""
    replicas, params = config.replicas if config.sync else DATA_PARALLEL, config.model.params_by_rule
    law = BATCHES[replicas]
    if config.scale == "paper":
        return f"{config.batch * config.model.seq_len / (law.at(params, replicas) * SEQUENCE):.2f}"
    best = MINI_BATCH[method_family(config)] * (params / SMALLEST_PARAMS) ** law.of_params
    return f"{config.batch / best:.2f}"


def _sync(config: RunConfig) -> SyncConfig:
    assert config.sync is not None, "Data-Parallel has no rounds"
    return config.sync


def _lag(config: RunConfig) -> str:
    """The lag of the copy that is scored; in brackets what it would be without a flush."""
    sync = _sync(config)
    last, unflushed = (_lag_share(config, each) for each in (sync, replace(sync, flush="none")))
    return last if sync.flush == "none" else f"{last} ({unflushed})"


def _lag_share(config: RunConfig, sync: SyncConfig) -> str:
    count = len(cut(sync.fragments, config.model.layers))
    return _percent(max(age_at_end(sync, count, p, config.steps) for p in range(count)) / config.steps)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
