"""What crosses the slow link: a fragment's codes packed to one vector of bytes, gathered, dequantised, averaged.

Every payload is uint8 before its collective, so that the compiler can't widen it (a low-precision cast
followed by resharding gathers float32) and what is counted is what is sent. Rows are quantised on the
logical array; each device then packs the rows it holds, so codes don't depend on the fsdp width. The
norm gains, which every fsdp device holds, are split between them and gathered again on the fast link.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from repro.diloco.compress import dequantise, quantise
from repro.diloco.dropping import drop_key
from repro.diloco.mesh import DATA, FSDP, REPLICA, leaf_spec, replicated_leaf_spec, width
from repro.spec import payload
from repro.spec.config import CodecConfig
from repro.spec.formats import RANDOM_DROPS
from repro.spec.shapes import LEAVES, is_norm

Rows = dict[str, Any]  # "group/leaf" -> array
LeafShapes = dict[str, tuple[int, ...]]  # "group/leaf" -> shape without the replica axis


def quantise_rows(delta: Rows, codec: CodecConfig, seed: int, taken: jax.Array, replica: jax.Array) -> Rows:
    """One replica's outer gradient quantised to bytes: f32 (..., C) -> u8 (..., row bytes), on the logical arrays."""
    rows = {}
    for name, leaf in delta.items():
        rank = 1 if is_norm(name) else 2
        rows[name] = quantise(leaf, codec, key=_key(name, codec, seed, taken, replica), tensor_rank=rank)
    return rows


def _key(name: str, codec: CodecConfig, seed: int, taken: jax.Array, replica: jax.Array) -> jax.Array | None:
    """The key of a leaf's random mask, the same where it is drawn to send and to receive."""
    return drop_key(seed, taken, replica, LEAVES.index(name)) if codec.drop in RANDOM_DROPS else None


