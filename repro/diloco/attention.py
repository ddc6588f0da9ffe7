"""Causal attention for a mesh: what each device computes of it, and with which kernel.

`repro.diloco.derivatives` has the plain form. `flash` is the TPU kernel that ships with JAX (Pallas): scores stay in
the chip's fast memory, block by block, where the plain form writes an array of S × S for each head. A kernel is opaque
to XLA's partitioner, so each device is given its own sequences and heads. It is computed again in the backward pass:
what it would keep has heads of 64 along the last axis, which TPUs fill up to 128, and so costs more than the scores do.
"""

from functools import partial

import jax
from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, flash_attention
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from repro.diloco.derivatives import Attention, causal_attention
from repro.diloco.mesh import SEQUENCE

BLOCK = 512  # positions a block, of queries and of keys


def attention_for(kernel: str, mesh: Mesh, rows: tuple[str, ...]) -> Attention:
    """Attention [B, S, H, K] with sequences over the mesh axes `rows`; where a sequence is cut, heads over its parts.

    `kernel` is "xla" or "flash". Queries come scaled; sequences are whole in what a device computes.
    """
    if kernel == "flash":
        return partial(_by_devices, mesh, P(rows, None, SEQUENCE))
    if mesh.shape[SEQUENCE] == 1:
        return causal_attention
    return partial(_by_heads, NamedSharding(mesh, P(rows, None, SEQUENCE, None)))


def _by_heads(heads: NamedSharding, *qkv: jax.Array) -> jax.Array:
    return causal_attention(*(jax.lax.with_sharding_constraint(x, heads) for x in qkv))


def _by_devices(mesh: Mesh, spec: P, *qkv_BxSxHxK: jax.Array) -> jax.Array:
    shape = qkv_BxSxHxK[0].shape

    def own(*qkv_BxSxD: jax.Array) -> jax.Array:
        q, k, v = (x.reshape(*x.shape[:2], -1, shape[-1]) for x in qkv_BxSxD)
        return flash(q, k, v).reshape(qkv_BxSxD[0].shape)

    attend = jax.checkpoint(jax.shard_map(own, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec, check_vma=False))
    return attend(*(x.reshape(*shape[:2], -1) for x in qkv_BxSxHxK)).reshape(shape)


def flash(q_BxSxHxK: jax.Array, k_BxSxHxK: jax.Array, v_BxSxHxK: jax.Array) -> jax.Array:
    """Causal attention of this device's sequences and heads by the library's kernel; q comes scaled."""
    block = min(BLOCK, q_BxSxHxK.shape[1])
    sizes = BlockSizes(
        block_q=block,
        block_k_major=block,
        block_k=block,
        block_b=1,
        block_q_major_dkv=block,
        block_k_major_dkv=block,
        block_k_dkv=block,
        block_q_dkv=block,
        block_k_major_dq=block,
        block_k_dq=block,
        block_q_dq=block,
    )
    q, k, v = (x.swapaxes(1, 2) for x in (q_BxSxHxK, k_BxSxHxK, v_BxSxHxK))
    return flash_attention(q, k, v, causal=True, block_sizes=sizes).swapaxes(1, 2)
