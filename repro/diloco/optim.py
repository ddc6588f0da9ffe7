"""InnerOpt and OuterOpt as optax transformations, and the learning-rate schedule as plain Python.

What an optimiser keeps between updates is what its `init` gives; nothing outside knows what is in it. How much that is
stands, for the accounts, in `repro.spec.optim_state`. The inner learning rate enters the compiled step as an argument,
so that runs of different lengths share one program and a restored run can't keep a stale rate.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import optax

from repro.diloco.mesh import leaf_name
from repro.spec.config import InnerConfig, OuterConfig
from repro.spec.shapes import is_norm


def learning_rate(inner: InnerConfig, step: int, steps: int) -> float:
    """The rate of inner step `step` (1-based) of `steps`: linear warm-up, then a cosine to the final fraction.

    Where `schedule_steps` says so, the cosine ends before the run does, and the final rate holds to its end.
    """
    if step <= inner.warmup_steps:
        return inner.learning_rate * step / inner.warmup_steps
    end = inner.schedule_steps or steps
    progress = (step - inner.warmup_steps) / max(1, end - inner.warmup_steps)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return inner.learning_rate * (inner.final_fraction + (1 - inner.final_fraction) * cosine)


def at_constant_rate(inner: InnerConfig) -> InnerConfig:
    """The config without its schedule: all that `inner_direction` reads (weight decay is relative to the peak rate)."""
    return replace(inner, warmup_steps=0, final_fraction=1.0, schedule_steps=0)


def inner_direction(inner: InnerConfig) -> optax.GradientTransformation:
    """AdamW up to the factor -learning rate.

    Weight decay is independent of the peak rate: the update is -lr_t (u + λ/lr_peak θ), so that λ is
    the fraction removed in a step at the peak. Norm gains take none.
    """
    return optax.chain(
        optax.clip_by_global_norm(inner.clip_norm),
        optax.scale_by_adam(inner.beta1, inner.beta2, inner.eps),
        optax.add_decayed_weights(inner.weight_decay / inner.learning_rate, mask=_decayed),
    )


def _decayed(params: Any) -> Any:
    return jax.tree.map_with_path(lambda path, _: not is_norm(leaf_name(path)), params)


def inner_update(
    inner: InnerConfig, grads: Any, state: optax.OptState, params: Any, rate: jax.Array
) -> tuple[Any, optax.OptState]:
    """InnerOpt's step of one replica (Algorithm 2, line 12): new parameters and state."""
    direction, state = inner_direction(inner).update(grads, state, params)
    return jax.tree.map(lambda p, u: p - rate * u, params, direction), state


OUTER: dict[str, Callable[[OuterConfig], optax.GradientTransformation]] = {
    "nesterov": lambda o: optax.sgd(o.learning_rate, o.momentum, nesterov=True),  # m ← Δ + β m;  θ̃ ← θ̃ − η (Δ + β m)
    "sgd": lambda o: optax.sgd(o.learning_rate),  # θ̃ ← θ̃ − η Δ
    "heavy_ball": lambda o: optax.sgd(o.learning_rate, o.momentum),  # m ← Δ + β m;  θ̃ ← θ̃ − η m
    "adam": lambda o: optax.adam(o.learning_rate, o.beta1, o.beta2, o.eps),
}


def outer_init(outer: OuterConfig, params: Any) -> optax.OptState:
    """What OuterOpt keeps of a fragment before its first update."""
    return OUTER[outer.optimizer](outer).init(params)


def outer_update(outer: OuterConfig, delta: Any, state: optax.OptState, params: Any) -> tuple[Any, optax.OptState]:
    """OuterOpt on one fragment's mean outer gradient (Algorithm 2, line 20): new outer parameters and state.

    All trees are float32 and of the fragment's shapes.
    """
    updates, state = OUTER[outer.optimizer](outer).update(delta, state, params)
    return optax.apply_updates(params, updates), state