def part_bytes(shapes: LeafShapes, codec: CodecConfig, fsdp: int, parts: int) -> int:
    """Bytes that one device sends in one of `parts` parts of a fragment (the last may carry padding)."""
    sharded, split = _local_bytes(shapes, codec, fsdp)
    return -(-(sharded + split) // parts)


def _local_bytes(shapes: LeafShapes, codec: CodecConfig, fsdp: int) -> tuple[int, int]:
    """(bytes of the rows a device holds alone, its share of the rows that all hold)."""
    sharded = sum(payload.leaf_bytes(codec, s) for n, s in shapes.items() if not is_norm(n)) // fsdp
    shared = sum(payload.leaf_bytes(codec, s) for n, s in shapes.items() if is_norm(n))
    return sharded, -(-shared // fsdp)


def inbox_shape(shapes: LeafShapes, codec: CodecConfig, mesh: Mesh, replicas: int, parts: int) -> tuple[int, int]:
    """Shape of the buffer that collects all replicas' bytes: (M, fsdp * parts * part bytes)."""
    fsdp = width(mesh)
    return replicas, fsdp * parts * part_bytes(shapes, codec, fsdp, parts)


INBOX_SPEC = P(None, FSDP)


def move(codes_M: Rows, inbox: jax.Array | None, part: jax.Array, parts: int, mesh: Mesh) -> jax.Array:
    """Gather part `part` of `parts` of every replica's bytes into the inbox: the one collective of a send."""
    names = sorted(codes_M)
    specs = tuple(leaf_spec(n, codes_M[n].ndim, REPLICA) for n in names)
    run = partial(jax.shard_map, mesh=mesh, out_specs=INBOX_SPEC, check_vma=False)
    if parts == 1:
        gather = run(lambda *leaves: _gather(_pack(names, leaves, mesh)), in_specs=specs)
        return gather(*(codes_M[n] for n in names))
    assert inbox is not None  # only what arrives in one part needs no buffer to collect it

    def gather_part(inbox: jax.Array, part: jax.Array, *leaves: jax.Array) -> jax.Array:
        vector = _pack(names, leaves, mesh)
        size = -(-vector.shape[1] // parts)
        vector = jnp.pad(vector, ((0, 0), (0, size * parts - vector.shape[1])))
        sent = lax.dynamic_slice_in_dim(vector, part * size, size, axis=1)
        return lax.dynamic_update_slice_in_dim(inbox, _gather(sent), part * size, axis=1)

    moved = run(gather_part, in_specs=(INBOX_SPEC, P(), *specs))
    return moved(inbox, part, *(codes_M[n] for n in names))


def _gather(vector: jax.Array) -> jax.Array:
    return lax.all_gather(vector, REPLICA, axis=0, tiled=True)


def _pack(names: list[str], leaves: tuple[jax.Array, ...], mesh: Mesh) -> jax.Array:
    """This device's bytes as (M local, n): the rows it holds alone, then its share of the norms."""
    local = leaves[0].shape[0]
    flat = {n: leaf.reshape(local, -1) for n, leaf in zip(names, leaves, strict=True)}
    alone = [flat[n] for n in names if not is_norm(n)]
    shared = [flat[n] for n in names if is_norm(n)]
    if shared:
        fsdp = width(mesh)
        joined = jnp.concatenate(shared, axis=1)
        size = -(-joined.shape[1] // fsdp)
        joined = jnp.pad(joined, ((0, 0), (0, size * fsdp - joined.shape[1])))
        share = joined if fsdp == 1 else lax.dynamic_slice_in_dim(joined, lax.axis_index(FSDP) * size, size, axis=1)
        alone.append(share)
    return jnp.concatenate(alone, axis=1)


def mean_gradients(grads_MxG: Rows, dtype: str, mesh: Mesh) -> Rows:
    """Mean over axis 1, the data-parallel groups of a replica, as float32.

    Each device gives what it holds as one vector of `dtype` to one all-reduce, so that every gradient travels
    once a step, whatever it was summed from (the tied embedding has two), and at the width that is counted.
    """
    names = sorted(grads_MxG)
    shapes = {n: grads_MxG[n].shape[2:] for n in names}
    groups = mesh.shape[DATA]

    def mean(*leaves: jax.Array) -> tuple[jax.Array, ...]:
        own = tuple(leaf[:, 0].astype(dtype) for leaf in leaves)
        vector = _pack(names, own, mesh)
        # Flat: of an array [1, n] of 16-bit values TPUs send as much padding again.
        total = lax.psum(vector.reshape(-1), DATA).reshape(vector.shape)
        cut = _cut(total.astype(jnp.float32) / groups, names, shapes, width(mesh))
        return tuple(cut[n] for n in names)

    specs = {n: leaf_spec(n, len(shapes[n])) for n in names}
    given = tuple(P(REPLICA, DATA, *specs[n]) for n in names)
    reduce = jax.shard_map(
        mean, mesh=mesh, in_specs=given, out_specs=tuple(P(REPLICA, *specs[n]) for n in names), check_vma=False
    )
    return dict(zip(names, reduce(*(grads_MxG[n] for n in names)), strict=True))


def dequantise_rows(
    inbox: jax.Array, shapes: LeafShapes, codec: CodecConfig, mesh: Mesh, seed: int, taken: jax.Array
) -> Rows:
    """All replicas' outer gradients, dequantised to float32 (M, ..., C), held by every replica."""
    names = sorted(shapes)
    out_specs = tuple(replicated_leaf_spec(n, len(shapes[n]) + 1) for n in names)

    def split(local_inbox: jax.Array, taken: jax.Array) -> tuple[jax.Array, ...]:
        leaves = _cut(local_inbox, names, {n: byte_shape(shapes[n], codec) for n in names}, width(mesh))
        return tuple(_dequantise(n, leaves[n], shapes[n][-1], codec, seed, taken) for n in names)

    whole = jax.shard_map(split, mesh=mesh, in_specs=(INBOX_SPEC, P()), out_specs=out_specs, check_vma=False)
    return dict(zip(names, whole(inbox, taken), strict=True))


def _dequantise(
    name: str, rows_M: jax.Array, columns: int, codec: CodecConfig, seed: int, taken: jax.Array
) -> jax.Array:
    axis = None if is_norm(name) else FSDP

    def one(rows: jax.Array, replica: jax.Array) -> jax.Array:
        return dequantise(rows, codec, columns, key=_key(name, codec, seed, taken, replica), axis_name=axis)

    return jax.vmap(one)(rows_M, jnp.arange(rows_M.shape[0], dtype=jnp.int32))


def _cut(vector: jax.Array, names: list[str], shapes: LeafShapes, fsdp: int) -> Rows:
    """The inverse of `_pack`, for one or all replicas: leaves of these shapes, cut to what a device holds."""
    replicas, start, leaves = vector.shape[0], 0, {}
    for name in (n for n in names if not is_norm(n)):
        shape = shapes[name]
        local = (*shape[:-2], shape[-2] // fsdp, shape[-1])
        leaves[name] = vector[:, start : start + math.prod(local)].reshape(replicas, *local)
        start += math.prod(local)
    norms = [n for n in names if is_norm(n)]
    if norms:
        sizes = [math.prod(shapes[n]) for n in norms]
        share = vector[:, start : start - (-sum(sizes) // fsdp)]
        joined = share if fsdp == 1 else lax.all_gather(share, FSDP, axis=1, tiled=True)
        start = 0
        for name, size in zip(norms, sizes, strict=True):
            leaves[name] = joined[:, start : start + size].reshape(replicas, *shapes[name])
            start += size
    return leaves


def byte_shape(shape: tuple[int, ...], codec: CodecConfig) -> tuple[int, ...]:
    """Shape of a leaf's codes: each row of the last axis becomes its bytes."""
    return (*shape[:-1], payload.row_bytes(codec, shape[-1]))
