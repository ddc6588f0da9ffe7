"""A tiny trainer for the tests: runs driven step by step on the host, and the oracle driven with the same data.

Only what the oracle can't do without comes from `repro`: the gradient of the model's loss, as a black box.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import codec_oracle
import jax
import numpy as np
import oracle
import tiny

from repro.diloco import model as lm
from repro.diloco.buffers import outer_struct, shardings
from repro.diloco.mesh import batch_sharding, tree_shardings
from repro.diloco.optim import inner_direction, outer_init
from repro.diloco.resources import Resources
from repro.spec.config import ModelConfig, OuterConfig, RunConfig
from repro.spec.schedule import is_due
from repro.spec.shapes import parameter_shapes
from repro.training.scored import evaluated_parameters
from repro.training.state import Layout, TrainState
from repro.training.step import Stepper

Flat = dict[str, np.ndarray]  # "group/leaf" -> array


def first_parameters(model: ModelConfig = tiny.MODEL, seed: int = 0) -> oracle.Tree:
    """Random float32 parameters of one replica: norm gains near 1, the rest as at initialisation."""
    rng = np.random.default_rng(seed)

    def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
        centre, spread = (1.0, 0.1) if name.endswith("_norm") else (0.0, shape[-1] ** -0.5)
        return (centre + spread * rng.standard_normal(shape)).astype(np.float32)

    return {g: {n: draw(n, s) for n, s in leaves.items()} for g, leaves in parameter_shapes(model).items()}


def tokens(config: RunConfig, step: int) -> np.ndarray:
    """(M, B/M, S+1) int32, other ones at every step and in every replica."""
    shape = config.replicas, config.batch // config.replicas, config.model.seq_len + 1
    return np.random.default_rng([config.seed, step]).integers(0, config.model.vocab, shape, dtype=np.int32)


def begin(layout: Layout, params: oracle.Tree | None = None) -> TrainState:
    """Step 0 from given parameters, without compiling the model's own initialisation."""
    params = first_parameters(layout.config.model) if params is None else params
    both = params, jax.tree.map(np.asarray, inner_direction(layout.config.inner).init(params))
    m = layout.config.replicas
    tree = jax.tree.map(lambda x: np.broadcast_to(x, (m, *np.shape(x))), both)
    replicas, inner = jax.device_put(tree, tree_shardings(layout.mesh, tree, "replica"))
    outer = []
    for fragment in layout.fragments:
        sync = layout.config.sync
        assert sync is not None
        rows = flatten(oracle.take(params, {"embed": fragment.embed, "layers": fragment.layers}))
        entry = {"params": rows, "state": jax.tree.map(np.asarray, outer_init(sync.outer, rows))}
        outer.append(jax.device_put(entry, shardings(outer_struct(layout.recipe, fragment.kind))))
    return TrainState(0, replicas, inner, outer)


@dataclass
class Trace:
    """Host copies of a run's states, index [0] the start and [t] the end of step t, as flat dicts."""

    params: list[list[Flat]]  # [t][m]
    outer: list[list[Flat]]  # [t][p]
    state: list[list[list[Flat]]]  # [t][p], a flat dict for each buffer of a parameter's shape that OuterOpt keeps
    loss: list[np.ndarray]  # [t - 1], (M,)
    finite: list[dict[int, bool]]  # [t - 1], fragment -> flag
    scored: oracle.Tree | None = None  # with a final flush: the outer copy as it is scored


def drive(
    config: RunConfig,
    resources: Resources = tiny.TWO,
    params: oracle.Tree | None = None,
    data: Callable[[int], np.ndarray] | None = None,
) -> Trace:
    """Run all steps of a config with the trainer's own programs."""
    layout = Layout.of(config, resources)
    stepper, state = Stepper(layout), begin(layout, params)
    trace = Trace([], [], [], [], [])
    record(trace, state)
    for step in range(1, config.steps + 1):
        batch = tokens(config, step) if data is None else data(step)
        loss, applied = stepper(state, jax.device_put(batch, batch_sharding(layout.mesh)))
        record(trace, state)
        trace.loss.append(np.asarray(loss))
        trace.finite.append({p: bool(sync.finite) for p, sync in applied.items()})
    if config.sync and config.sync.flush == "last":
        trace.scored = jax.tree.map(np.array, evaluated_parameters(layout, state, "outer"))
    return trace


