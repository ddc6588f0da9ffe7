"""What `make bench` times: the loop of a run, and cases in interleaved blocks, since machines drift."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

BLOCKS, STEPS = 15, 60


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
    """A run with its compiled programs, at a step far from its end."""

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
