"""The language model: the paper's Chinchilla-style decoder, as one replica computes it.

Pre-norm blocks, causal attention with QK-norm, a GELU feed-forward layer, no biases, learned positions, an
output head tied to the token embedding, and a z-loss (arXiv 2501.18512, section 3). Parameters are float32 and
stacked over the layers on axis 0, so that a fragment of the algorithm is a slice. Nothing here knows of
replicas, meshes or optimisers: a caller that shards activations passes `constrain`.

Assumptions, since the paper does not say: the details of NanoDO, its code base. LayerNorm without bias, epsilon
1e-6; GELU in its tanh form; embeddings drawn from a normal distribution of variance 1/d, matrices from Xavier's
uniform one, norm scales 1; learned positions added to the token embedding. QK-norm is a LayerNorm over each
head, its scale shared by the heads of a layer.

What a layer is computed by, with derivatives by hand for speed, a caller chooses (`repro.diloco.derivatives`).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from repro.diloco.derivatives import ANYWHERE, Kernels, head
from repro.errors import UserError
from repro.spec.config import ModelConfig

Params = dict[str, dict[str, jax.Array]]
Constrain = Callable[[jax.Array], jax.Array]

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
    kernels: Kernels = ANYWHERE,
) -> jax.Array:
    """Logits [B, S, V], float32, of the token after each position; S may be shorter than `model.seq_len`.

    `unroll` and `remat` ("none", "dots": keep matrix products, "full": keep block inputs only) trade compile
    time, speed and memory, never the mathematics. `constrain` is called on each [B, S, d] stream between blocks
    and on the logits, `table` on the token embeddings [V, d] before rows are looked up; `kernels` compute the parts of
    a layer. Raises UserError on an unknown `remat` or a sequence longer than the model's.
    """
    how = {"unroll": unroll, "remat": remat, "constrain": constrain, "table": table, "kernels": kernels}
    return _decoded(params, tokens_BxS, model, **how)


def nll(
    params: Params,
    tokens_BxS1: jax.Array,
    model: ModelConfig,
    *,
    unroll: bool = True,
    remat: str = "none",
    constrain: Constrain = lambda x: x,
    table: Constrain = lambda x: x,
    kernels: Kernels = ANYWHERE,
) -> tuple[jax.Array, jax.Array]:
    """(training loss, mean negative log-likelihood), nats a token over [B, S+1] tokens, float32 scalars.

    loss = mean(nll + z · log²Z) with Z = Σ_v exp(logit_v) and z = `model.z_loss` (1e-4 in section 3 of the
    paper). The first S tokens of a row are read, the last S predicted.
    """
    how = {"unroll": unroll, "remat": remat, "constrain": constrain, "table": table, "kernels": kernels}
    if kernels.head_loss is not None:
        y_BxSxD = _decoded(params, tokens_BxS1[:, :-1], model, headless=True, **how)
        tokens_VxD = params["embed"]["tokens"].astype(model.compute_dtype)
        y_TxD, targets_T = y_BxSxD.reshape(-1, model.width), tokens_BxS1[:, 1:].reshape(-1)
        return kernels.head_loss(model.z_loss, y_TxD, tokens_VxD, targets_T)
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


def _decoded(params: Params, tokens_BxS: jax.Array, model: ModelConfig, remat: str, **how: Any) -> jax.Array:
    """What a `Decoder` makes of tokens; UserError as `logits` says."""
    if remat not in REMAT_POLICIES:
        raise UserError(f"Rematerialisation {remat!r} is unknown; choose one of {', '.join(REMAT_POLICIES)}.")
    if tokens_BxS.shape[-1] > model.seq_len:
        raise UserError(
            f"A sequence of {tokens_BxS.shape[-1]} tokens does not fit the model's {model.seq_len} positions; "
            "shorten it or raise seq_len."
        )
    decoder = Decoder(model, remat=remat, **how)
    return decoder.apply({"params": params}, tokens_BxS)  # pyright: ignore[reportReturnType]


class Decoder(nn.Module):
    """Tokens [B, S] to logits [B, S, V]."""

    model: ModelConfig
    unroll: bool = True
    remat: str = "none"
    constrain: Constrain = lambda x: x
    table: Constrain = lambda x: x
    kernels: Kernels = ANYWHERE
    headless: bool = False  # [B, S, d] behind the final norm, in place of logits

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
        )(self.model, self.constrain, self.kernels, name="layers")
        x_BxSxD, _ = layers(self.constrain(embed(tokens_BxS)), None)
        y_BxSxD = self.kernels.norm(x_BxSxD, embed.final_norm)
        return self.constrain(y_BxSxD if self.headless else embed.head(y_BxSxD))


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

    def head(self, y_BxSxD: jax.Array) -> jax.Array:
        """Logits of [B, S, d] behind the final norm."""
        return head(y_BxSxD, self.tokens.astype(self.model.compute_dtype))


class Block(nn.Module):
    """One pre-norm layer: x + attention(norm(x)), then x + feed-forward(norm(x))."""

    model: ModelConfig
    constrain: Constrain
    kernels: Kernels

    @nn.compact
    def __call__(self, x_BxSxD: jax.Array, _: None) -> tuple[jax.Array, None]:
        d = self.model.width
        x_BxSxD = x_BxSxD + self._attention(self.kernels.norm(x_BxSxD, self._scale("attn_norm", d)))
        x_BxSxD = x_BxSxD + self._feed_forward(self.kernels.norm(x_BxSxD, self._scale("mlp_norm", d)))
        return self.constrain(x_BxSxD), None

    def _attention(self, x_BxSxD: jax.Array) -> jax.Array:
        d, h = self.model.width, self.model.head_size
        heads = (*x_BxSxD.shape[:-1], self.model.heads, h)
        q_BxSxHxK = self.kernels.matmul(x_BxSxD, self._matrix("query", d, d)).reshape(heads)
        k_BxSxHxK = self.kernels.matmul(x_BxSxD, self._matrix("key", d, d)).reshape(heads)
        v_BxSxHxK = self.kernels.matmul(x_BxSxD, self._matrix("value", d, d)).reshape(heads)
        q_BxSxHxK = self.kernels.norm(q_BxSxHxK, self._scale("query_norm", h)) * h**-0.5
        k_BxSxHxK = self.kernels.norm(k_BxSxHxK, self._scale("key_norm", h))
        y_BxSxHxK = self.kernels.attention(q_BxSxHxK, k_BxSxHxK, v_BxSxHxK)
        return self.kernels.matmul(y_BxSxHxK.reshape(x_BxSxD.shape), self._matrix("output", d, d))

    def _feed_forward(self, x_BxSxD: jax.Array) -> jax.Array:
        d, f = self.model.width, self.model.ffn_width
        hidden_BxSxF = nn.gelu(self.kernels.matmul(x_BxSxD, self._matrix("up", d, f)), approximate=True)
        return self.kernels.matmul(hidden_BxSxF, self._matrix("down", f, d))

    def _matrix(self, name: str, rows: int, columns: int) -> jax.Array:
        matrix = self.param(name, nn.initializers.xavier_uniform(), (rows, columns))
        return matrix.astype(self.model.compute_dtype)

    def _scale(self, name: str, size: int) -> jax.Array:
        return self.param(name, nn.initializers.ones, (size,))