def record(trace: Trace, state: TrainState) -> None:
    """Append a host copy of the state: its buffers are donated to the next step."""
    params, outer = jax.tree.map(np.array, (state.params, state.outer))
    replicas = len(params["embed"]["tokens"])
    trace.params.append([{n: x[m] for n, x in flatten(params).items()} for m in range(replicas)])
    trace.outer.append([entry["params"] for entry in outer])
    trace.state.append([kept(entry) for entry in outer])


def kept(entry: dict[str, Any]) -> list[Flat]:
    """What OuterOpt keeps of one fragment, in optax's order: trees of the parameters' names; counts left out."""
    names = entry["params"].keys()
    trees = jax.tree.leaves(entry["state"], is_leaf=lambda x: isinstance(x, dict) and x.keys() == names)
    return [tree for tree in trees if isinstance(tree, dict)]


def expected(config: RunConfig, **options: Any) -> oracle.Record:
    """The oracle on the same parameters, tokens and schedule of learning rates."""
    sync = config.sync
    fragments = fragments_of(config)
    return oracle.run_oracle(
        first_parameters(config.model),
        gradients(config),
        steps=config.steps,
        replicas=config.replicas,
        fragments=fragments,
        every=sync.every if sync else config.steps + 1,
        delays=delays_of(config),
        mix=sync.mix if sync else 0.0,
        inner=inner_of(config),
        outer=outer_of(sync.outer) if sync else outer_of(tiny.NESTEROV),
        **options,
    )


def flushed(config: RunConfig, record: oracle.Record, **options: Any) -> list[oracle.Tree]:
    """The oracle's final flush of its own run, fragment by fragment."""
    assert config.sync is not None
    return oracle.flush(record, fragments=fragments_of(config), outer=outer_of(config.sync.outer), **options)


def fragments_of(config: RunConfig) -> list[oracle.Fragment]:
    """Figure 2's fragments of the tiny model, written out by hand."""
    if config.sync is None:
        return []
    assert config.model.layers == 3
    return {
        tiny.STRIDED: [_fragment(0, 2), _fragment(1), _fragment(embed=True)],
        tiny.SEQUENTIAL: [_fragment(0, 1), _fragment(2), _fragment(embed=True)],
        tiny.MERGED: [_fragment(0, 2, embed=True), _fragment(1)],
        tiny.WHOLE: [_fragment(0, 1, 2, embed=True)],
    }[config.sync.fragments]


def _fragment(*layers: int, embed: bool = False) -> oracle.Fragment:
    return {"embed": embed, "layers": layers}


def delays_of(config: RunConfig) -> tuple[int, ...]:
    """τ of each replica."""
    delays = config.sync.delays if config.sync else (0,)
    return delays if len(delays) == config.replicas else delays * config.replicas


def inner_of(config: RunConfig) -> oracle.Inner:
    """The oracle's decay is coupled to the rate, so λ/peak; the rate itself: warm-up, then a cosine."""
    c = config.inner

    def rate(t: int) -> float:
        if t <= c.warmup_steps:
            return c.learning_rate * t / c.warmup_steps
        phase = np.pi * (t - c.warmup_steps) / (config.steps - c.warmup_steps)
        return c.learning_rate * (c.final_fraction + (1 - c.final_fraction) * (1 + np.cos(phase)) / 2)

    decay = c.weight_decay / c.learning_rate
    return {
        "lr": rate,
        "beta1": c.beta1,
        "beta2": c.beta2,
        "eps": c.eps,
        "weight_decay": decay,
        "clip_norm": c.clip_norm,
    }


def outer_of(outer: OuterConfig) -> oracle.Outer:
    """The config's numbers under the oracle's names: its sgd is a heavy ball."""
    numbers: oracle.Outer = {"kind": outer.optimizer, "lr": outer.learning_rate}
    if outer.optimizer == "adam":
        return numbers | {"beta1": outer.beta1, "beta2": outer.beta2, "eps": outer.eps}
    kind = "nesterov" if outer.optimizer == "nesterov" else "sgd"
    return numbers | {"kind": kind, "momentum": outer.momentum}


