"""The language model: the paper's Chinchilla-style decoder, as one replica computes it.

Pre-norm blocks, causal attention with QK-norm, a GELU feed-forward layer, no biases, learned positions, an
output head tied to the token embedding, and a z-loss (arXiv 2501.18512, section 3). Parameters are float32 and
stacked over the layers on axis 0, so that a fragment of the algorithm is a slice. Nothing here knows of
replicas, meshes or optimisers: a caller that shards activations passes `constrain`.

Assumptions, since the paper does not say: the details of NanoDO, its code base. LayerNorm without bias, epsilon
1e-6; GELU in its tanh form; embeddings drawn from a normal distribution of variance 1/d, matrices from Xavier's
uniform one, norm scales 1; learned positions added to the token embedding. QK-norm is a LayerNorm over each
head, its scale shared by the heads of a layer.

Three derivatives are written by hand, for speed alone: XLA's CPU backend transposes large activations in the
ones that JAX derives, which makes a step of the smallest models 1.4 times as long. The mathematics is the same.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from repro.errors import UserError
from repro.spec.config import ModelConfig

Params = dict[str, dict[str, jax.Array]]
Constrain = Callable[[jax.Array], jax.Array]
Attention = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]  # [B, S, H, K] each; q comes scaled

NORM_EPSILON = 1e-6
REMAT_POLICIES: dict[str, Callable[..., Any] | None] = {
    "none": None,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


def init(key: jax.Array, model: ModelConfig) -> Params:
    """Initial parameters of one replica, a pure function of (key, model): float32, the tree of `repro.spec.shapes`."""
    tokens_1xS = jnp.zeros((1, model.seq_len), jnp.int32)
    decoder = Decoder(model, unroll=False)  # equal bits, and one layer to compile instead of all
    return jax.jit(lambda k: decoder.init(k, tokens_1xS)["params"])(key)


def logits(
    params: Params,
    tokens_BxS: jax.Array,
    model: ModelConfig,
    *,
    unroll: bool = True,
    remat: str = "none",
    constrain: Constrain = lambda x: x,
    table: Constrain = lambda x: x,
    attention: Attention | None = None,
) -> jax.Array:
    """Logits [B, S, V], float32, of the token after each position; S may be shorter than `model.seq_len`.

    `unroll` and `remat` ("none", "dots": keep matrix products, "full": keep block inputs only) trade compile
    time, speed and memory, never the mathematics. `constrain` is called on each [B, S, d] stream between blocks
    and on the logits, `table` on the token embeddings [V, d] before rows are looked up; `attention` computes in place
    of `causal_attention`. Raises UserError on an unknown `remat` or a sequence longer than the model's.
    """
    if remat not in REMAT_POLICIES:
        raise UserError(f"Rematerialisation {remat!r} is unknown; choose one of {', '.join(REMAT_POLICIES)}.")
    if tokens_BxS.shape[-1] > model.seq_len:
        raise UserError(
            f"A sequence of {tokens_BxS.shape[-1]} tokens does not fit the model's {model.seq_len} positions; "
            "shorten it or raise seq_len."
        )
    decoder = Decoder(model, unroll, remat, constrain, table, attention)
    return decoder.apply({"params": params}, tokens_BxS)  # pyright: ignore[reportReturnType]


def nll(
    params: Params,
    tokens_BxS1: jax.Array,
    model: ModelConfig,
    *,
    unroll: bool = True,
    remat: str = "none",
    constrain: Constrain = lambda x: x,
    table: Constrain = lambda x: x,
    attention: Attention | None = None,
) -> tuple[jax.Array, jax.Array]:
    """(training loss, mean negative log-likelihood), nats a token over [B, S+1] tokens, float32 scalars.

    loss = mean(nll + z · log²Z) with Z = Σ_v exp(logit_v) and z = `model.z_loss` (1e-4 in section 3 of the
    paper). The first S tokens of a row are read, the last S predicted.
    """
    how = {"unroll": unroll, "remat": remat, "constrain": constrain, "table": table, "attention": attention}
    logits_BxSxV = logits(params, tokens_BxS1[:, :-1], model, **how)
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
    """Log-likelihood [B, S], in nats, of each of a row's last S tokens given those before it."""
    logits_BxSxV = logits(params, tokens_BxS1[:, :-1], model, unroll=unroll, constrain=constrain)
    target_BxS, log_z_BxS = _target_and_log_z(logits_BxSxV, tokens_BxS1[:, 1:])
    return target_BxS - log_z_BxS


