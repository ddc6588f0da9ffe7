"""How many bytes a fragment takes on the wire: the one rule that trainer, plan and accounts all read.

A row is one vector along a leaf's last axis, which is never sharded. Each row is encoded on its own, as

    [ keep mask: 1 bit a column ] [ codes of the kept values ] [ one-byte scale of each block of values ]

where the mask travels only for topk and ties (random masks are drawn again by the receiver), the bit
fields are packed little end first and filled up to a whole byte, and the scales exist only for formats
that carry one. No JAX here: `repro.diloco.compress` produces exactly these sizes, and a test holds it to them.
"""

from collections.abc import Iterable, Mapping
from math import prod

from repro.errors import UserError
from repro.spec.config import CodecConfig
from repro.spec.formats import FORMATS, MASKED_DROPS

SIGN_BLOCK_MAX = 65_536  # a block's sum of 16-bit magnitudes must fit 32 bits (repro.diloco.compress)


def kept_columns(codec: CodecConfig, columns: int) -> int:
    """Values sent of a row of `columns`: round(keep · columns), half up, and at least one."""
    if codec.drop == "none":
        return columns
    return max(1, int(codec.keep * columns + 0.5))


def block_columns(codec: CodecConfig, columns: int) -> int:
    """Values that share one scale byte, in a row of `columns` values: all of them unless scale is block:N."""
    if codec.scale.startswith("block:"):
        return min(int(codec.scale.removeprefix("block:")), columns)
    return columns


def mask_bytes(codec: CodecConfig, columns: int) -> int:
    """Bytes of the keep mask at the head of a row; 0 where no mask travels."""
    return packed_bytes(columns, 1) if codec.drop in MASKED_DROPS else 0


def packed_bytes(count: int, bits: int) -> int:
    """Bytes of `count` codes of `bits` bits, packed without gaps and filled up to a whole byte."""
    return -(-count * bits // 8)


def row_bytes(codec: CodecConfig, columns: int) -> int:
    """Bytes of one encoded row: keep mask, codes and scales.

    With scale="tensor" each row repeats its tensor's scale byte, so that rows decode on their own
    wherever they are sharded to; that byte is sent, so it is counted.
    """
    if columns < 1:
        raise ValueError(f"a row needs at least one column, not {columns}")
    form = FORMATS[codec.format]
    values = kept_columns(codec, columns)
    block = block_columns(codec, values)
    if codec.format == "sign" and block > SIGN_BLOCK_MAX:
        raise UserError(
            f"codec format='sign' with {block} values a scale: at most {SIGN_BLOCK_MAX} are possible, so "
            "choose scale='block:N' with a smaller N."
        )
    scales = -(-values // block) if form.scaled else 0
    return mask_bytes(codec, columns) + packed_bytes(values, form.bits) + scales


def leaf_bytes(codec: CodecConfig, shape: tuple[int, ...]) -> int:
    """Bytes of one leaf: all axes but the last are rows (a vector is one row)."""
    if not shape:
        raise ValueError("a leaf needs at least one axis")
    return prod(shape[:-1]) * row_bytes(codec, shape[-1])


def fragment_bytes(codec: CodecConfig, shapes: Mapping[str, tuple[int, ...]] | Iterable[tuple[int, ...]]) -> int:
    """Bytes of one send of a fragment by one replica: the sum over its leaves."""
    leaves = shapes.values() if isinstance(shapes, Mapping) else shapes
    return sum(leaf_bytes(codec, tuple(shape)) for shape in leaves)


DATA_PARALLEL_CODEC = CodecConfig("bfloat16")
