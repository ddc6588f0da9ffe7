"""The parameter tree of one replica as names and shapes, without JAX.

The model builds exactly this tree (a test compares it with `jax.eval_shape`), the trainer cuts it into
fragments, and the accounts count it. Two groups: `embed` (token and position embeddings, final norm),
which is its own fragment in the paper (Figure 17b), and `layers`, stacked on axis 0 so that a fragment
is a slice. A row, for the codec's scales, is a vector along the last axis; that axis is never sharded.
"""

from math import prod

from repro.spec.config import ModelConfig

Shapes = dict[str, dict[str, tuple[int, ...]]]
# The order of leaves that random masks are keyed by.
LEAVES = tuple(
    [f"embed/{leaf}" for leaf in ("tokens", "positions", "final_norm")]
    + [f"layers/{leaf}" for leaf in ("attn_norm", "query", "key", "value", "query_norm", "key_norm", "output")]
    + [f"layers/{leaf}" for leaf in ("mlp_norm", "up", "down")]
)


def parameter_shapes(model: ModelConfig) -> Shapes:
    """Group -> leaf -> shape; d = F/4, h = d/heads."""
    d, f, layers, h = model.width, model.ffn_width, model.layers, model.head_size
    return {
        "embed": {"tokens": (model.vocab, d), "positions": (model.seq_len, d), "final_norm": (d,)},
        "layers": {
            "attn_norm": (layers, d),
            "query": (layers, d, d),
            "key": (layers, d, d),
            "value": (layers, d, d),
            "query_norm": (layers, h),
            "key_norm": (layers, h),
            "output": (layers, d, d),
            "mlp_norm": (layers, d),
            "up": (layers, d, f),
            "down": (layers, f, d),
        },
    }


def fragment_shapes(model: ModelConfig, layers: int, embed: bool) -> dict[str, tuple[int, ...]]:
    """`group/leaf` -> shape of what a fragment of `layers` layers (and the embedding, if `embed`) holds."""
    shapes = parameter_shapes(model)
    out = {f"embed/{name}": shape for name, shape in shapes["embed"].items()} if embed else {}
    if layers:
        out |= {f"layers/{name}": (layers, *shape[1:]) for name, shape in shapes["layers"].items()}
    return out


def parameter_count(model: ModelConfig) -> int:
    """The true number of trained values, norms and positions included: what payloads are computed from."""
    return sum(prod(shape) for group in parameter_shapes(model).values() for shape in group.values())


def is_norm(leaf: str) -> bool:
    """Norm gains take no weight decay and are not sharded."""
    return leaf.endswith("_norm")
