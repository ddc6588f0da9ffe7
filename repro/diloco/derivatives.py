"""Parts of the model whose derivatives are written by hand, for speed alone: the mathematics is that of JAX's own.

Two sets of them. `ANYWHERE` is for any mesh: XLA's CPU backend transposes large activations in the derivatives that JAX
derives, which makes a step of the smallest models 1.4 times as long. `ONE_CPU` is for a replica that has a CPU device
to itself, as in a sweep's workers. It goes by what XLA's library kernels do well there: a sum of products over the last
axis takes ten times as long as a sum of what was multiplied before, a product that contracts rows twice as long as
one of the transposed factor, and scores above the diagonal are work for nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

NORM_EPSILON = 1e-6
HALVED_FROM = 32  # positions from which attention is cut into two halves of queries
LOSS_ROWS = 512  # positions whose logits are held at once

Attention = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]  # [B, S, H, K] each; q comes scaled
# (z-loss weight, [rows, d] behind the final norm, [V, d] embedding, [rows] targets) -> (training loss, mean nll)
HeadLoss = Callable[[float, jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


class Kernels(NamedTuple):
    """What computes the parts of a layer: x @ weight, the norm over the last axis, attention, and head with loss.

    `head_loss` None leaves the head and its loss to the model, which can shard their logits.
    """

    matmul: Callable[[jax.Array, jax.Array], jax.Array]
    norm: Callable[[jax.Array, jax.Array], jax.Array]
    attention: Attention
    head_loss: HeadLoss | None


def layer_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Over the last axis, in float32 whatever the dtype of x; no bias."""
    return _norm(x, scale)[0]