def _target_and_log_z(logits_BxSxV: jax.Array, targets_BxS: jax.Array) -> tuple[jax.Array, jax.Array]:
    # A masked sum, not take_along_axis: with sharded parameters a gather on the logits costs an all-to-all.
    is_target_BxSxV = targets_BxS[..., None] == jnp.arange(logits_BxSxV.shape[-1])
    target_BxS = jnp.sum(jnp.where(is_target_BxSxV, logits_BxSxV, 0.0), axis=-1)
    return target_BxS, jax.nn.logsumexp(logits_BxSxV, axis=-1)


class Decoder(nn.Module):
    """Tokens [B, S] to logits [B, S, V]."""

    model: ModelConfig
    unroll: bool = True
    remat: str = "none"
    constrain: Constrain = lambda x: x
    table: Constrain = lambda x: x
    attention: Attention | None = None

    @nn.compact
    def __call__(self, tokens_BxS: jax.Array) -> jax.Array:
        embed = Embedding(self.model, self.table, name="embed")
        block = Block
        if self.remat != "none":
            # Inside a loop XLA can't merge the recomputation with the first computation; unrolled, it would.
            block = nn.remat(Block, policy=REMAT_POLICIES[self.remat], prevent_cse=self.unroll)
        layers = nn.scan(
            block,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=self.model.layers,
            unroll=self.model.layers if self.unroll else 1,
        )(self.model, self.constrain, self.attention or causal_attention, name="layers")
        x_BxSxD, _ = layers(self.constrain(embed(tokens_BxS)), None)
        return self.constrain(embed.head(x_BxSxD))


class Embedding(nn.Module):
    """Token and position embeddings, and the output head tied to the former behind the final norm."""

    model: ModelConfig
    table: Constrain = lambda x: x

    def setup(self) -> None:
        d = self.model.width
        normal = nn.initializers.normal(stddev=d**-0.5)
        self.tokens = self.param("tokens", normal, (self.model.vocab, d))
        self.positions = self.param("positions", normal, (self.model.seq_len, d))
        self.final_norm = self.param("final_norm", nn.initializers.ones, (d,))

    def __call__(self, tokens_BxS: jax.Array) -> jax.Array:
        dtype = self.model.compute_dtype
        x_BxSxD = jnp.take(self.table(self.tokens.astype(dtype)), tokens_BxS, axis=0)
        return x_BxSxD + self.positions[: tokens_BxS.shape[-1]].astype(dtype)

    def head(self, x_BxSxD: jax.Array) -> jax.Array:
        y_BxSxD = _layer_norm(x_BxSxD, self.final_norm)
        return _head(y_BxSxD, self.tokens.astype(self.model.compute_dtype))


