"""The forms that values take on the wire, by name: a config names one, `repro.spec.payload` counts it. Plain Python."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """Width of one code in bits, and whether blocks of codes carry a one-byte power-of-two scale."""

    bits: int
    scaled: bool


FORMATS: dict[str, Format] = {
    "float32": Format(32, scaled=False),
    "bfloat16": Format(16, scaled=False),
    "float8_e4m3": Format(8, scaled=True),
    "float8_e5m2": Format(8, scaled=True),
    "int8": Format(8, scaled=True),
    "e3m0": Format(4, scaled=True),  # the paper's four bits: sign and 3 exponent bits (§2.4)
    "e2m1": Format(4, scaled=True),
    "int4": Format(4, scaled=True),
    "e2m0": Format(3, scaled=True),  # sign and 2 exponent bits
    "e1m0": Format(2, scaled=True),  # sign and 1 exponent bit: −S, 0 or S
    "sign": Format(1, scaled=True),
}
RANDOM_DROPS = ("feddropout", "dare")  # masks drawn from a key that both ends know
MASKED_DROPS = ("topk", "ties")  # masks depend on the values, so they travel
DROPS = ("none", *RANDOM_DROPS, *MASKED_DROPS)
