"""A tiny model, some parameters of it, and its logits in float64 NumPy, by no code of `repro`."""

import math

import jax
import numpy as np

from repro.diloco import model as lm
from repro.spec.config import ModelConfig

MODEL = ModelConfig(
    size="tiny", layers=2, ffn_width=48, heads=2, vocab=23, seq_len=9, compute_dtype="float32", z_loss=1e-2
)
init = jax.jit(lm.init, static_argnames="model")


def some_params(model: ModelConfig = MODEL, seed: int = 0):
    """Initial parameters with every leaf moved, so that a norm scale left out cannot pass as 1."""
    leaves, tree = jax.tree.flatten(init(jax.random.key(seed), model))
    keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
    noise = [0.3 * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(tree, [x + n for x, n in zip(leaves, noise, strict=True)])


def oracle_logits(params, tokens: np.ndarray, heads: int) -> np.ndarray:
    """One sequence, one layer, one head and one position at a time, in float64."""
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)

    def norm(vector, gain):
        return gain * (vector - vector.mean()) / math.sqrt(vector.var() + 1e-6)

    def gelu(u):
        return 0.5 * u * (1 + np.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))

    out = []
    for sequence in tokens:
        stream = [p["embed"]["tokens"][token] + p["embed"]["positions"][i] for i, token in enumerate(sequence)]
        for layer in range(p["layers"]["query"].shape[0]):
            w = {name: leaf[layer] for name, leaf in p["layers"].items()}
            normed = [norm(x, w["attn_norm"]) for x in stream]
            size = w["query"].shape[0] // heads
            mixed = [np.zeros(w["query"].shape[0]) for _ in stream]
            for head in range(heads):
                part = slice(head * size, (head + 1) * size)
                queries = [norm(x @ w["query"][:, part], w["query_norm"]) for x in normed]
                keys = [norm(x @ w["key"][:, part], w["key_norm"]) for x in normed]
                values = [x @ w["value"][:, part] for x in normed]
                for i, query in enumerate(queries):
                    weights = np.array([math.exp(query @ keys[j] / math.sqrt(size)) for j in range(i + 1)])
                    weights /= weights.sum()
                    mixed[i][part] = sum(a * v for a, v in zip(weights, values[: i + 1], strict=True))
            stream = [x + m @ w["output"] for x, m in zip(stream, mixed, strict=True)]
            stream = [x + gelu(norm(x, w["mlp_norm"]) @ w["up"]) @ w["down"] for x in stream]
        out.append([p["embed"]["tokens"] @ norm(x, p["embed"]["final_norm"]) for x in stream])
    return np.array(out)