class Block(nn.Module):
    """One pre-norm layer: x + attention(norm(x)), then x + feed-forward(norm(x))."""

    model: ModelConfig
    constrain: Constrain
    attention: Attention

    @nn.compact
    def __call__(self, x_BxSxD: jax.Array, _: None) -> tuple[jax.Array, None]:
        d = self.model.width
        x_BxSxD = x_BxSxD + self._attention(_layer_norm(x_BxSxD, self._scale("attn_norm", d)))
        x_BxSxD = x_BxSxD + self._feed_forward(_layer_norm(x_BxSxD, self._scale("mlp_norm", d)))
        return self.constrain(x_BxSxD), None

    def _attention(self, x_BxSxD: jax.Array) -> jax.Array:
        d, h = self.model.width, self.model.head_size
        heads = (*x_BxSxD.shape[:-1], self.model.heads, h)
        q_BxSxHxK = _matmul(x_BxSxD, self._matrix("query", d, d)).reshape(heads)
        k_BxSxHxK = _matmul(x_BxSxD, self._matrix("key", d, d)).reshape(heads)
        v_BxSxHxK = _matmul(x_BxSxD, self._matrix("value", d, d)).reshape(heads)
        q_BxSxHxK = _layer_norm(q_BxSxHxK, self._scale("query_norm", h)) * h**-0.5
        k_BxSxHxK = _layer_norm(k_BxSxHxK, self._scale("key_norm", h))
        y_BxSxHxK = self.attention(q_BxSxHxK, k_BxSxHxK, v_BxSxHxK)
        return _matmul(y_BxSxHxK.reshape(x_BxSxD.shape), self._matrix("output", d, d))

    def _feed_forward(self, x_BxSxD: jax.Array) -> jax.Array:
        d, f = self.model.width, self.model.ffn_width
        hidden_BxSxF = nn.gelu(_matmul(x_BxSxD, self._matrix("up", d, f)), approximate=True)
        return _matmul(hidden_BxSxF, self._matrix("down", f, d))

    def _matrix(self, name: str, rows: int, columns: int) -> jax.Array:
        matrix = self.param(name, nn.initializers.xavier_uniform(), (rows, columns))
        return matrix.astype(self.model.compute_dtype)

    def _scale(self, name: str, size: int) -> jax.Array:
        return self.param(name, nn.initializers.ones, (size,))


