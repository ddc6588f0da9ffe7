"""The language model: the paper's Chinchilla-style decoder, as one replica computes it.

Pre-norm blocks, causal attention with QK-norm, a GELU feed-forward layer, no biases, learned positions, an output head
tied to the token embedding, and a z-loss (arXiv 2501.18512, section 3). Parameters are float32 and stacked over the
layers on axis 0, so that a fragment of the algorithm is a slice. Nothing here knows of replicas, meshes or optimisers:
a caller that shards activations passes `constrain`.

Assumptions, since the paper does not say: the details of NanoDO, its code base. LayerNorm without bias, epsilon 1e-6;
GELU in its tanh form; embeddings drawn from a normal distribution of variance 1/d, matrices from Xavier's uniform one,
norm scales 1; learned positions added to the token embedding. QK-norm is a LayerNorm over each head, its scale shared
by the heads of a layer.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from repro.config import ModelConfig
from repro.errors import UserError

Params = dict[str, dict[str, jax.Array]]
Constrain = Callable[[jax.Array], jax.Array]

NORM_EPSILON = 1e-6
REMAT_POLICIES: dict[str, Callable[..., Any] | None] = {
    "none": None,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


def init(key: jax.Array, model: ModelConfig) -> Params:
    """Initial parameters of one replica, a pure function of (key, model); float32, layers stacked on axis 0."""
    tokens_1xS = jnp.zeros((1, model.seq_len), jnp.int32)
    return jax.jit(lambda k: Decoder(model).init(k, tokens_1xS)["params"])(key)


def logits(
    params: Params,
    tokens_BxS: jax.Array,
    model: ModelConfig,
    *,
    unroll: bool = True,
    remat: str = "none",
    constrain: Constrain = lambda x: x,
) -> jax.Array:
    """Logits [B, S, V] in float32 of the token after each position; S may be shorter than `model.seq_len`.

    `unroll` and `remat` ("none", "dots": keep matrix products, "full": keep block inputs only) trade compile time,
    speed and memory; they do not change the mathematics. `constrain` is called on every [B, S, ...] activation that
    crosses a block and on the logits. Raises UserError on an unknown `remat` or a sequence longer than the model's.
    """
    if remat not in REMAT_POLICIES:
        raise UserError(f"Rematerialisation {remat!r} is unknown; choose one of {', '.join(REMAT_POLICIES)}.")
    if tokens_BxS.shape[-1] > model.seq_len:
        raise UserError(
            f"A sequence of {tokens_BxS.shape[-1]} tokens does not fit the model's {model.seq_len} positions; "
            "shorten it or raise seq_len."
        )
    decoder = Decoder(model, unroll=unroll, remat=remat, constrain=constrain)
    return decoder.apply({"params": params}, tokens_BxS)  # pyright: ignore[reportReturnType]


def nll(
    params: Params,
    tokens_BxS1: jax.Array,
    model: ModelConfig,
    *,
    unroll: bool = True,
    remat: str = "none",
    constrain: Constrain = lambda x: x,
) -> tuple[jax.Array, jax.Array]:
    """(training loss, mean negative log-likelihood) in nats per token over [B, S+1] tokens, both float32 scalars.

    loss = mean(nll + z · log²Z), Z = Σ_v exp(logit_v), z = `model.z_loss` (1e-4 in section 3 of the paper). The first
    S tokens of a row are read, the last S predicted.
    """
    logits_BxSxV = logits(params, tokens_BxS1[:, :-1], model, unroll=unroll, remat=remat, constrain=constrain)
    target_BxS, log_z_BxS = _target_and_log_z(logits_BxSxV, tokens_BxS1[:, 1:])
    mean_nll = jnp.mean(log_z_BxS - target_BxS)
    return mean_nll + model.z_loss * jnp.mean(jnp.square(log_z_BxS)), mean_nll


def token_log_likelihoods(
    params: Params,
    tokens_BxS1: jax.Array,
    model: ModelConfig,
    *,
    unroll: bool = True,
    constrain: Constrain = lambda x: x,
) -> jax.Array:
    """Log-likelihood [B, S], in nats, of each of the last S tokens of a row given those before it (for evaluation)."""
    logits_BxSxV = logits(params, tokens_BxS1[:, :-1], model, unroll=unroll, constrain=constrain)
    target_BxS, log_z_BxS = _target_and_log_z(logits_BxSxV, tokens_BxS1[:, 1:])
    return target_BxS - log_z_BxS


def _target_and_log_z(logits_BxSxV: jax.Array, targets_BxS: jax.Array) -> tuple[jax.Array, jax.Array]:
    # A masked sum, not take_along_axis: under fully sharded parameters a gather on the logits costs an all-to-all.
    is_target_BxSxV = targets_BxS[..., None] == jnp.arange(logits_BxSxV.shape[-1])
    target_BxS = jnp.sum(jnp.where(is_target_BxSxV, logits_BxSxV, 0.0), axis=-1)
    return target_BxS, jax.nn.logsumexp(logits_BxSxV, axis=-1)


class Decoder(nn.Module):
    """Tokens [B, S] to logits [B, S, V]; its parameters are the tree of `shapes`: "embed" and "layers"."""

    model: ModelConfig
    unroll: bool = True
    remat: str = "none"
    constrain: Constrain = lambda x: x

    @nn.compact
    def __call__(self, tokens_BxS: jax.Array) -> jax.Array:
        embed = Embedding(self.model, name="embed")
        block = Block
        if self.remat != "none":
            # prevent_cse is needless inside a scan and costs fusions; an unrolled loop needs it.
            block = nn.remat(Block, policy=REMAT_POLICIES[self.remat], prevent_cse=self.unroll)
        layers = nn.scan(
            block,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=self.model.layers,
            unroll=self.model.layers if self.unroll else 1,
        )(self.model, self.constrain, name="layers")
        x_BxSxD, _ = layers(self.constrain(embed(tokens_BxS)), None)
        return self.constrain(embed.head(x_BxSxD))


class Embedding(nn.Module):
    """Token and position embeddings, and the output head tied to the former behind the final norm."""

    model: ModelConfig

    def setup(self) -> None:
        d = self.model.width
        normal = nn.initializers.normal(stddev=d**-0.5)
        self.tokens = self.param("tokens", normal, (self.model.vocab, d))
        self.positions = self.param("positions", normal, (self.model.seq_len, d))
        self.final_norm = self.param("final_norm", nn.initializers.ones, (d,))

    def __call__(self, tokens_BxS: jax.Array) -> jax.Array:
        dtype = self.model.compute_dtype
        x_BxSxD = jnp.take(self.tokens.astype(dtype), tokens_BxS, axis=0)
        return x_BxSxD + self.positions[: tokens_BxS.shape[-1]].astype(dtype)

    def head(self, x_BxSxD: jax.Array) -> jax.Array:
        y_BxSxD = _layer_norm(x_BxSxD, self.final_norm)
        tokens_VxD = self.tokens.astype(self.model.compute_dtype)
        return jnp.einsum("bsd,vd->bsv", y_BxSxD, tokens_VxD, preferred_element_type=jnp.float32)


class Block(nn.Module):
    """One pre-norm layer: x + attention(norm(x)), then x + feed-forward(norm(x))."""

    model: ModelConfig
    constrain: Constrain

    @nn.compact
    def __call__(self, x_BxSxD: jax.Array, _: None) -> tuple[jax.Array, None]:
        x_BxSxD = x_BxSxD + self._attention(_layer_norm(x_BxSxD, self._scale("attn_norm", self.model.width)))
        x_BxSxD = x_BxSxD + self._feed_forward(_layer_norm(x_BxSxD, self._scale("mlp_norm", self.model.width)))
        return self.constrain(x_BxSxD), None

    def _attention(self, x_BxSxD: jax.Array) -> jax.Array:
        c = self.model
        heads = (*x_BxSxD.shape[:-1], c.heads, c.head_size)
        q_BxSxHxK = (x_BxSxD @ self._matrix("query", c.width, c.width)).reshape(heads)
        k_BxSxHxK = (x_BxSxD @ self._matrix("key", c.width, c.width)).reshape(heads)
        v_BxSxHxK = (x_BxSxD @ self._matrix("value", c.width, c.width)).reshape(heads)
        q_BxSxHxK = _layer_norm(q_BxSxHxK, self._scale("query_norm", c.head_size))
        k_BxSxHxK = _layer_norm(k_BxSxHxK, self._scale("key_norm", c.head_size))
        y_BxSxHxK = _causal_attention(q_BxSxHxK, k_BxSxHxK, v_BxSxHxK)
        return y_BxSxHxK.reshape(x_BxSxD.shape) @ self._matrix("output", c.width, c.width)

    def _feed_forward(self, x_BxSxD: jax.Array) -> jax.Array:
        c = self.model
        hidden_BxSxF = nn.gelu(x_BxSxD @ self._matrix("up", c.width, c.ffn_width), approximate=True)
        return hidden_BxSxF @ self._matrix("down", c.ffn_width, c.width)

    def _matrix(self, name: str, rows: int, columns: int) -> jax.Array:
        return self.param(name, nn.initializers.xavier_uniform(), (rows, columns)).astype(self.model.compute_dtype)

    def _scale(self, name: str, size: int) -> jax.Array:
        return self.param(name, nn.initializers.ones, (size,))


def _causal_attention(q_BxSxHxK: jax.Array, k_BxSxHxK: jax.Array, v_BxSxHxK: jax.Array) -> jax.Array:
    length, head_size = q_BxSxHxK.shape[-3], q_BxSxHxK.shape[-1]
    scores_BxHxSxT = jnp.einsum(
        "bshk,bthk->bhst", q_BxSxHxK * head_size**-0.5, k_BxSxHxK, preferred_element_type=jnp.float32
    )
    causal_SxT = jnp.tril(jnp.ones((length, length), bool))
    weights_BxHxSxT = jax.nn.softmax(jnp.where(causal_SxT, scores_BxHxSxT, -jnp.inf), axis=-1)
    return jnp.einsum("bhst,bthk->bshk", weights_BxHxSxT.astype(v_BxSxHxK.dtype), v_BxSxHxK)


def _layer_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Over the last axis, in float32 whatever the dtype of x; no bias."""
    x32 = x.astype(jnp.float32)
    centred = x32 - jnp.mean(x32, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return (centred * jax.lax.rsqrt(variance + NORM_EPSILON) * scale).astype(x.dtype)
