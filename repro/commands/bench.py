"""Speed as ratios: every pair of things is timed in interleaved blocks of one run, since machines drift.

    make bench

Placement: one process on one core, all replicas on its one device; a table runs one such process a core.
Each ratio is the median over blocks of the paired ratio, with the range that half of the blocks fall in.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from repro.commands import bench_start, options
from repro.cores import cores, keep_to
from repro.diloco.jax_settings import pin
from repro.words import show_what_can_be

BLOCKS, STEPS = 15, 60
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


def interleaved(cases: dict[str, Callable[[], Any]], blocks: int = BLOCKS) -> dict[str, np.ndarray]:
    """Seconds of each case in each block, the order turning from block to block; one warm-up block is dropped."""
    import jax

    names = list(cases)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for block in range(blocks + 1):
        for name in names[block % len(names) :] + names[: block % len(names)]:
            start = time.perf_counter()
            jax.block_until_ready(cases[name]())
            seconds[name].append(time.perf_counter() - start)
    return {name: np.array(values[1:]) for name, values in seconds.items()}


class Case:
    """A run of the mini ladder with its compiled programs, at a step far from its end."""

    def __init__(self, config: Any, cache: Path) -> None:
        from repro.corpus.prepare import prepare
        from repro.corpus.tokens import Batches, open_tokens
        from repro.diloco.resources import Resources
        from repro.training.state import Layout, start
        from repro.training.step import Stepper

        self.config = config
        self.layout = Layout.of(config, Resources())
        self.stepper, self.state = Stepper(self.layout), start(self.layout)
        self.held, self.tokens = start(self.layout), None
        text = open_tokens(prepare(config.corpus, cache, vocab=config.model.vocab))
        self.batches = Batches(text, config.model.seq_len, config.batch, config.replicas, 0, repeat=True)
        for key in self.stepper.programs(1, 2 * 30 + 2):
            self.stepper.compile(key)

    def batch(self, step: int) -> Any:
        """The global batch of a step, (M, B/M, S+1)."""
        return np.stack([self.batches.batch(step, m) for m in range(self.config.replicas)])

    def loop(self) -> Any:
        """STEPS steps as the trainer does them: batches from the shards, losses read one step late."""
        last, end = None, self.state.step + STEPS
        while self.state.step < end:
            loss = self._call(self.state, end)
            if last is not None:
                np.asarray(last)
            last = loss
        return last

    def _call(self, state: Any, end: int) -> Any:
        """One call: a block of steps without an event, or a step with one."""
        from repro.training.step import BLOCK

        count = self.stepper.free(state.step, end)
        if not count:
            return self.stepper(state, self.batch(state.step))[0]
        rows = [self.batch(state.step + k) for k in range(count)]
        return self.stepper.block(state, np.stack([*rows, *rows[:1] * (BLOCK - count)]), count)

    def program(self) -> Any:
        """STEPS inner steps by the compiled program alone, its data on the device."""
        import jax

        from repro.training.step import BLOCK

        compiled, held, loss = self.stepper.compile(()), self.held, None
        if self.tokens is None:
            self.tokens = jax.device_put(np.stack([self.batch(0)] * BLOCK))
        learning = {"rate": np.full(BLOCK, 1e-3, np.float32)}
        for start in range(0, STEPS, BLOCK):
            count = np.int32(min(BLOCK, STEPS - start))
            held.params, held.inner, loss = compiled(held.params, held.inner, self.tokens, learning, count)
        return loss


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
    ratios, lines = measure_ratios(args.cache)
    print("\n".join([*lines, *(ratio.line() for ratio in ratios)]), flush=True)
    print("\n".join(bench_start.measure_start(args.cache)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
