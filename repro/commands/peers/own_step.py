"""This suite's step as its sweeps run it: own_step.py SHAPE. With replicas, Streaming DiLoCo at H = 30, τ = 1, E3M0."""

import sys

import jax
import numpy as np

from repro.commands.peers import serve as at
from repro.commands.peers.own_config import config_of
from repro.diloco.jax_settings import pin
from repro.diloco.resources import Resources
from repro.spec.shapes import parameter_count
from repro.training.state import Layout, start
from repro.training.step import BLOCK, Stepper


def main() -> None:
    """Serve one shape."""
    at.keep_to_one_core()
    pin()
    shape = at.SHAPES[sys.argv[1]]
    config = config_of(shape)
    layout = Layout.of(config, Resources())
    stepper, state = Stepper(layout), start(layout)
    for key in stepper.programs(1, 62):
        stepper.compile(key)
    rows = shape.replicas, shape.batch // shape.replicas, at.SEQUENCE + 1
    block = np.random.default_rng(0).integers(0, shape.vocab, (BLOCK, *rows), dtype=np.int32)

    def call(last: int) -> jax.Array:
        count = stepper.free(state.step, last)
        return stepper.block(state, block, count) if count else stepper(state, jax.device_put(block[0]))[0]

    def steps(count: int) -> float:
        before, last = None, state.step + count
        while state.step < last:
            loss = call(last)
            if before is not None:
                np.asarray(before)  # the trainer reads it one call late
            before = loss
        return float(np.asarray(loss).max())

    at.serve("this suite", parameter_count(config.model), jax.__version__, steps)


if __name__ == "__main__":
    main()
