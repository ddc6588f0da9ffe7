"""Codecs against their NumPy oracle bit for bit, and by the properties that the algorithm rests on."""

from functools import cache, partial

import codec_oracle as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.diloco.compress import dequantise, quantise
from repro.spec.config import CodecConfig
from repro.spec.formats import FORMATS
from repro.spec.payload import row_bytes

COLUMNS = 13  # odd, and no multiple of 8: the last byte is part filled
ROWS = 6
BATCH = 200  # tests share one shape, and so one compilation a codec
SCALED = [name for name, form in FORMATS.items() if form.scaled]
POWERS = ["e3m0", "e2m0", "e1m0"]
EXAMPLES = settings(max_examples=25, deadline=None)


@cache
def encoder(codec: CodecConfig):
    return jax.jit(partial(quantise, codec=codec))


@cache
def decoder(codec: CodecConfig, columns: int):
    return jax.jit(partial(dequantise, codec=codec, columns=columns))


def in_batches(function, x: np.ndarray) -> np.ndarray:
    """function(x) by rows, filled up with zeros to whole batches."""
    filled = np.concatenate([x, np.zeros((-len(x) % BATCH, x.shape[1]), x.dtype)])
    parts = [np.asarray(function(filled[i : i + BATCH])) for i in range(0, len(filled), BATCH)]
    return np.concatenate(parts)[: len(x)]


def encoded(x: np.ndarray, codec: CodecConfig) -> np.ndarray:
    return in_batches(encoder(codec), x)


def decoded(octets: np.ndarray, codec: CodecConfig, columns: int = COLUMNS) -> np.ndarray:
    return in_batches(decoder(codec, columns), octets)


def send(x: np.ndarray, codec: CodecConfig) -> np.ndarray:
    """What a receiver sees of x."""
    return decoded(encoded(x, codec), codec, x.shape[-1])


