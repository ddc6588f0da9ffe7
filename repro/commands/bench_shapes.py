"""Speed over shapes, a part of `make bench`: over the batch, and by method and M at equal tokens a step.

Every case is the loop of one process on one core; tokens a second are medians over interleaved blocks, and a ratio is
that of the same block, so that a machine that drifts does so for all.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.streaming.base import DP
from experiments.streaming.table5 import DILOCO_30, STREAM_30, method_rows
from repro.commands.bench_case import STEPS, Case, interleaved
from repro.commands.peers.own_config import config_of
from repro.commands.peers.serve import SHAPES
from repro.spec.config import RunConfig
from repro.spec.experiment import vary
from repro.spec.scales import at_scale
from repro.words import aligned

BATCHES = (1, 2, 4, 8, 16, 32)
REPLICAS = (1, 2, 4, 8)
BLOCKS = 5
SMALL, USUAL = 2, 8  # sequences a step whose costs are compared
LARGEST_SHARE = 0.35  # of a step of USUAL sequences, that one of SMALL may take


def configs() -> dict[str, dict[str, RunConfig]]:
    """The cases of each table, by its name; the first of each is what the others are held against."""
    methods = methods_of("35M")
    parallel, diloco, streaming = methods.values()
    by_batch = {f"B = {b}": vary(parallel, batch=b) for b in (USUAL, *(b for b in BATCHES if b != USUAL))}
    by_method = {name: vary(config, batch=max(REPLICAS)) for name, config in methods.items()}
    by_method |= {
        f"{name}, M = {m}": vary(config, batch=max(REPLICAS), replicas=m)
        for name, config in (("DiLoCo", diloco), ("Streaming", streaming))
        for m in REPLICAS
        if m != config.replicas
    }
    d = SHAPES["d"]
    shape_d = {"d as data-parallel": config_of(d._replace(replicas=1)), "d": config_of(d)}
    return {"batch": by_batch, "method": by_method, "shape": shape_d}


def methods_of(size: str) -> dict[str, RunConfig]:
    """Data-Parallel, DiLoCo and Streaming at a size of Table 5, in miniature."""
    mini = {row.labels[1]: at_scale(row.config, "mini") for row in method_rows(size)}
    names = {DP: DP, DILOCO_30: "DiLoCo", STREAM_30: "Streaming"}
    return {name: config for label, name in names.items() if (config := mini[label]) is not None}


def measure_shapes(cache: Path) -> list[str]:
    """Lines of the report."""
    lines = []
    for cases in configs().values():
        held = {name: Case(config, cache) for name, config in cases.items()}
        seconds = interleaved({name: case.loop for name, case in held.items()}, BLOCKS)
        lines += ["", *_table(cases, seconds)]
        small, usual = f"B = {SMALL}", f"B = {USUAL}"
        if small in seconds:
            share = float(np.median(seconds[small] / seconds[usual]))
            lines.append(f"{f'a step of {SMALL} sequences / one of {USUAL}':<52} {share:7.3f}  bar <= {LARGEST_SHARE}")
    return lines


def _table(cases: Mapping[str, RunConfig], seconds: Mapping[str, Any]) -> list[str]:
    """Tokens a second of each case, and its speed over that of the first."""
    rate = {name: STEPS * c.batch * c.model.seq_len / seconds[name] for name, c in cases.items()}
    first = next(iter(cases))
    rows = [
        (
            name,
            f"{np.median(r):,.0f}",
            f"{1e3 * np.median(seconds[name]) / STEPS:.2f}",
            f"{np.median(r / rate[first]):.2f}",
        )
        for name, r in rate.items()
    ]
    return aligned(("case", "tokens/s", f"/ {first}"), rows, left=1)
