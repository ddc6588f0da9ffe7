"""What the numbers of a validation are, by version: what was counted in two ways is never compared.

Losses in nats a token and downstream scores are the same in all versions; bits a byte are

    version 1   the loss of the scored windows by the tokens a byte of the whole held-out split, which differ from
                those of the windows: 0.8 % too low at 512 windows in miniature, 1.5 % at 64
    version 2   the nats of the scored windows by the bytes of their own text (`repro.corpus.text_bytes`)

A validation of before says no version: it is of the first.
"""

from collections.abc import Mapping
from typing import Any

METRIC_VERSION = 2


def metric_version(validation: Mapping[str, Any]) -> int:
    """By which version a validation's numbers were counted."""
    return int(validation.get("metric_version", 1))
