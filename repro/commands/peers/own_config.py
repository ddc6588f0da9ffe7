"""This suite's config of a contest's shape. No JAX: `make bench` names the shape too."""

from experiments.streaming.base import streaming
from repro.commands.peers import serve as at
from repro.spec.config import InnerConfig, ModelConfig, RunConfig
from repro.spec.experiment import vary

FAR = 10**6  # steps: the rate is near its peak all through


def config_of(shape: at.Shape) -> RunConfig:
    """The run of a shape: data-parallel, or with replicas Streaming DiLoCo with one layer a fragment."""
    size = f"{shape.width}x{shape.layers}"
    model = ModelConfig(size, shape.layers, 4 * shape.width, shape.heads, shape.vocab, at.SEQUENCE, "float32")
    inner = InnerConfig(at.RATE, 1, 1.0, at.BETA1, at.BETA2, at.EPSILON, at.DECAY * at.RATE, at.CLIP)
    sync = vary(streaming(every=30), fragments__layers=1) if shape.replicas > 1 else None
    return RunConfig("mini", model, inner, sync, shape.replicas, "mini", shape.batch, FAR)
