"""This suite's step as its sweeps run it: own_step.py SHAPE. With replicas, Streaming DiLoCo at H = 30, τ = 1, E3M0."""

import sys

import jax
import numpy as np

from experiments.streaming.base import streaming
from repro.commands.peers import serve as at
from repro.diloco.jax_settings import pin
from repro.diloco.resources import Resources
from repro.spec.config import InnerConfig, ModelConfig, RunConfig
from repro.spec.experiment import vary
from repro.spec.shapes import parameter_count
from repro.training.state import Layout, start
from repro.training.step import BLOCK, Stepper

FAR = 10**6  # steps: the rate is near its peak all through


def config_of(shape: at.Shape) -> RunConfig:
    """The run of a shape: data-parallel, or with replicas Streaming DiLoCo with one layer a fragment."""
    size = f"{shape.width}x{shape.layers}"
    model = ModelConfig(size, shape.layers, 4 * shape.width, shape.heads, shape.vocab, at.SEQUENCE, "float32")
    inner = InnerConfig(at.RATE, 1, 1.0, at.BETA1, at.BETA2, at.EPSILON, at.DECAY * at.RATE, at.CLIP)
    sync = vary(streaming(every=30), fragments__layers=1) if shape.replicas > 1 else None
    return RunConfig("mini", model, inner, sync, shape.replicas, "mini", shape.batch, FAR)


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
