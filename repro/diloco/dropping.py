"""Value dropping (Figure 11): which values of a row are sent, and how the replicas' rows are merged.

Exactly k = `payload.kept` of a row's C values are sent, in the order of their columns:

    feddropout  a random set, drawn again by the receiver from the same key; the rest is zero
    dare        the same, and the received values are multiplied by C/k: the mean over masks is the row
    topk        the largest magnitudes (the lower column wins a tie), with a bit mask of C bits
    ties        the pruning of TIES: topk, and the mean runs over replicas that agree with the elected sign

There is no error feedback, as in the paper: what is dropped is lost. Random masks are a function of the
key and the row's number in the logical array, so that they do not depend on how rows are sharded.
"""

from math import prod

import jax
import jax.numpy as jnp
from jax import lax

from repro.diloco.packing import pack, unpack
from repro.spec.config import CodecConfig
from repro.spec.formats import MASKED_DROPS, RANDOM_DROPS
from repro.spec.payload import kept_columns


def drop_key(seed: int, step: jax.Array | int, replica: jax.Array | int, leaf: int | jax.Array) -> jax.Array:
    """The key of one leaf's masks, u32[2], the same on every process: sender and receivers derive it alike.

    Args: `step` is the global step of the send, `leaf` the leaf's place in the flattened parameter tree.
    """
    words = []
    for start in (0x9E3779B9, 0x7F4A7C15):
        word = jnp.uint32(start)
        for part in (seed, step, replica, leaf):
            word = _mix(word ^ jnp.asarray(part).astype(jnp.uint32))
        words.append(word)
    return jnp.stack(words)


def select(
    x: jax.Array, codec: CodecConfig, key: jax.Array | None, axis_name: str | tuple[str, ...] | None
) -> tuple[jax.Array, jax.Array | None]:
    """f32[..., C] -> the kept values f32[..., k], and the mask u8[..., ceil(C/8)] where it travels."""
    columns = x.shape[-1]
    count = kept_columns(codec, columns)
    mask = _largest(_scores(x, codec, key, axis_name), count)
    place = lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
    order = jnp.sort(jnp.where(mask, place, columns), axis=-1)[..., :count]
    values = jnp.take_along_axis(x, order, axis=-1, mode="promise_in_bounds")
    return values, pack(mask.astype(jnp.int32), 1) if codec.drop in MASKED_DROPS else None


def restore(
    values: jax.Array,
    packed_mask: jax.Array,
    codec: CodecConfig,
    columns: int,
    key: jax.Array | None,
    axis_name: str | tuple[str, ...] | None,
) -> jax.Array:
    """Kept values f32[..., k] -> f32[..., C] with zeros where a value was dropped; `packed_mask` as sent."""
    if codec.drop in MASKED_DROPS:
        mask = unpack(packed_mask, 1, columns) == 1
    else:
        shape = (*values.shape[:-1], columns)
        mask = _largest(_random_scores(shape, codec, key, axis_name), values.shape[-1])
    if codec.drop == "dare":
        values = values * jnp.float32(columns / values.shape[-1])
    place = jnp.maximum(jnp.cumsum(mask.astype(jnp.int32), axis=-1) - 1, 0)
    return jnp.where(mask, jnp.take_along_axis(values, place, axis=-1, mode="clip"), 0.0)


def merge(deltas_MxP: jax.Array, codec: CodecConfig) -> jax.Array:
    """The outer gradient from the replicas' decoded ones, f32[M, ...] -> f32[...].

    The mean over replicas (Algorithm 2, line 16), dropped values counting as zeros. For ties: each
    parameter's sign is elected as the sign of the sum over replicas, and the mean runs over the replicas
    whose value is non-zero and of that sign; zero where the sum is zero.
    """
    if codec.drop != "ties":
        return jnp.mean(deltas_MxP, axis=0)
    summed = jnp.sum(deltas_MxP, axis=0)
    elected = jnp.sign(summed)
    agrees = (jnp.sign(deltas_MxP) == elected) & (elected != 0)
    total = jnp.sum(jnp.where(agrees, deltas_MxP, 0.0), axis=0)
    total = jnp.where(jnp.isfinite(summed), total, jnp.nan)  # NaN agrees with nothing, and must not vanish
    return total / jnp.maximum(jnp.sum(agrees, axis=0), 1).astype(jnp.float32)


def _scores(
    x: jax.Array, codec: CodecConfig, key: jax.Array | None, axis_name: str | tuple[str, ...] | None
) -> jax.Array:
    """i32[..., C], not negative: the k largest of a row are kept."""
    if codec.drop in RANDOM_DROPS:
        return _random_scores(x.shape, codec, key, axis_name)
    # A float's magnitude bits order like its magnitude.
    return lax.bitcast_convert_type(x, jnp.int32) & 0x7FFFFFFF


def _random_scores(
    shape: tuple[int, ...], codec: CodecConfig, key: jax.Array | None, axis_name: str | tuple[str, ...] | None
) -> jax.Array:
    """i32[shape], 31 random bits each: a hash of key, row and column.

    Not jax.random: its generator would be compiled twice for each leaf, about a second each time on CPU, and
    masks need no more than that columns and rows be unrelated.
    """
    if key is None:
        raise ValueError(f"drop={codec.drop!r} draws random masks: pass key=drop_key(...)")
    row = _mix(_row_numbers(shape[:-1], axis_name) ^ key[0])
    column = _mix(jnp.arange(shape[-1], dtype=jnp.uint32) ^ key[1])
    return (_mix(row[:, None] ^ column) >> 1).astype(jnp.int32).reshape(shape)


def _mix(word: jax.Array) -> jax.Array:
    """The finaliser of MurmurHash3: a bijection of u32 in which each bit of the input moves every bit."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> 16)


def _row_numbers(lead: tuple[int, ...], axis_name: str | tuple[str, ...] | None) -> jax.Array:
    """Each row's number in the logical array, flat u32; `axis_name` shards the last of the `lead` axes."""
    numbers = jnp.arange(prod(lead), dtype=jnp.uint32)
    if axis_name is None:
        return numbers
    local = lead[-1]
    outer, inner = numbers // local, numbers % local
    shard = lax.axis_index(axis_name).astype(jnp.uint32)
    return (outer * lax.axis_size(axis_name) + shard) * local + inner


def _largest(scores: jax.Array, count: int) -> jax.Array:
    """bool[..., C], true for exactly `count` largest scores of each row; the lower column wins a tie."""
    threshold = jnp.sort(scores, axis=-1)[..., scores.shape[-1] - count, None]
    above = scores > threshold
    level = scores == threshold
    room = count - jnp.sum(above, axis=-1, keepdims=True)
    return above | (level & (jnp.cumsum(level.astype(jnp.int32), axis=-1) <= room))
