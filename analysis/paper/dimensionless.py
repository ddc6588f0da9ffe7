"""The numbers without a unit on which a training run's shape hangs, of any run: ours stand beside the paper's.

A miniature can't have the paper's sizes, but it can be near in these; where it isn't, a disagreement may come from it.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from experiments.registry import load
from repro.spec.config import RunConfig
from repro.spec.experiment import expand, rounds

FAR = 1.5  # a factor from the paper's range beyond which a number is named


def _fragments(config: RunConfig) -> float | None:
    if config.sync is None:
        return None
    layers, cut = config.model.layers, config.sync.fragments
    own = cut.embedding == "own"
    return 1.0 if cut.pattern == "whole" else -(-layers // cut.layers) + own


def _lag(config: RunConfig) -> float | None:
    return None if config.sync is None or config.sync.flush == "last" else config.sync.every / config.steps


NUMBERS: Mapping[str, Callable[[RunConfig], float | None]] = {
    "rounds of H": lambda config: rounds(config) or None,
    "warm-up share of the steps": lambda config: config.inner.warmup_steps / config.steps,
    "tokens a parameter": lambda config: config.tokens / config.model.params_by_rule,
    "fragments": _fragments,
    "lag of the outer copy at most, share of the steps": _lag,
    "replicas": lambda config: float(config.replicas),
}


def numbers(config: RunConfig) -> dict[str, float]:
    """Those of `NUMBERS` that a run has."""
    return {name: value for name, of in NUMBERS.items() if (value := of(config)) is not None}


def compared_numbers(configs: Iterable[RunConfig]) -> tuple[str, ...]:
    """Each number in which these runs lie beyond the paper's from 35M to 4B, in words with both ranges."""
    ours = [numbers(config) for config in configs]
    theirs = _papers()
    lines = []
    for name in NUMBERS:
        own, other = _range(ours, name), _range(theirs, name)
        if own and other and (own[0] * FAR < other[0] or own[1] > FAR * other[1]):
            lines.append(f"{name} {_words(own)} where the paper's runs have {_words(other)}")
    return tuple(lines)


@cache
def _papers() -> tuple[Mapping[str, float], ...]:
    """Those of the scaling runs as published."""
    return tuple(numbers(run.config) for run in expand(load("table5"), "paper"))


def _range(of: Iterable[Mapping[str, float]], name: str) -> tuple[float, float] | None:
    values = [each[name] for each in of if name in each]
    return (min(values), max(values)) if values else None


def _words(ends: tuple[float, float]) -> str:
    low, high = (f"{end:.3g}" for end in ends)
    return low if low == high else f"{low} to {high}"
