"""Payload sizes by hand-made numbers; tests/diloco/test_compress.py holds the encoder to these sizes."""

from typing import Any

import pytest

from repro.errors import UserError
from repro.spec.config import CodecConfig
from repro.spec.formats import FORMATS
from repro.spec.payload import fragment_bytes, kept_columns, leaf_bytes, row_bytes


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("float32", 20),
        ("bfloat16", 10),
        ("float8_e4m3", 6),
        ("float8_e5m2", 6),
        ("int8", 6),
        ("e3m0", 4),  # two full bytes, half a byte, the scale
        ("e2m1", 4),
        ("int4", 4),
        ("e2m0", 3),  # 15 bits and the scale
        ("e1m0", 3),
        ("sign", 2),
    ],
)
def test_row_of_five(name: str, expected: int) -> None:
    assert row_bytes(CodecConfig(name), 5) == expected
    assert row_bytes(CodecConfig(name, scale="tensor" if name != "sign" else "row"), 5) == expected


def test_every_format_is_covered_by_the_row_of_five() -> None:
    assert len(FORMATS) == 11


@pytest.mark.parametrize(("scale", "scales"), [("row", 1), ("block:32", 4), ("block:30", 4), ("block:1000", 1)])
def test_scales_per_block(scale: str, scales: int) -> None:
    assert row_bytes(CodecConfig("e3m0", scale), 100) == 50 + scales


def test_e3m0_fragment_is_half_a_byte_a_parameter_plus_scales() -> None:
    shapes = {"query": (3, 64, 64), "up": (3, 64, 256), "norm": (3, 64), "final": (64,)}
    values = 3 * 64 * 64 + 3 * 64 * 256 + 3 * 64 + 64
    rows = 3 * 64 + 3 * 64 + 3 + 1
    codec = CodecConfig("e3m0")
    assert fragment_bytes(codec, shapes) == values // 2 + rows
    assert fragment_bytes(codec, list(shapes.values())) == fragment_bytes(codec, shapes)
    assert leaf_bytes(codec, (64,)) == 33


@pytest.mark.parametrize(
    ("drop", "expected"),
    [
        ("none", 50 + 1),
        ("feddropout", 15 + 1),  # 30 values of 4 bits: the mask is drawn again
        ("dare", 15 + 1),
        ("topk", 13 + 15 + 1),  # 100 bits of mask
        ("ties", 13 + 15 + 1),
    ],
)
def test_dropping(drop: str, expected: int) -> None:
    assert row_bytes(CodecConfig("e3m0", drop=drop, keep=0.3), 100) == expected


@pytest.mark.parametrize(("keep", "columns", "count"), [(0.3, 10, 3), (0.25, 10, 3), (0.01, 10, 1), (1.0, 7, 7)])
def test_kept(keep: float, columns: int, count: int) -> None:
    assert kept_columns(CodecConfig("e3m0", drop="topk", keep=keep), columns) == count
    assert kept_columns(CodecConfig("e3m0", drop="none", keep=keep), columns) == columns


@pytest.mark.parametrize(
    ("codec", "word"),
    [
        (dict(format="fp4"), "'fp4'"),
        (dict(format="e3m0", scale="column"), "'column'"),
        (dict(format="e3m0", scale="block:0"), "'block:0'"),
        (dict(format="e3m0", scale="block"), "'block'"),
        (dict(format="e3m0", scale="block:-4"), "'block:-4'"),
        (dict(format="e3m0", drop="random", keep=0.5), "'random'"),
        (dict(format="sign", scale="tensor"), "'tensor'"),
    ],
)
def test_bad_codecs_are_named(codec: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=word):
        CodecConfig(**codec)


def test_sign_refuses_a_block_its_sum_cannot_hold() -> None:
    with pytest.raises(UserError, match="65537"):
        row_bytes(CodecConfig("sign"), 65_537)
    assert row_bytes(CodecConfig("sign", scale="block:65536"), 65_537) == 8193 + 2


def test_shapes_without_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="axis"):
        leaf_bytes(CodecConfig("e3m0"), ())
    with pytest.raises(ValueError, match="column"):
        leaf_bytes(CodecConfig("e3m0"), (4, 0))
