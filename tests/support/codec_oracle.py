"""What `repro.diloco.compress` must send, bit for bit, written from its description in float64 and Python integers.

It shares no code with the library: values are rounded by comparing with the midpoints of a table or by
ml_dtypes' casts, scales are found by trying every byte, and packing is one long Python integer.
"""

from functools import cache
from itertools import pairwise
from math import ceil

import ml_dtypes
import numpy as np

BITS = {
    "float32": 32, "bfloat16": 16, "float8_e4m3": 8, "float8_e5m2": 8, "int8": 8,
    "e3m0": 4, "e2m1": 4, "int4": 4, "e2m0": 3, "e1m0": 2, "sign": 1,
}  # fmt: skip
# Format: (smallest positive magnitude, largest, lowest magnitude that no longer rounds to the largest).
GRID = {
    "e3m0": (0.25, 16.0, 24.0),
    "e2m0": (1.0, 4.0, 6.0),
    "e1m0": (1.0, 1.0, 1.5),
    "e2m1": (0.5, 6.0, 7.0),
    "float8_e4m3": (2.0**-9, 448.0, np.nextafter(464.0, 1e9)),
    "float8_e5m2": (2.0**-16, 57344.0, 61440.0),
    "int8": (1.0, 127.0, 127.5),
    "int4": (1.0, 7.0, 7.5),
}
POWERS = {"e3m0": [0.25, 0.5, 1, 2, 4, 8, 16], "e2m0": [1, 2, 4], "e1m0": [1]}
CASTS = {
    "e2m1": ml_dtypes.float4_e2m1fn,
    "float8_e4m3": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


@cache
def byte_range(name: str) -> tuple[int, int]:
    """Scale bytes for which half of the smallest magnitude is normal and the largest finite in float32."""
    smallest, largest, _ = GRID[name]
    good = [
        byte
        for byte in range(1, 255)
        if 0.5 * smallest * 2.0 ** (byte - 127) >= 2.0**-126
        and largest * 2.0 ** (byte - 127) <= float(np.finfo(np.float32).max)
    ]
    return good[0], good[-1]


def scale_byte(block: np.ndarray, name: str) -> int:
    """The one-byte scale of one block of finite float32 values."""
    if name == "sign":
        return _mean_byte(block)
    peak = float(np.abs(block.astype(np.float64)).max())
    low, high = byte_range(name)
    for byte in range(low, high + 1):
        if peak < GRID[name][2] * 2.0 ** (byte - 127):
            return byte
    return high


def _mean_byte(block: np.ndarray) -> int:
    size = [abs(float(v)) for v in block]
    size = [v if v >= 2.0**-126 else 0.0 for v in size]
    if max(size) == 0:
        return 0
    unit = 2.0 ** (np.frexp(max(size))[1] - 1 - 15)
    total = float(np.float32(sum(int(v / unit) for v in size)))
    # total/len is within [1.5·2^(k−1), 1.5·2^k): nearest to 2^k.
    k = next(k for k in range(-40, 40) if total < 1.5 * 2.0**k * len(size))
    exponent = k + int(np.log2(unit))
    return min(max(exponent + 127, 0), 254)


def block_codes(block: np.ndarray, name: str, byte: int) -> list[int]:
    """Codes of one block, given its scale byte."""
    sign = np.signbit(block).astype(int)
    if name == "sign":
        return [int(s) for s in sign]
    y = np.minimum(np.abs(block.astype(np.float64)) / 2.0 ** (byte - 127), GRID[name][1])
    if name in POWERS:
        values = [0.0, *POWERS[name]]
        middles = [(a + b) / 2 for a, b in pairwise(values)]
        code = np.searchsorted(middles, y, side="right")  # a tie goes up
    elif name in CASTS:
        code = y.astype(CASTS[name]).view(np.uint8).astype(int)
    else:
        whole = np.rint(y).astype(int) * np.where(sign, -1, 1)
        return [int(v) % 2 ** BITS[name] for v in whole]
    return [int(c) + int(s) * 2 ** (BITS[name] - 1) for c, s in zip(code, sign, strict=True)]


def block_values(codes: list[int], name: str, byte: int) -> np.ndarray:
    """float32 values of codes."""
    half = 2 ** (BITS[name] - 1)
    scale = 2.0 ** (byte - 127) if byte else 0.0
    if name == "sign":
        return np.array([-scale if c else scale for c in codes], np.float32)
    if name in ("int8", "int4"):
        return np.array([(c - 2 * half if c >= half else c) * scale for c in codes], np.float32)
    if name in POWERS:
        table = np.array([0.0, *POWERS[name]])
    else:
        table = np.arange(half, dtype=np.uint8).view(CASTS[name]).astype(np.float64)
    return np.array([(-1.0 if c >= half else 1.0) * table[c % half] * scale for c in codes], np.float32)


def pack(codes: list[int], width: int) -> bytes:
    """Code i stands in bits i·width and up of one little-endian integer."""
    number = sum(code << (i * width) for i, code in enumerate(codes))
    return number.to_bytes(ceil(len(codes) * width / 8), "little")


def encode_row(row: np.ndarray, name: str, block: int | None = None, peak: np.ndarray | None = None) -> bytes:
    """Bytes of one finite float32 row; `peak` holds the values that set the scale, if not the row's own."""
    if name == "float32":
        return row.astype("<f4").tobytes()
    if name == "bfloat16":
        top = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
        return np.clip(row, -top, top).astype(ml_dtypes.bfloat16).view("<u2").tobytes()
    codes: list[int] = []
    scales: list[int] = []
    size = block or len(row)
    for start in range(0, len(row), size):
        part = row[start : start + size]
        scales.append(scale_byte(part if peak is None else peak, name))
        codes += block_codes(part, name, scales[-1])
    return pack(codes, BITS[name]) + bytes(scales)


def decode_row(octets: bytes, name: str, columns: int, block: int | None = None) -> np.ndarray:
    """float32 values of an encoded row."""
    if name == "float32":
        return np.frombuffer(octets, "<f4")
    if name == "bfloat16":
        return np.frombuffer(octets, "<u2").view(ml_dtypes.bfloat16).astype(np.float32)
    width = BITS[name]
    split = ceil(columns * width / 8)
    number = int.from_bytes(octets[:split], "little")
    codes = [(number >> (i * width)) % 2**width for i in range(columns)]
    size = block or columns
    parts = [
        block_values(codes[start : start + size], name, octets[split + i])
        for i, start in enumerate(range(0, columns, size))
    ]
    return np.concatenate(parts)


def keep_largest(row: np.ndarray, count: int) -> np.ndarray:
    """Columns of the `count` largest magnitudes in order of the columns, the lower column winning a tie."""
    ranked = sorted(range(len(row)), key=lambda i: (-abs(float(row[i])), i))
    return np.array(sorted(ranked[:count]))
