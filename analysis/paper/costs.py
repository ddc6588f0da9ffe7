"""What a whole paper costs: each experiment's runs, and all of them with shared runs counted once. No JAX.

python -m repro plan all --scale paper [--json]
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from experiments.papers import DEFAULT, paper
from experiments.registry import trained
from repro.network.account import run_bytes
from repro.spec.experiment import PlannedRun, expand, left_out, unique
from repro.words import BYTE_UNITS, aligned, counted, short

CHIP, CHIP_FLOPS = "TPU v5e", 197e12  # bfloat16, a second
UTILISATION = 0.6  # Table 4's MFU
SECONDS_AN_HOUR = 3_600


@dataclass(frozen=True)
class Cost:
    """What unique runs cost; `shared` of them belong to an item above too, `bytes_sent` is summed over replicas."""

    item: str
    place: str
    runs: int
    shared: int
    left_out: int
    tokens: int
    flops: float
    bytes_sent: int

    @property
    def chip_hours(self) -> float:
        """FLOPs over `UTILISATION` of a chip's peak."""
        return self.flops / (UTILISATION * CHIP_FLOPS * SECONDS_AN_HOUR)


def costs(scale: str, seeds: int = 1, of: str = DEFAULT) -> tuple[Cost, ...]:
    """One for each experiment of a paper that trains, and the last for all together. UserError on a bad scale."""
    seen: dict[str, PlannedRun] = {}
    items = []
    for experiment in trained("all", of):
        runs = unique(expand(experiment, scale, seeds))
        shared = sum(run.run_id in seen for run in runs)
        missing = len(left_out(experiment, scale))
        items.append(_cost(experiment.name, experiment.place, runs, shared, missing))
        seen |= {run.run_id: run for run in runs}
    return (*items, _cost("all", "each run once", tuple(seen.values()), 0, 0))


def _cost(item: str, place: str, runs: Sequence[PlannedRun], shared: int, missing: int) -> Cost:
    configs = [run.config for run in runs]
    return Cost(
        item,
        place,
        len(runs),
        shared,
        missing,
        sum(config.tokens for config in configs),
        sum(config.flops for config in configs),
        sum(run_bytes(config) * config.replicas for config in configs),
    )


def costs_json(scale: str, seeds: int = 1, of: str = DEFAULT) -> str:
    """The costs as JSON."""
    rows = [asdict(cost) | {"chip_hours": cost.chip_hours} for cost in costs(scale, seeds, of)]
    basis = {"chip": CHIP, "peak_flops_per_s": CHIP_FLOPS, "utilisation": UTILISATION}
    return json.dumps({"scale": scale, "seeds": seeds, "basis": basis, "items": rows}, indent=1)


def costs_text(scale: str, seeds: int = 1, of: str = DEFAULT) -> str:
    """A line an item, and the whole."""
    items = costs(scale, seeds, of)
    head = ("item", "where", "runs", "shared", "left out", "tokens", "FLOPs", "sent", f"{CHIP}-hours")
    lines = [
        f"The whole paper at scale {scale}, {counted(seeds, 'seed')}: {paper(of).short}, arXiv {paper(of).id}",
        "",
        *aligned(head, map(_cells, items), left=2),
        "",
        "runs: unique ones of the item; shared: those that an item above has too. sent: payload of all replicas, "
        "Data-Parallel two bytes a parameter a step.",
        f"{CHIP}-hours: 6 N · tokens at {UTILISATION:.0%} of {CHIP_FLOPS / 1e12:g} TFLOP/s.",
    ]
    return "\n".join(lines)


def _cells(cost: Cost) -> tuple[str, ...]:
    hours = f"{cost.chip_hours:,.0f}" if cost.chip_hours >= 10 else f"{cost.chip_hours:.2g}"
    return (
        cost.item,
        cost.place,
        str(cost.runs),
        str(cost.shared),
        str(cost.left_out) if cost.item != "all" else "",
        short(cost.tokens),
        f"{cost.flops:.3g}".replace("e+", "e"),
        short(cost.bytes_sent, BYTE_UNITS),
        hours,
    )