def gradients(config: RunConfig) -> oracle.Gradients:
    """∇ of the training loss on the run's tokens, by JAX in float32."""
    gradient = _gradient(config.model)
    return lambda params, t, m: gradient(as_float32(params), tokens(config, t)[m])


@cache
def _gradient(model: ModelConfig) -> Callable[[oracle.Tree, np.ndarray], oracle.Tree]:
    return jax.jit(jax.grad(lambda params, rows: lm.nll(params, rows, model, unroll=False)[0]))


def as_float32(tree: oracle.Tree) -> oracle.Tree:
    """The parameters as the model takes them."""
    return oracle.tree_map(lambda x: np.asarray(x, np.float32), tree)


def flatten(tree: oracle.Tree) -> Flat:
    """Group -> leaf -> array as `group/leaf` -> array."""
    return {f"{group}/{name}": leaf for group, leaves in tree.items() for name, leaf in leaves.items()}


def nest(flat: Flat) -> oracle.Tree:
    """The inverse of `flatten`."""
    tree: oracle.Tree = {}
    for name, leaf in flat.items():
        group, key = name.split("/")
        tree.setdefault(group, {})[key] = leaf
    return tree


def own_deltas(config: RunConfig, trace: Trace) -> dict[tuple[int, int], list[oracle.Tree]]:
    """Outer copy minus replica's copy wherever a fragment is due; observable from the states for τ >= 1."""
    sync, fragments = config.sync, fragments_of(config)
    assert sync is not None
    deltas = {}
    for t in range(1, config.steps + 1):
        for p in range(len(fragments)):
            if is_due(sync, len(fragments), p, t):
                deltas[t, p] = own_delta(config, trace, t, p)
    return deltas


def own_delta(config: RunConfig, trace: Trace, t: int, p: int) -> list[oracle.Tree]:
    """Outer copy minus replica's copy of fragment p after step t, of each replica."""
    own = [oracle.take(nest(flat), fragments_of(config)[p]) for flat in trace.params[t]]
    return [oracle.tree_map(np.subtract, nest(trace.outer[t][p]), tree) for tree in own]


def sent_and_received(codec: str) -> oracle.Transmit:
    """What the others get of a delta, by the NumPy codec."""

    def transmit(delta: oracle.Tree, t: int, p: int, m: int) -> oracle.Tree:
        return oracle.tree_map(lambda leaf: _through(np.asarray(leaf, np.float32), codec), delta)

    return transmit


def _through(leaf: np.ndarray, codec: str) -> np.ndarray:
    rows = leaf.reshape(-1, leaf.shape[-1])
    received = [codec_oracle.decode_row(codec_oracle.encode_row(r, codec), codec, len(r)) for r in rows]
    return np.stack(received).reshape(leaf.shape)


def assert_close(ours: Flat, theirs: Flat, atol: float) -> None:
    """All leaves equal to `atol`, absolutely."""
    assert ours.keys() == theirs.keys()
    for name, leaf in ours.items():
        np.testing.assert_allclose(leaf, theirs[name], rtol=0, atol=atol, err_msg=name)


def assert_scored(trace: Trace, config: RunConfig, fragments: list[oracle.Tree], atol: float) -> None:
    """What is scored after the last step are these fragments."""
    expected = first_parameters(config.model)
    for fragment, part in zip(fragments_of(config), fragments, strict=True):
        expected = oracle.put(expected, fragment, part)
    assert trace.scored is not None
    assert_close(flatten(trace.scored), flatten(expected), atol)


def assert_follows(trace: Trace, record: oracle.Record, atol: float) -> None:
    """Parameters of all replicas, outer parameters and what OuterOpt keeps agree at every step."""
    for ours, theirs in zip(trace.state, record.kept, strict=True):
        for buffers, kept in zip(ours, theirs, strict=True):
            for a, b in zip(buffers, kept.buffers, strict=bool(buffers)):  # plain SGD has none
                assert_close(a, flatten(b), atol)
    for ours, theirs in ((trace.params, record.replicas), (trace.outer, record.outer)):
        for a_t, b_t in zip(ours, theirs, strict=True):
            for a, b in zip(a_t, b_t, strict=True):
                assert_close(a, flatten(b), atol)
