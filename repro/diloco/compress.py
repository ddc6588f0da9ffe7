"""Quantisation of what is sent of an outer gradient Δ (§2.4): float32 rows into bytes and back, each row on its own.

`repro.spec.payload` states the layout of a quantised row and its size. All arithmetic is on the bits of the
float32 values, so a code never depends on how a machine treats denormals, on sums' order or on the compiler.

**Scale.** A block of values shares S = 2^(byte − 127), the smallest power of two for which the block's
largest magnitude doesn't round above the format's largest. For e3m0 this is the power of two nearest
to max|x|, over 2^4. `byte` is kept within bounds in which every code decodes to a normal float32 or zero and
magnitudes below 2^-126 (denormals) round to zero by the ordinary rule. A block of zeros gets the lowest byte.

**Codes**, of x/S, rounded to nearest:

    e3m0, e2m0, e1m0   sign and exponent field e: 0, or 2^(e − bias) with bias 3, 1, 1, that is 0, 2^-2 … 2^4;
                       0, 1, 2, 4; 0, 1. Ties go away from zero: there is no mantissa bit to make even.
    e2m1, float8_*     as ml_dtypes' float4_e2m1fn, float8_e4m3fn, float8_e5m2, ties to even, no inf or NaN.
    int8, int4         two's complement, ±127 and ±7, ties to even; the code −128 (−8) is never made.
    sign               one bit, set for negative (−0 too); S is the power of two nearest to the block's mean
                       |x|, and byte 0 stands for S = 0.
    bfloat16           ties to even; no scale. float32 travels as it is.

Floating formats keep the sign of a zero: code 8 of e3m0 is −0, so all 16 codes round-trip and encoding is
odd. Finite values stay finite.

**Infinities and NaN** can't pass for numbers: a block that holds one gets the scale byte 255, which no finite
block has and which makes all of the block NaN at the receiver. bfloat16 sends each of them as NaN, float32 as it
is. Under value dropping the kept values of such a row are NaN, whichever values those are.
"""

import operator
from dataclasses import dataclass
from functools import reduce

import jax
import jax.numpy as jnp
from jax import lax

from repro.diloco.dropping import restore, select
from repro.diloco.packing import pack, unpack
from repro.spec.config import CodecConfig
from repro.spec.formats import FORMATS
from repro.spec.payload import block_columns, kept_columns, mask_bytes, packed_bytes, row_bytes

_MAGNITUDE = 0x7FFFFFFF
_LARGEST_FINITE = 0x7F7FFFFF
_FLOAT32_BIAS = 127
_NON_FINITE_BYTE = 255
_ROUND_SIGNED = 12_582_912.0  # 1.5 · 2^23: adding it rounds |y| < 2^22 to an integer in the low bits, ties to even
_ROUND_POSITIVE = 8_388_608.0  # 2^23


@dataclass(frozen=True)
class _Minifloat:
    """A sign, exponent and mantissa format; `largest` is the code of its largest finite magnitude."""

    mantissa: int
    bias: int
    largest: int

    @property
    def limit(self) -> int:
        """float32 bits of the lowest magnitude that rounds above `largest`."""
        midpoint = (2 * self.largest + 1) << (22 - self.mantissa)
        tie_stays = self.mantissa > 0 and self.largest % 2 == 0
        return midpoint + ((_FLOAT32_BIAS - self.bias) << 23) + tie_stays

    @property
    def lowest_byte(self) -> int:
        """2^-126 is half of the smallest magnitude."""
        return 1 + self.bias + self.mantissa

    @property
    def highest_byte(self) -> int:
        """The largest magnitude has the largest exponent of float32."""
        return 254 - (self.largest >> self.mantissa) + self.bias


@dataclass(frozen=True)
class _Integer:
    """Symmetric two's complement up to ±`largest`, which is odd, so that a tie above it rounds away."""

    largest: int

    @property
    def limit(self) -> int:
        """float32 bits of largest + 1/2."""
        top = self.largest.bit_length() - 1
        fraction = ((2 * self.largest + 1) << (22 - top)) - (1 << 23)
        return ((_FLOAT32_BIAS + top) << 23) + fraction

    lowest_byte = 2

    @property
    def highest_byte(self) -> int:
        return 255 - self.largest.bit_length()


