"""Bit fields into bytes and back, little end first, without gaps: code i takes bits i·b … i·b+b−1 of its row.

Two 4-bit codes share a byte, the earlier one in its low half; eight 3-bit codes share three bytes.
The last byte of a row is filled up with zeros.
"""

from math import lcm

import jax
import jax.numpy as jnp
from jax import lax

from repro.spec.payload import packed_bytes


def pack(codes: jax.Array, bits: int) -> jax.Array:
    """i32[..., C] codes below 2^bits -> u8[..., ceil(C·bits/8)]; bits at most 8."""
    columns = codes.shape[-1]
    group, group_bytes = _group(bits)
    words = _split(codes, group)
    word = words[..., 0]
    for i in range(1, group):
        word = word | (words[..., i] << (bits * i))
    if group_bytes > 1:
        # Else XLA computes all codes of a word again for each of its bytes: 12 against 2 ns a parameter.
        word = lax.optimization_barrier(word)
    # jnp.stack keeps the bytes of one word adjacent, low byte first.
    octets = jnp.stack([(word >> (8 * i)) & 0xFF for i in range(group_bytes)], axis=-1)
    return _join(octets)[..., : packed_bytes(columns, bits)].astype(jnp.uint8)


def unpack(octets: jax.Array, bits: int, columns: int) -> jax.Array:
    """u8[..., ceil(C·bits/8)] -> i32[..., C], the inverse of `pack`."""
    group, group_bytes = _group(bits)
    parts = _split(octets.astype(jnp.int32), group_bytes)
    word = parts[..., 0]
    for i in range(1, group_bytes):
        word = word | (parts[..., i] << (8 * i))
    shifts = bits * jnp.arange(group, dtype=jnp.int32)
    return _join((word[..., None] >> shifts) & ((1 << bits) - 1))[..., :columns]


def _group(bits: int) -> tuple[int, int]:
    """The fewest codes that fill whole bytes, and how many bytes they fill."""
    width = lcm(bits, 8)
    return width // bits, width // 8


def _split(x: jax.Array, group: int) -> jax.Array:
    """[..., C] -> [..., ceil(C/group), group], filled up with zeros."""
    fill = -x.shape[-1] % group
    if fill:
        x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, fill)])
    return x.reshape(*x.shape[:-1], x.shape[-1] // group, group)


def _join(x: jax.Array) -> jax.Array:
    """[..., n, group] -> [..., n·group]."""
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])
