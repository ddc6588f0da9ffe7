"""Speed as ratios: every pair of things is timed in interleaved blocks of one run, since machines drift.

    make bench

Placement: one process on one core, all replicas on its one device; a table runs one such process a core.
Each ratio is the median over blocks of the paired ratio, with the range that half of the blocks fall in.
"""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from repro.commands import bench_start, options
from repro.commands.bench_case import BLOCKS, STEPS, Case, interleaved
from repro.cores import cores, keep_to
from repro.diloco.jax_settings import pin
from repro.words import show_what_can_be

SIZE = "100M"  # the second of the mini ladder


@dataclass(frozen=True)
class Ratio:
    """A measured ratio and the bar that it is held to."""

    name: str
    ratios: np.ndarray
    bar: str
    note: str

    def line(self) -> str:
        """One line of the report."""
        low, middle, high = np.quantile(self.ratios, (0.25, 0.5, 0.75))
        return f"{self.name:<52} {middle:7.3f}  [{low:.3f}, {high:.3f}]  bar {self.bar:<7} {self.note}"


def measure_ratios(cache: Path) -> tuple[list[Ratio], list[str]]:
    """All ratios, and lines about what was run."""
    import jax

    from experiments.streaming.base import DP
    from experiments.streaming.table5 import STREAM_30, method_rows
    from repro.spec.experiment import vary
    from repro.spec.scales import at_scale

    configs = {row.labels[1]: at_scale(row.config, "mini") for row in method_rows(SIZE)}
    dp, stream = Case(configs[DP], cache), Case(configs[STREAM_30], cache)
    off = Case(vary(configs[STREAM_30], sync__every=10**6), cache)
    seconds = interleaved(
        {
            "dp loop": dp.loop,
            "dp program": dp.program,
            "stream loop": stream.loop,
            "off loop": off.loop,
            "encode": _encoder(stream),
            "gram": _gram(stream),
        }
    )
    tokens = STEPS * stream.config.batch * stream.config.model.seq_len
    step = seconds["off loop"] / STEPS
    cycle = stream.config.sync.every
    ratios = [
        Ratio(
            "DP: loop / its compiled inner program (speed)", seconds["dp program"] / seconds["dp loop"], ">= 0.95", ""
        ),
        Ratio("Streaming H=30 M=2 / DP (speed)", seconds["dp loop"] / seconds["stream loop"], ">= 0.9", "same batch"),
        Ratio(
            "Streaming H=30 / the same M, sync off (speed)", seconds["off loop"] / seconds["stream loop"], ">= 0.95", ""
        ),
        Ratio("encode + pack of all parameters / inner step", seconds["encode"] / step, "<= 0.05", "E3M0, M=2"),
        Ratio("cosine logging / a cycle of H steps", seconds["gram"] / (step * cycle), "<= 0.01", "all fragments"),
    ]
    rate = {name: tokens / np.median(seconds[f"{name} loop"]) for name in ("dp", "stream", "off")}
    same = _fingerprint(stream) == _fingerprint(off)
    lines = [
        f"{stream.config.model.size} parameters, batch {stream.config.batch} x {stream.config.model.seq_len}, "
        f"{BLOCKS} interleaved blocks of {STEPS} steps, core {cores()}, jax {jax.__version__}",
        "tokens/s (median): " + ", ".join(f"{name} {value:,.0f}" for name, value in rate.items()),
        f"a step without an event is the same program with synchronisation on as off: {'yes' if same else 'NO'}",
    ]
    return ratios, lines


def _encoder(case: Case) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    from repro.diloco import wire
    from repro.diloco.program import take_fragment

    config, layers = case.config, np.arange(case.config.model.layers)

    def encode(params: Any) -> jax.Array:
        def one(params: Any, replica: jax.Array) -> Any:
            rows = take_fragment(params, layers, (len(layers), True))
            return wire.quantise_rows(rows, config.sync.codec, 0, jnp.int32(1), replica)

        codes = jax.vmap(one)(params, jnp.arange(config.replicas))
        return wire.move(codes, None, jnp.int32(0), 1, case.layout.mesh)

    compiled = jax.jit(encode)
    fixed = jax.tree.map(jnp.copy, case.state.params)
    return lambda: compiled(fixed)


def _gram(case: Case) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    from repro.diloco.program import gram, take_fragment

    layers = np.arange(case.config.model.layers)
    compiled = jax.jit(lambda p: gram(jax.vmap(lambda q: take_fragment(q, layers, (len(layers), True)))(p)))
    fixed = jax.tree.map(jnp.copy, case.state.params)
    return lambda: compiled(fixed)


def _fingerprint(case: Case) -> str:
    return case.stepper.lower(()).as_text()


def main() -> int:
    """Print the report."""
    parser = argparse.ArgumentParser(description="Speed as ratios, measured in one run.")
    options.add_cache(parser)
    args = parser.parse_args()
    show_what_can_be()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # finding an accelerator's library must not start it
    pin()
    keep_to(cores()[:1])
    from repro.commands.bench_shapes import measure_shapes  # JAX, which must be pinned first

    ratios, lines = measure_ratios(args.cache)
    print("\n".join([*lines, *(ratio.line() for ratio in ratios)]), flush=True)
    print("\n".join(measure_shapes(args.cache)), flush=True)
    print("\n".join(bench_start.measure_start(args.cache)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