_GRIDS: dict[str, _Minifloat | _Integer] = {
    "float8_e4m3": _Minifloat(mantissa=3, bias=7, largest=0x7E),
    "float8_e5m2": _Minifloat(mantissa=2, bias=15, largest=0x7B),
    "e2m1": _Minifloat(mantissa=1, bias=1, largest=7),
    "e3m0": _Minifloat(mantissa=0, bias=3, largest=7),
    "e2m0": _Minifloat(mantissa=0, bias=1, largest=3),
    "e1m0": _Minifloat(mantissa=0, bias=1, largest=1),
    "int8": _Integer(127),
    "int4": _Integer(7),
}


def quantise(
    x: jax.Array,
    codec: CodecConfig,
    *,
    key: jax.Array | None = None,
    axis_name: str | tuple[str, ...] | None = None,
    tensor_rank: int = 2,
) -> jax.Array:
    """Quantise and pack: f32[..., R, C] -> u8[..., R, payload.row_bytes(codec, C)]; any leading axes.

    Args:
        key: from `dropping.drop_key`, for drop="feddropout" and "dare"; leading axes are then of one replica.
        axis_name: inside shard_map, the mesh axis that shards the second to last axis (None: not sharded).
            Only scale="tensor" and random masks look at it.
        tensor_rank: trailing axes of one tensor of one layer, for scale="tensor": 2, or 1 for vectors.
    """
    if x.dtype != jnp.float32:
        raise ValueError(f"quantise takes float32, not {x.dtype}")
    row_bytes(codec, x.shape[-1])  # refuses rows that the format can't hold
    mask = None
    if codec.drop != "none":
        finite = jnp.all(jnp.isfinite(x), axis=-1, keepdims=True)  # before the culprit itself may be dropped
        x, mask = select(x, codec, key, axis_name)
        x = jnp.where(finite, x, jnp.nan)
    parts = [] if mask is None else [mask]
    bits = lax.bitcast_convert_type(x, jnp.int32)
    if codec.format == "float32":
        return _concatenate([*parts, _as_bytes(bits)])
    if codec.format == "bfloat16":
        return _concatenate([*parts, _as_bytes(_round_bfloat16(bits))])
    blocks = _to_blocks(bits, block_columns(codec, x.shape[-1]))
    scale, codes = _quantise_blocks(blocks, x.shape[-1], codec, axis_name, tensor_rank)
    packed = pack(_from_blocks(codes, x.shape[-1]), FORMATS[codec.format].bits)
    return _concatenate([*parts, packed, scale[..., 0].astype(jnp.uint8)])


def dequantise(
    octets: jax.Array,
    codec: CodecConfig,
    columns: int,
    *,
    key: jax.Array | None = None,
    axis_name: str | tuple[str, ...] | None = None,
) -> jax.Array:
    """u8[..., R, row_bytes] -> f32[..., R, columns], from `quantise` with the same codec, key and axis_name."""
    if octets.dtype != jnp.uint8 or octets.shape[-1] != row_bytes(codec, columns):
        raise ValueError(
            f"dequantise takes uint8 rows of {row_bytes(codec, columns)} bytes for {columns} columns of "
            f"{codec.format}, not {octets.dtype} rows of {octets.shape[-1]}"
        )
    head = mask_bytes(codec, columns)
    values = _dequantise_values(octets[..., head:], codec, kept_columns(codec, columns))
    if codec.drop == "none":
        return values
    return restore(values, octets[..., :head], codec, columns, key, axis_name)