def _layer_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Over the last axis, in float32 whatever the dtype of x; no bias."""
    x32 = x.astype(jnp.float32)
    centred = x32 - jnp.mean(x32, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return (centred * jax.lax.rsqrt(variance + NORM_EPSILON) * scale).astype(x.dtype)


@jax.custom_vjp
def _matmul(x: jax.Array, weight: jax.Array) -> jax.Array:
    """x @ weight over the last axis of x, in their dtype."""
    return x @ weight


def _matmul_forward(x: jax.Array, weight: jax.Array):
    return x @ weight, (x, weight)


def _matmul_backward(saved, g: jax.Array):
    x, weight = saved
    return g @ weight.T, _weight_gradient(x, g)


_matmul.defvjp(_matmul_forward, _matmul_backward)


@jax.custom_vjp
def _head(y_BxSxD: jax.Array, tokens_VxD: jax.Array) -> jax.Array:
    """Logits of the tied head: products of the compute dtype, summed and kept in float32."""
    return jnp.einsum("bsd,vd->bsv", y_BxSxD, tokens_VxD, preferred_element_type=jnp.float32)


def _head_forward(y_BxSxD: jax.Array, tokens_VxD: jax.Array):
    return _head(y_BxSxD, tokens_VxD), (y_BxSxD, tokens_VxD)


def _head_backward(saved, g_BxSxV: jax.Array):
    y_BxSxD, tokens_VxD = saved
    g_BxSxV = g_BxSxV.astype(y_BxSxD.dtype)
    return g_BxSxV @ tokens_VxD, jax.lax.optimization_barrier(_weight_gradient(y_BxSxD, g_BxSxV)).T


_head.defvjp(_head_forward, _head_backward)


def _weight_gradient(x: jax.Array, g: jax.Array) -> jax.Array:
    """xᵀ g over all axes but the last, the narrower of the two as the left factor.

    XLA's CPU backend transposes the left factor in memory; the barriers here and in the head keep it from
    swapping the factors back when it merges the transposition of the (small) product.
    """
    x, g = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
    over_rows = (((0,), (0,)), ((), ()))
    if x.shape[-1] <= g.shape[-1]:
        return jax.lax.dot_general(x, g, over_rows)
    return jax.lax.optimization_barrier(jax.lax.dot_general(g, x, over_rows)).T


@jax.custom_vjp
def causal_attention(q_BxSxHxK: jax.Array, k_BxTxHxK: jax.Array, v_BxTxHxK: jax.Array) -> jax.Array:
    """softmax(q kᵀ) v over the positions t ≤ s, head by head; q comes scaled. The softmax is float32."""
    return _attention_forward(q_BxSxHxK, k_BxTxHxK, v_BxTxHxK)[0]


def _attention_forward(q_BxSxHxK: jax.Array, k_BxTxHxK: jax.Array, v_BxTxHxK: jax.Array):
    dtype, length = q_BxSxHxK.dtype, q_BxSxHxK.shape[1]
    scores_BxHxSxT = jnp.einsum("bshk,bthk->bhst", q_BxSxHxK, k_BxTxHxK, preferred_element_type=jnp.float32)
    causal_SxT = jnp.tril(jnp.ones((length, length), bool))
    scores_BxHxSxT = jnp.where(causal_SxT, scores_BxHxSxT, -jnp.inf)
    exp_BxHxSxT = jnp.exp(scores_BxHxSxT - jnp.max(scores_BxHxSxT, axis=-1, keepdims=True))
    inverse_BxHxSx1 = 1.0 / jnp.sum(exp_BxHxSxT, axis=-1, keepdims=True)
    exp_BxHxSxT = exp_BxHxSxT.astype(dtype)
    sums_BxSxHxK = jnp.einsum("bhst,bthk->bshk", exp_BxHxSxT, v_BxTxHxK, preferred_element_type=jnp.float32)
    # Dividing the sums, not the weights, is S/K times less work.
    y_BxSxHxK = (sums_BxSxHxK * jnp.moveaxis(inverse_BxHxSx1, 1, 2)).astype(dtype)
    return y_BxSxHxK, (q_BxSxHxK, k_BxTxHxK, v_BxTxHxK, exp_BxHxSxT, inverse_BxHxSx1, y_BxSxHxK)


def _attention_backward(saved, g_BxSxHxK: jax.Array):
    """With weights w = exp · inverse: ∂scores = w ∘ (g vᵀ − rowsum(g ∘ y)), since Σ_t w (g vᵀ) = g · y."""
    q_BxSxHxK, k_BxTxHxK, v_BxTxHxK, exp_BxHxSxT, inverse_BxHxSx1, y_BxSxHxK = saved
    dtype, exact = q_BxSxHxK.dtype, jnp.float32
    g_dot_y_BxSxHx1 = jnp.sum(g_BxSxHxK.astype(exact) * y_BxSxHxK, axis=-1, keepdims=True)
    scaled_g_BxSxHxK = (g_BxSxHxK * jnp.moveaxis(inverse_BxHxSx1, 1, 2)).astype(dtype)
    dv_BxHxKxT = jnp.einsum("bshk,bhst->bhkt", scaled_g_BxSxHxK, exp_BxHxSxT)
    dw_BxHxSxT = jnp.einsum("bshk,bthk->bhst", g_BxSxHxK, v_BxTxHxK, preferred_element_type=exact)
    ds_BxHxSxT = exp_BxHxSxT * inverse_BxHxSx1 * (dw_BxHxSxT - jnp.moveaxis(g_dot_y_BxSxHx1, 1, 2))
    ds_BxHxSxT = ds_BxHxSxT.astype(dtype)
    dq_BxSxHxK = jnp.einsum("bhst,bthk->bshk", ds_BxHxSxT, k_BxTxHxK)
    dk_BxHxKxT = jnp.einsum("bshk,bhst->bhkt", q_BxSxHxK, ds_BxHxSxT)
    return dq_BxSxHxK, jnp.transpose(dk_BxHxKxT, (0, 3, 1, 2)), jnp.transpose(dv_BxHxKxT, (0, 3, 1, 2))


causal_attention.defvjp(_attention_forward, _attention_backward)