def same_bits(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_array_equal(np.ascontiguousarray(a).view(np.uint8), np.ascontiguousarray(b).view(np.uint8))


def check_against_oracle(x: np.ndarray, name: str, block: int | None = None) -> None:
    codec = CodecConfig(name, "row" if block is None else f"block:{block}")
    octets = encoded(x, codec)
    expected = [oracle.encode_row(row, name, block) for row in x]
    assert [row.tobytes() for row in octets] == expected
    values = decoded(octets, codec, x.shape[-1])
    same_bits(values, np.stack([oracle.decode_row(row, name, x.shape[-1], block) for row in expected]))


# Mantissas at and beside the ties of 0 to 3 kept bits, and any other.
MANTISSAS = st.one_of(
    st.sampled_from([0, 1, 0x7FFFFF, *(tie + d for tie in range(0x80000, 0x800000, 0x80000) for d in (-1, 0, 1))]),
    st.integers(0, 0x7FFFFF),
)


@st.composite
def finite_rows(draw: st.DrawFn) -> np.ndarray:
    """f32[ROWS, COLUMNS]: rows of few binades or all of float32, with zeros, denormals, huge values."""
    rows = []
    for _ in range(ROWS):
        top = draw(st.one_of(st.integers(0, 254), st.sampled_from([0, 1, 4, 18, 30, 127, 253, 254])))
        depth = draw(st.sampled_from([0, 3, 10, 24, 254]))
        fields = st.integers(max(top - depth, 0), top)
        value = st.builds(lambda e, m, s: (s << 31) | (e << 23) | m, fields, MANTISSAS, st.integers(0, 1))
        zero = st.sampled_from([0, 0x80000000])
        rows.append(draw(st.lists(st.one_of(value, value, value, zero), min_size=COLUMNS, max_size=COLUMNS)))
    return np.array(rows, np.uint32).view(np.float32)


def random_rows(seed: int, rows: int, columns: int) -> np.ndarray:
    """Float32 bit patterns: each row has its own top exponent and depth, with ties among the mantissas."""
    draw = np.random.default_rng(seed)
    top = draw.integers(0, 255, (rows, 1))
    depth = draw.choice([1, 4, 12, 30], (rows, 1))
    fields = np.maximum(top - draw.integers(0, depth, (rows, columns)), 0).astype(np.uint32)
    mantissa = draw.integers(0, 1 << 23, (rows, columns), dtype=np.uint32)
    cut = draw.choice(np.array([0, 0x7FFFF, 0xFFFFF, 0x3FFFFF, 0x7FFFFF], np.uint32), (rows, columns))
    sign = draw.integers(0, 2, (rows, columns), dtype=np.uint32)
    return ((sign << 31) | (fields << 23) | (mantissa & ~cut)).view(np.float32)


@given(x=finite_rows())
@EXAMPLES
def test_bitwise_equal_to_the_oracle_on_drawn_rows(x: np.ndarray) -> None:
    for name in FORMATS:
        check_against_oracle(x, name)


@pytest.mark.parametrize("name", FORMATS)
def test_bitwise_equal_to_the_oracle_on_many_rows(name: str) -> None:
    check_against_oracle(random_rows(7, 3 * BATCH, COLUMNS), name)


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("block", [5, 64])
def test_bitwise_equal_to_the_oracle_in_blocks(name: str, block: int) -> None:
    check_against_oracle(random_rows(block, BATCH, COLUMNS), name, block)


@pytest.mark.parametrize("name", ["e2m1", "float8_e4m3", "float8_e5m2", "e3m0", "int4"])
def test_every_tie_and_its_neighbours(name: str) -> None:
    # The scale is pinned by the largest magnitude, so that each further value meets the grid where it stands.
    smallest, largest, _ = oracle.GRID[name]
    grid = np.arange(1, 2048, dtype=np.float32) * np.float32(smallest / 4)
    grid = np.concatenate([grid[grid < largest], largest * 2.0 ** -np.arange(0, 40, 0.25)]).astype(np.float32)
    values = np.concatenate([grid, np.nextafter(grid, np.float32(0)), np.nextafter(grid, np.float32(largest))])
    values = np.resize(values, (-(-len(values) // 12), 12))
    check_against_oracle(np.concatenate([np.full((len(values), 1), -largest, np.float32), values], 1), name)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("columns", [1, 2, 7, 8, 9])
def test_size_is_the_payload(name: str, columns: int) -> None:
    for scale in ("row", "block:3") if FORMATS[name].scaled else ("row",):
        codec = CodecConfig(name, scale)
        shape = jax.eval_shape(encoder(codec), jax.ShapeDtypeStruct((2, 3, columns), jnp.float32))
        assert (shape.shape, shape.dtype) == ((2, 3, row_bytes(codec, columns)), jnp.uint8)


def test_leading_axes_are_free() -> None:
    x = random_rows(3, 24, 10)
    codec = CodecConfig("e3m0")
    flat = np.asarray(encoder(codec)(x))
    same_bits(np.asarray(encoder(codec)(x.reshape(2, 3, 4, 10))), flat.reshape(2, 3, 4, -1))
    same_bits(np.asarray(encoder(codec)(x[5])), flat[5])


@pytest.mark.parametrize("name", ["e3m0", "e2m1", "e2m0", "e1m0", "sign"])
def test_every_code_round_trips(name: str) -> None:
    width = FORMATS[name].bits
    codes = list(range(2**width))
    codec = CodecConfig(name)
    rows = [oracle.pack(codes, width) + bytes([byte]) for byte in range(20, 240)]
    octets = np.array([list(row) for row in rows], np.uint8)
    same_bits(encoded(decoded(octets, codec, len(codes)), codec), octets)


@pytest.mark.parametrize("name", FORMATS)
def test_idempotent_and_odd(name: str) -> None:
    x = random_rows(11, BATCH, COLUMNS)
    codec = CodecConfig(name)
    once = send(x, codec)
    same_bits(send(once, codec), once)
    if name in ("int8", "int4"):  # no negative zero in two's complement
        np.testing.assert_array_equal(send(-x, codec), -once)
    else:
        same_bits(send(-x, codec), -once)


@pytest.mark.parametrize("name", FORMATS)
def test_monotone(name: str) -> None:
    x = np.sort(random_rows(13, BATCH, COLUMNS) + np.float32(0), axis=-1)  # -0, equal to 0, has a sign of its own
    assert np.all(np.diff(send(x, CodecConfig(name)), axis=-1) >= 0)


@given(x=finite_rows())
@EXAMPLES
def test_e3m0_error_bounds(x: np.ndarray) -> None:
    octets = encoded(x, CodecConfig("e3m0"))
    value = decoded(octets, CodecConfig("e3m0")).astype(np.float64)
    scale = 2.0 ** (octets[:, -1:].astype(np.float64) - 127)
    exact = x.astype(np.float64)
    size = np.abs(exact)
    error = np.abs(value - exact)
    inside = (size >= 0.25 * scale) & (size <= 24 * scale)
    assert np.all(error[inside] <= size[inside] / 3)
    below = size < 0.25 * scale
    assert np.all(error[below] <= np.broadcast_to(scale / 8, error.shape)[below])
    # Only the very top of float32 lies above: there 2^128 has no float32, and the largest code is 2^127.
    assert np.all(size[~inside & ~below] >= 1.5 * 2.0**127)


def test_e3m0_row_uses_its_whole_range() -> None:
    x = np.array([[1.0, -0.5, 0.3, 3e-3, 0.0, 1 / 128]], np.float32)
    octets = np.asarray(encoder(CodecConfig("e3m0"))(x))
    assert octets.tolist() == [[0xE7, 0x05, 0x10, 127 - 4]]  # 2^0 = 2^4 · 2^-4; 1/128 = 2^-3 · 2^-4 is a tie: up


def test_a_row_of_zeros_has_zero_codes() -> None:
    for name in SCALED:
        octets = encoded(np.zeros((1, COLUMNS), np.float32), CodecConfig(name))
        assert not octets[:, :-1].any(), name
        assert not decoded(octets, CodecConfig(name)).any()


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "float32"])
def test_denormals_vanish_and_nothing_sent_is_denormal_or_infinite(name: str) -> None:
    tiny = np.float32(2.0**-126)
    x = np.array([[np.nextafter(tiny, np.float32(0)), -1e-40, tiny], [3.4028235e38, 1e-45, -1e38]], np.float32)
    value = send(x, CodecConfig(name))
    assert np.all(np.isfinite(value))
    if name not in ("bfloat16", "sign"):
        assert not value[0, :2].any()
        assert not value[1, 1].any()
        assert np.all((value == 0) | (np.abs(value) >= tiny))


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", FORMATS)
def test_one_non_finite_value_spoils_its_block_and_no_other(name: str, bad: float) -> None:
    x = random_rows(29, 6, 18)
    clean = send(x, CodecConfig(name))
    x[2, 7] = bad
    octets = np.asarray(encoder(CodecConfig(name))(x))
    value = np.asarray(decoder(CodecConfig(name), 18)(octets))
    others = np.delete(np.arange(6), 2)
    same_bits(value[others], clean[others])
    if FORMATS[name].scaled:
        assert octets[2, -1] == 255
        assert np.all(np.isnan(value[2]))
    else:
        assert np.flatnonzero(~np.isfinite(value[2])).tolist() == [7]


@pytest.mark.parametrize("name", SCALED)
def test_non_finite_values_are_marked_block_by_block(name: str) -> None:
    x = random_rows(31, 2, 18)
    x[1, 5] = np.nan
    value = send(x, CodecConfig(name, "block:4"))
    assert np.flatnonzero(np.isnan(value.ravel())).tolist() == [18 + 4, 18 + 5, 18 + 6, 18 + 7]


@pytest.mark.parametrize("name", SCALED)
def test_only_scale_byte_255_is_not_a_number(name: str) -> None:
    low, high = (0, 254) if name == "sign" else oracle.byte_range(name)
    octets = np.full((3, row_bytes(CodecConfig(name), 8)), 0b10010110, np.uint8)
    octets[:, -1] = low, high, 255
    value = np.asarray(decoder(CodecConfig(name), 8)(octets))
    assert np.all(np.isfinite(value[:2]))
    assert np.all(np.isnan(value[2]))


def test_float32_travels_bit_for_bit() -> None:
    x = np.arange(0, 2**32, 2**18, dtype=np.uint32).view(np.float32).reshape(128, -1)
    same_bits(send(x, CodecConfig("float32")), x)


def test_tensor_scale_is_shared_by_the_last_two_axes() -> None:
    x = random_rows(17, 12, 9).reshape(3, 4, 9)
    octets = np.asarray(jax.jit(partial(quantise, codec=CodecConfig("e3m0", "tensor")))(x))
    for layer, rows in zip(octets, x, strict=True):
        expected = [oracle.encode_row(row, "e3m0", peak=rows.ravel()) for row in rows]
        assert [row.tobytes() for row in layer] == expected


def test_tensor_scale_of_vectors_is_the_row_scale() -> None:
    x = random_rows(19, 6, 9)
    vectors = jax.jit(partial(quantise, codec=CodecConfig("e3m0", "tensor"), tensor_rank=1))(x)
    same_bits(np.asarray(vectors), np.asarray(encoder(CodecConfig("e3m0"))(x)))


@pytest.mark.parametrize("name", ["e3m0", "float8_e4m3"])
def test_tensor_scale_is_that_of_the_logical_array_when_sharded(name: str) -> None:
    mesh = jax.make_mesh((4,), ("fsdp",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec(None, "fsdp", None)
    x = random_rows(23, 16, 9).reshape(2, 8, 9)
    codec = CodecConfig(name, "tensor")
    sharded = jax.shard_map(
        partial(quantise, codec=codec, axis_name="fsdp"),
        mesh=mesh,
        in_specs=spec,
        out_specs=spec,
        check_vma=False,
    )
    same_bits(np.asarray(jax.jit(sharded)(x)), np.asarray(jax.jit(partial(quantise, codec=codec))(x)))


def test_wrong_types_and_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="float32"):
        quantise(jnp.zeros((2, 4), jnp.bfloat16), CodecConfig("e3m0"))
    with pytest.raises(ValueError, match="3 bytes for 4 columns"):
        dequantise(jnp.zeros((2, 4), jnp.uint8), CodecConfig("e3m0"), 4)