def _dequantise_values(octets: jax.Array, codec: CodecConfig, columns: int) -> jax.Array:
    if codec.format in ("float32", "bfloat16"):
        return _from_bytes(octets, FORMATS[codec.format].bits // 8)
    width = FORMATS[codec.format].bits
    split = packed_bytes(columns, width)
    codes = _to_blocks(unpack(octets[..., :split], width, columns), block_columns(codec, columns))
    byte = octets[..., split:, None].astype(jnp.int32)
    values = jnp.where(byte == _NON_FINITE_BYTE, jnp.nan, _dequantise_blocks(codes, byte, codec.format, width))
    return _from_blocks(values, columns)


def _dequantise_blocks(codes: jax.Array, byte: jax.Array, name: str, width: int) -> jax.Array:
    if name == "sign":
        return _float((codes << 31) | (byte << 23))
    grid = _GRIDS[name]
    if isinstance(grid, _Integer):
        half = 1 << (width - 1)
        signed = ((codes ^ half) - half).astype(jnp.float32)
        return signed * _float(byte << 23)
    return _dequantise_minifloat(codes, byte, grid, width)


def _quantise_blocks(
    bits: jax.Array, columns: int, codec: CodecConfig, axis_name: str | tuple[str, ...] | None, tensor_rank: int
) -> tuple[jax.Array, jax.Array]:
    """i32[..., blocks, N] float bits -> scale bytes i32[..., blocks, 1] and codes i32[..., blocks, N]."""
    peak = jnp.max(bits & _MAGNITUDE, axis=-1, keepdims=True)
    finite = peak <= _LARGEST_FINITE
    magnitude, peak = (jnp.minimum(m, _LARGEST_FINITE) for m in (bits & _MAGNITUDE, peak))
    if codec.format == "sign":
        byte = _mean_scale(magnitude, peak, columns)
        return jnp.where(finite, byte, _NON_FINITE_BYTE), (bits >> 31) & 1
    if codec.scale == "tensor" and tensor_rank == 2 and bits.ndim > 2:
        peak = jnp.broadcast_to(jnp.max(peak, axis=-3, keepdims=True), peak.shape)
        peak = peak if axis_name is None else lax.pmax(peak, axis_name)
    grid = _GRIDS[codec.format]
    byte = jnp.clip(_FLOAT32_BIAS + 1 + ((peak - grid.limit) >> 23), grid.lowest_byte, grid.highest_byte)
    quantise_grid = _quantise_integer if isinstance(grid, _Integer) else _quantise_minifloat
    codes = quantise_grid(bits, magnitude, byte, grid, FORMATS[codec.format].bits)  # type: ignore[arg-type]
    return jnp.where(finite, byte, _NON_FINITE_BYTE), codes


def _quantise_minifloat(
    bits: jax.Array, magnitude: jax.Array, byte: jax.Array, grid: _Minifloat, width: int
) -> jax.Array:
    drop = 23 - grid.mantissa
    # The bits of |x|/S with the format's bias: exponent and leading mantissa are the code of a normal value.
    relative = magnitude - ((byte - grid.bias) << 23)
    if grid.mantissa == 0:
        # Half of the smallest magnitude is where the exponent field is 0.
        code = jnp.where(relative < 0, 0, jnp.clip((relative + (1 << 22)) >> 23, 1, grid.largest))
    else:
        even = (relative >> drop) & 1
        normal = (relative + (1 << (drop - 1)) - 1 + even) >> drop
        inverse_unit = _float((_FLOAT32_BIAS * 2 - 1 + grid.bias + grid.mantissa - byte) << 23)
        rounded = _float(magnitude) * inverse_unit + _ROUND_POSITIVE
        subnormal = lax.bitcast_convert_type(rounded, jnp.int32) & ((1 << 23) - 1)
        code = jnp.where(relative < 1 << 23, subnormal, jnp.minimum(normal, grid.largest))
    return code | (((bits >> 31) & 1) << (width - 1))


def _dequantise_minifloat(codes: jax.Array, byte: jax.Array, grid: _Minifloat, width: int) -> jax.Array:
    code = codes & ((1 << (width - 1)) - 1)
    normal = (code << (23 - grid.mantissa)) + ((byte - grid.bias) << 23)
    if grid.mantissa == 0:
        small = jnp.zeros_like(normal)
    else:
        unit = _float((byte + 1 - grid.bias - grid.mantissa) << 23)
        small = lax.bitcast_convert_type(code.astype(jnp.float32) * unit, jnp.int32)
    magnitude = jnp.where(code < 1 << grid.mantissa, small, normal)
    return _float(magnitude | ((codes >> (width - 1)) << 31))


def _quantise_integer(bits: jax.Array, magnitude: jax.Array, byte: jax.Array, grid: _Integer, width: int) -> jax.Array:
    inverse = _float((2 * _FLOAT32_BIAS - byte) << 23)
    scaled = jnp.minimum(_float(magnitude) * inverse, grid.largest)
    signed = jnp.where(bits < 0, -scaled, scaled)
    return lax.bitcast_convert_type(signed + _ROUND_SIGNED, jnp.int32) & ((1 << width) - 1)


def _mean_scale(magnitude: jax.Array, peak: jax.Array, columns: int) -> jax.Array:
    """Biased exponent of the power of two nearest to each block's mean magnitude; 0 below 2^-126.

    Magnitudes are cut to 16 bits below the block's peak, so that their sum is of integers and doesn't depend
    on its order. The sum is rounded to 24 bits. It is compared with the count as integers, because compilers
    turn a division by a constant into a product.
    """
    exponent = jnp.maximum(peak >> 23, 1)
    shift = jnp.minimum(exponent - (magnitude >> 23) + 8, 31)
    whole = jnp.where(magnitude >> 23 > 0, _significand(magnitude) >> shift, 0)  # in units of 2^(exponent − 142)
    total = lax.bitcast_convert_type(
        jnp.sum(whole.astype(jnp.uint32), axis=-1, keepdims=True).astype(jnp.float32), jnp.int32
    )
    size = magnitude.shape[-1]
    starts = size * lax.broadcasted_iota(jnp.int32, total.shape, total.ndim - 2)
    count = lax.bitcast_convert_type(jnp.minimum(columns - starts, size).astype(jnp.float32), jnp.int32)
    # The ratio of the significands lies in (1/2, 2): above 3/2 it is nearest to 2, below 3/4 to 1/2.
    over, under = _significand(total), 3 * _significand(count)
    step = (2 * over >= under).astype(jnp.int32) + (4 * over >= under).astype(jnp.int32) - 1
    return jnp.clip((total >> 23) - (count >> 23) + step + exponent - 15, 0, 254)


def _significand(bits: jax.Array) -> jax.Array:
    """The 24-bit significand of a normal float32."""
    return (bits & 0x7FFFFF) | 0x800000


def _round_bfloat16(bits: jax.Array) -> jax.Array:
    magnitude = jnp.minimum(bits & _MAGNITUDE, _LARGEST_FINITE)
    rounded = (magnitude + 0x7FFF + ((magnitude >> 16) & 1)) >> 16
    finite = jnp.minimum(rounded, 0x7F7F) | ((bits >> 16) & 0x8000)
    return jnp.where(bits & _MAGNITUDE > _LARGEST_FINITE, 0x7FC0, finite).astype(jnp.uint16)


def _to_blocks(x: jax.Array, size: int) -> jax.Array:
    """[..., C] -> [..., ceil(C/size), size], filled up with zeros, which change no maximum and no sum."""
    fill = -x.shape[-1] % size
    if fill:
        x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, fill)])
    return x.reshape(*x.shape[:-1], x.shape[-1] // size, size)


def _from_blocks(x: jax.Array, columns: int) -> jax.Array:
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])[..., :columns]


def _as_bytes(x: jax.Array) -> jax.Array:
    """[..., C] of n-byte integers -> u8[..., n·C], low byte first."""
    octets = lax.bitcast_convert_type(x, jnp.uint8)
    return octets.reshape(*octets.shape[:-2], octets.shape[-2] * octets.shape[-1])


def _from_bytes(octets: jax.Array, count: int) -> jax.Array:
    """u8[..., n·C], low byte first -> f32[..., C] whose highest n bytes they are.

    Strided rather than reshaped to [..., C, n]: TPUs pad a last dimension of 2 or 4, and a blocking DiLoCo of 500M
    took 3.7 GiB more a chip.
    """
    parts = [octets[..., i::count].astype(jnp.uint32) << 8 * (4 - count + i) for i in range(count)]
    return lax.bitcast_convert_type(reduce(operator.or_, parts), jnp.float32)


def _float(bits: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(bits, jnp.float32)


def _concatenate(parts: list[jax.Array]) -> jax.Array:
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)