def _norm(x: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What `layer_norm` gives, the centred x and 1 / its standard deviation."""
    x32 = x.astype(jnp.float32)
    centred = x32 - jnp.mean(x32, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    inverse = jax.lax.rsqrt(variance + NORM_EPSILON)
    return (centred * inverse * scale).astype(x.dtype), centred, inverse


@jax.custom_vjp
def _layer_norm_by_hand(x: jax.Array, scale: jax.Array) -> jax.Array:
    """`layer_norm`."""
    return layer_norm(x, scale)


def _layer_norm_forward(x: jax.Array, scale: jax.Array):
    y, centred, inverse = _norm(x, scale)
    return y, (centred, inverse, scale)


def _layer_norm_backward(saved, g: jax.Array):
    """∂x = (ĝ - mean ĝ - x̂ mean(ĝ x̂)) / σ with ĝ = g · scale; both means in one sum over products made before."""
    centred, inverse, scale = saved
    unit, scaled_g = centred * inverse, g.astype(jnp.float32) * scale
    means = jnp.mean(jnp.stack([scaled_g, scaled_g * unit], axis=-2), axis=-1)
    dx = inverse * (scaled_g - means[..., 0:1] - unit * means[..., 1:2])
    return dx.astype(g.dtype), jnp.sum(g * unit, axis=tuple(range(g.ndim - 1)))


_layer_norm_by_hand.defvjp(_layer_norm_forward, _layer_norm_backward)


def _matmul_with(weight_gradient: Callable[[jax.Array, jax.Array], jax.Array]):
    """x @ weight over the last axis of x, in their dtype, and its derivative by `weight_gradient`."""

    @jax.custom_vjp
    def matmul(x: jax.Array, weight: jax.Array) -> jax.Array:
        return x @ weight

    def forward(x: jax.Array, weight: jax.Array):
        return x @ weight, (x, weight)

    def backward(saved, g: jax.Array):
        x, weight = saved
        return g @ weight.T, weight_gradient(x, g)

    matmul.defvjp(forward, backward)
    return matmul


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


def _weight_gradient_transposed(x: jax.Array, g: jax.Array) -> jax.Array:
    """xᵀ g of `_weight_gradient`, the narrower factor transposed in memory first, so that none contracts rows."""
    x, g = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
    if x.shape[-1] <= g.shape[-1]:
        return jax.lax.optimization_barrier(x.T) @ g
    return jax.lax.optimization_barrier(jax.lax.optimization_barrier(g.T) @ x).T


@jax.custom_vjp
def head(y_BxSxD: jax.Array, tokens_VxD: jax.Array) -> jax.Array:
    """Logits of the tied head: products of the compute dtype, summed and kept in float32."""
    return jnp.einsum("bsd,vd->bsv", y_BxSxD, tokens_VxD, preferred_element_type=jnp.float32)


def _head_forward(y_BxSxD: jax.Array, tokens_VxD: jax.Array):
    return head(y_BxSxD, tokens_VxD), (y_BxSxD, tokens_VxD)


def _head_backward(saved, g_BxSxV: jax.Array):
    y_BxSxD, tokens_VxD = saved
    g_BxSxV = g_BxSxV.astype(y_BxSxD.dtype)
    return g_BxSxV @ tokens_VxD, jax.lax.optimization_barrier(_weight_gradient(y_BxSxD, g_BxSxV)).T


head.defvjp(_head_forward, _head_backward)


def head_loss(z: float, y_TxD: jax.Array, tokens_VxD: jax.Array, targets_T: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(mean(nll + z · log²Z), mean nll) of a tied head; the second is not to be derived."""
    # custom_vjp forgets what it wraps.
    loss, nll = _head_loss(z, y_TxD, tokens_VxD, targets_T)  # pyright: ignore[reportGeneralTypeIssues]
    return loss, jax.lax.stop_gradient(nll)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _head_loss(z: float, y_TxD: jax.Array, tokens_VxD: jax.Array, targets_T: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`head_loss`, `LOSS_ROWS` positions' logits at a time."""
    parts = [_part(y, tokens_VxD, targets) for y, targets in _rows(y_TxD, targets_T)]
    return _losses(z, parts, len(targets_T))


class _Part(NamedTuple):
    """What some positions keep for the way back: exp(logit - top), its sum, log Z and the target's logit."""

    exp_TxV: jax.Array
    sum_Tx1: jax.Array
    log_z_T: jax.Array
    target_T: jax.Array


def _rows(*arrays: jax.Array) -> list[tuple[jax.Array, ...]]:
    starts = range(0, arrays[0].shape[0], LOSS_ROWS)
    return [tuple(array[start : start + LOSS_ROWS] for array in arrays) for start in starts]


def _part(y_TxD: jax.Array, tokens_VxD: jax.Array, targets_T: jax.Array) -> _Part:
    logits_TxV = jnp.einsum("td,vd->tv", y_TxD, tokens_VxD, preferred_element_type=jnp.float32)
    top_Tx1 = jnp.max(logits_TxV, axis=-1, keepdims=True)
    exp_TxV = jnp.exp(logits_TxV - top_Tx1)
    sum_Tx1 = jnp.sum(exp_TxV, axis=-1, keepdims=True)
    target_T = jnp.sum(y_TxD.astype(jnp.float32) * jnp.take(tokens_VxD, targets_T, axis=0), axis=-1)
    return _Part(exp_TxV, sum_Tx1, (top_Tx1 + jnp.log(sum_Tx1))[:, 0], target_T)


def _losses(z: float, parts: list[_Part], count: int) -> tuple[jax.Array, jax.Array]:
    nll = sum(jnp.sum(part.log_z_T - part.target_T) for part in parts) / count
    squares = sum(jnp.sum(jnp.square(part.log_z_T)) for part in parts) / count
    return nll + z * squares, nll  # pyright: ignore[reportReturnType]  # no sum of nothing, which were a float


def _head_loss_forward(z: float, y_TxD: jax.Array, tokens_VxD: jax.Array, targets_T: jax.Array):
    """The derivatives too, while the logits of some positions are there: they are never held all together."""
    count, parts, dys, dtokens_DxV = len(targets_T), [], [], None
    for y, targets in _rows(y_TxD, targets_T):
        part = _part(y, tokens_VxD, targets)
        parts.append(part)
        scale_Tx1 = (1 + 2 * z * part.log_z_T)[:, None] / part.sum_Tx1 / count
        is_target_TxV = targets[:, None] == jnp.arange(tokens_VxD.shape[0])
        dlogits_TxV = (part.exp_TxV * scale_Tx1 - jnp.where(is_target_TxV, 1 / count, 0.0)).astype(y.dtype)
        dys.append(dlogits_TxV @ tokens_VxD)
        own = jax.lax.optimization_barrier(y.T) @ dlogits_TxV
        dtokens_DxV = own if dtokens_DxV is None else dtokens_DxV + own
    return _losses(z, parts, count), (jnp.concatenate(dys), jax.lax.optimization_barrier(dtokens_DxV).T)


def _head_loss_backward(z: float, saved, g):
    """∂ of the training loss alone."""
    dy_TxD, dtokens_VxD = saved
    return *((g[0] * d).astype(d.dtype) for d in (dy_TxD, dtokens_VxD)), None


_head_loss.defvjp(_head_loss_forward, _head_loss_backward)


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


@jax.custom_vjp
def _halved_attention(q_BxSxHxK: jax.Array, k_BxTxHxK: jax.Array, v_BxTxHxK: jax.Array) -> jax.Array:
    """`causal_attention`, heads first and queries in two halves: the first half meets the first half of keys alone."""
    return _halved_forward(q_BxSxHxK, k_BxTxHxK, v_BxTxHxK)[0]


def _halves(length: int) -> list[tuple[int, int]]:
    count = 2 if length % 2 == 0 and length >= HALVED_FROM else 1
    return [(i * length // count, (i + 1) * length // count) for i in range(count)]


def _halved_forward(*qkv_BxSxHxK: jax.Array):
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in qkv_BxSxHxK)  # [B, H, S, K]
    exps, inverses, ys = [], [], []
    for start, end in _halves(q.shape[2]):
        scores = jnp.einsum("bhsk,bhtk->bhst", q[:, :, start:end], k[:, :, :end], preferred_element_type=jnp.float32)
        scores = jnp.where(jnp.arange(start, end)[:, None] >= jnp.arange(end), scores, -jnp.inf)
        exp = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
        inverse = 1.0 / jnp.sum(exp, axis=-1, keepdims=True)
        exp = exp.astype(q.dtype)
        sums = jnp.einsum("bhst,bhtk->bhsk", exp, v[:, :, :end], preferred_element_type=jnp.float32)
        exps, inverses, ys = [*exps, exp], [*inverses, inverse], [*ys, (sums * inverse).astype(q.dtype)]
    y = jnp.concatenate(ys, axis=2)
    return jnp.swapaxes(y, 1, 2), (q, k, v, exps, inverses, y)


def _halved_backward(saved, g_BxSxHxK: jax.Array):
    """As `_attention_backward`; keys and values beyond a half get nothing from it."""
    q, k, v, exps, inverses, y = saved
    dtype, exact, g = q.dtype, jnp.float32, jnp.swapaxes(g_BxSxHxK, 1, 2)
    g_dot_y = jnp.sum(g.astype(exact) * y, axis=-1, keepdims=True)
    dqs, dks, dvs = [], [], []
    for (start, end), exp, inverse in zip(_halves(q.shape[2]), exps, inverses, strict=True):
        scaled_g = (g[:, :, start:end] * inverse).astype(dtype)
        weights_g = jnp.einsum("bhsk,bhtk->bhst", scaled_g, v[:, :, :end], preferred_element_type=exact)
        ds = (exp * (weights_g - g_dot_y[:, :, start:end] * inverse)).astype(dtype)
        beyond = (*[(0, 0)] * 3, (0, q.shape[2] - end))
        dqs.append(jnp.einsum("bhst,bhtk->bhsk", ds, k[:, :, :end]))
        dks.append(jnp.pad(jnp.einsum("bhsk,bhst->bhkt", q[:, :, start:end], ds), beyond))
        dvs.append(jnp.pad(jnp.einsum("bhsk,bhst->bhkt", scaled_g, exp), beyond))
    dk, dv = (jnp.transpose(sum(parts[1:], parts[0]), (0, 3, 1, 2)) for parts in (dks, dvs))
    return jnp.swapaxes(jnp.concatenate(dqs, axis=2), 1, 2), dk, dv


_halved_attention.defvjp(_halved_forward, _halved_backward)

ANYWHERE = Kernels(_matmul_with(_weight_gradient), layer_norm, causal_attention, None)
ONE_CPU = Kernels(_matmul_with(_weight_gradient_transposed), _layer_norm_by_hand, _halved_attention, head_loss)
