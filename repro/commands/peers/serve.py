"""How a contestant talks to the bench: a JSON line when it is ready, then one for each number of steps asked for.

The standard library, and of this suite what needs no more: the contestants run in environments of their own.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from repro.cores import cores, keep_to


class Shape(NamedTuple):
    """One model and batch: width × layers, vocabulary, sequences a step, heads; replicas 1 is data-parallel."""

    width: int
    layers: int
    vocab: int
    batch: int
    heads: int
    replicas: int = 1


SEQUENCE = 128  # tokens
SHAPES = {
    "a": Shape(32, 3, 1024, 8, 2),
    "b": Shape(64, 6, 1024, 8, 2),
    "c": Shape(128, 4, 4096, 16, 2),
    "d": Shape(24, 3, 1024, 2, 2, replicas=2),
}
RATE, BETA1, BETA2, EPSILON, DECAY, CLIP, Z_LOSS = 1e-3, 0.9, 0.99, 1e-8, 1e-4, 1.0, 1e-4


def keep_to_one_core() -> None:
    """Keep this process to the last core that it may use."""
    keep_to(cores()[-1:])


def serve(name: str, parameters: int, version: str, steps: Callable[[int], float]) -> None:
    """Say what is here, then run as many steps as each line of standard input asks; `steps` returns the last loss."""
    first = steps(2)  # whatever compiles late
    _say({"name": name, "parameters": parameters, "version": version, "loss": first})
    for line in sys.stdin:
        start = time.perf_counter()
        loss = steps(int(line))
        _say({"seconds": time.perf_counter() - start, "loss": loss})


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)
