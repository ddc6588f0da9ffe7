"""Algorithms 1 and 2 in float64 NumPy, written from the paper for the tests and sharing no code with `repro`.

It is plain on purpose: one nested dict of arrays for each replica, Python loops over steps, replicas and
fragments, and the paper's own conditions on t. Where the paper leaves a choice open, the oracle takes:

- Δ = outer copy − replica's copy (Algorithm 2 writes θ^(t-H); both are the same as long as α = 0 and τ = 0);
- a fragment is first sent at the first t >= H with (t - t_p) mod H = 0;
- one outer copy a fragment, updated at t + min τ; replica m mixes that copy in at t + τ_m;
- what is still in flight at the last step is dropped (and by `flush` taken anew, on a copy).

Steps are the paper's: t = 1 is the first inner step and θ^(0) the initial parameters.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

import numpy as np

Tree = dict[str, dict[str, np.ndarray]]
Gradients = Callable[[Tree, int, int], Tree]
Transmit = Callable[[Tree, int, int, int], Tree]
Merge = Callable[[Sequence[Tree]], Tree]

MATRICES = ("tokens", "positions", "query", "key", "value", "output", "up", "down")


class Fragment(TypedDict):
    """One fragment: whether it holds the whole `embed` group, and which layers of every leaf of `layers`."""

    embed: bool
    layers: tuple[int, ...]


class Inner(TypedDict):
    """AdamW: `lr` maps t (from 1) to a learning rate; `clip_norm` is a global norm over all leaves."""

    lr: Callable[[int], float]
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    clip_norm: float


class Outer(TypedDict):
    """`kind` is "nesterov", "sgd" (heavy ball; plain with momentum 0) or "adam" (β and ε in place of momentum)."""

    kind: str
    lr: float
    momentum: NotRequired[float]
    beta1: NotRequired[float]
    beta2: NotRequired[float]
    eps: NotRequired[float]


@dataclass(frozen=True)
class Kept:
    """What OuterOpt keeps of a fragment: its buffers, and how many updates it made."""

    buffers: tuple[Tree, ...]
    updates: int = 0


@dataclass(frozen=True)
class Record:
    """A run, with every state kept: index [0] is the start, index [t] the state at the end of step t."""

    replicas: list[list[Tree]]  # [t][m], whole trees
    outer: list[list[Tree]]  # [t][p], fragment trees
    kept: list[list[Kept]]  # [t][p]
    deltas: dict[tuple[int, int], list[Tree]]  # (t, p) -> the run's own Δ of each replica, before transmit


def run_oracle(
    params0: Tree,
    gradients: Gradients,
    *,
    steps: int,
    replicas: int,
    fragments: Sequence[Fragment],
    every: int,
    delays: Sequence[int],
    mix: float,
    inner: Inner,
    outer: Outer,
    decayed: Collection[str] = MATRICES,
    transmit: Transmit | None = None,
    merge: Merge | None = None,
    recorded_deltas: Mapping[tuple[int, int], Sequence[Tree]] | None = None,
    offsets: Sequence[int] | None = None,
) -> Record:
    """Algorithm 2. No fragments = no synchronisation; with one replica that is data-parallel.

    gradients(params, t, m) is the gradient of replica m's loss at step t. delays holds τ_m, one a replica.
    transmit(delta, t, p, m) is what the others receive of replica m's delta (identity if None).
    merge(deltas) is the outer gradient of what was received (the mean if None).
    recorded_deltas[t, p] replaces the run's own deltas before `transmit`. offsets replaces t_p.
    """
    assert len(delays) == replicas and all(0 <= delay < every for delay in delays)
    params0 = _as_float64(params0)
    _assert_partition(params0, fragments)
    offsets = spread_offsets(every, len(fragments)) if offsets is None else offsets

    theta = [params0] * replicas
    adam = [AdamW(params0, inner, decayed) for _ in range(replicas)]
    outer_theta = [take(params0, fragment) for fragment in fragments]
    kept = [outer_start(tree, outer) for tree in outer_theta]
    record = Record([list(theta)], [list(outer_theta)], [list(kept)], {})
    in_flight: dict[tuple[int, int], Tree] = {}

    for t in range(1, steps + 1):
        for m in range(replicas):  # lines 10-12
            theta[m] = adam[m].update(theta[m], gradients(theta[m], t, m), t)

        for p, fragment in enumerate(fragments):  # lines 14-16
            if is_due(t, every, offsets[p]):
                own = [tree_map(np.subtract, outer_theta[p], take(theta_m, fragment)) for theta_m in theta]
                record.deltas[t, p] = own
                sent = own if recorded_deltas is None else list(recorded_deltas[t, p])
                if transmit is not None:
                    sent = [transmit(delta, t, p, m) for m, delta in enumerate(sent)]
                in_flight[t, p] = (merge or mean)([_as_float64(delta) for delta in sent])

        for p in range(len(fragments)):  # lines 18-20
            sent_at = t - min(delays)
            if is_due(sent_at, every, offsets[p]):
                outer_theta[p], kept[p] = outer_update(outer_theta[p], kept[p], in_flight.pop((sent_at, p)), outer)

        for m in range(replicas):  # line 21
            for p, fragment in enumerate(fragments):
                if is_due(t - delays[m], every, offsets[p]):
                    local = take(theta[m], fragment)
                    mixed = tree_map(lambda a, b: mix * a + (1 - mix) * b, local, outer_theta[p])
                    theta[m] = put(theta[m], fragment, mixed)

        record.replicas.append(list(theta))
        record.outer.append(list(outer_theta))
        record.kept.append(list(kept))
    return record


def flush(
    record: Record,
    *,
    fragments: Sequence[Fragment],
    outer: Outer,
    transmit: Transmit | None = None,
    merge: Merge | None = None,
    recorded_deltas: Mapping[int, Sequence[Tree]] | None = None,
) -> list[Tree]:
    """The outer copy that is scored at the end of a run with a final flush, fragment by fragment.

    Δ is taken anew of every fragment from the last states and goes through the outer optimiser once, as it stands then;
    what was still in flight plays no part, and the record stays as it is. recorded_deltas[p] replaces Δ.
    """
    flushed, last = [], len(record.outer) - 1
    for p, fragment in enumerate(fragments):
        outer_theta, kept = record.outer[last][p], record.kept[last][p]
        deltas = [tree_map(np.subtract, outer_theta, take(theta, fragment)) for theta in record.replicas[last]]
        if recorded_deltas is not None:
            deltas = [_as_float64(delta) for delta in recorded_deltas[p]]
        if transmit is not None:
            deltas = [_as_float64(transmit(delta, last, p, m)) for m, delta in enumerate(deltas)]
        flushed.append(outer_update(outer_theta, kept, (merge or mean)(deltas), outer)[0])
    return flushed


def run_diloco(
    params0: Tree,
    gradients: Gradients,
    *,
    steps: int,
    replicas: int,
    every: int,
    inner: Inner,
    outer: Outer,
    decayed: Collection[str] = MATRICES,
) -> Record:
    """Algorithm 1, literally: whole parameters, blocking, replicas restart from the outer parameters."""
    params0 = _as_float64(params0)
    theta = [params0] * replicas
    adam = [AdamW(params0, inner, decayed) for _ in range(replicas)]
    last_synced, kept = params0, outer_start(params0, outer)
    record = Record([list(theta)], [[last_synced]], [[kept]], {})
    for t in range(1, steps + 1):
        theta = [adam[m].update(theta[m], gradients(theta[m], t, m), t) for m in range(replicas)]
        if t % every == 0:
            record.deltas[t, 0] = [tree_map(np.subtract, last_synced, theta[m]) for m in range(replicas)]
            last_synced, kept = outer_update(last_synced, kept, mean(record.deltas[t, 0]), outer)
            theta = [last_synced] * replicas
        record.replicas.append(list(theta))
        record.outer.append([last_synced])
        record.kept.append([kept])
    return record


def spread_offsets(every: int, fragments: int) -> list[int]:
    """t_p = p·floor(H/n), or floor(p·H/n) where there are more fragments than steps."""
    if every < fragments:
        return [(p * every) // fragments for p in range(fragments)]
    return [p * (every // fragments) for p in range(fragments)]


def is_due(t: int, every: int, offset: int) -> bool:
    """Algorithm 2, line 14, from the first step at which H inner steps have been made."""
    return t >= every and (t - offset) % every == 0


class AdamW:
    """One replica's inner optimiser: clip by global norm, Adam, decoupled decay, times −lr(t)."""

    def __init__(self, params: Tree, inner: Inner, decayed: Collection[str]):
        self.inner, self.decayed = inner, decayed
        self.first, self.second = _zeros(params), _zeros(params)

    def update(self, params: Tree, grads: Tree, t: int) -> Tree:
        """θ^(t) from θ^(t-1) and its gradient; t is also the count of the bias correction."""
        grads = _as_float64(grads)
        norm = np.sqrt(sum(np.sum(g**2) for group in grads.values() for g in group.values()))
        if norm >= self.inner["clip_norm"]:
            grads = tree_map(lambda g: g * (self.inner["clip_norm"] / norm), grads)
        b1, b2 = self.inner["beta1"], self.inner["beta2"]
        self.first = tree_map(lambda m, g: b1 * m + (1 - b1) * g, self.first, grads)
        self.second = tree_map(lambda v, g: b2 * v + (1 - b2) * g**2, self.second, grads)
        result: Tree = {}
        for group, leaves in params.items():
            result[group] = {}
            for name, theta in leaves.items():
                first = self.first[group][name] / (1 - b1**t)
                second = self.second[group][name] / (1 - b2**t)
                step = first / (np.sqrt(second) + self.inner["eps"])
                if name in self.decayed:
                    step = step + self.inner["weight_decay"] * theta
                result[group][name] = theta - self.inner["lr"](t) * step
        return result


def outer_start(theta: Tree, outer: Outer) -> Kept:
    """What OuterOpt keeps of a fragment at first: one moment, or Adam's two."""
    return Kept((_zeros(theta),) * (2 if outer["kind"] == "adam" else 1))


def outer_update(theta: Tree, kept: Kept, delta: Tree, outer: Outer) -> tuple[Tree, Kept]:
    """OuterOpt on one fragment; returns the new outer parameters and what it keeps of them.

    m ← Δ + βm, then θ ← θ − lr·(Δ + βm) for Nesterov and θ ← θ − lr·m for heavy ball.
    """
    if outer["kind"] == "adam":
        return _adam(theta, kept, delta, outer)
    beta, lr = outer["momentum"], outer["lr"]
    (momentum,) = kept.buffers
    momentum = tree_map(lambda m, d: d + beta * m, momentum, delta)
    if outer["kind"] == "nesterov":
        step = tree_map(lambda m, d: d + beta * m, momentum, delta)
    elif outer["kind"] == "sgd":
        step = momentum
    else:
        raise ValueError(f"unknown outer optimiser {outer['kind']!r}")
    return tree_map(lambda x, s: x - lr * s, theta, step), Kept((momentum,), kept.updates + 1)


def _adam(theta: Tree, kept: Kept, delta: Tree, outer: Outer) -> tuple[Tree, Kept]:
    """θ ← θ − lr·m̂ / (√v̂ + ε), with m̂ = m / (1 − β₁ᵏ) and v̂ = v / (1 − β₂ᵏ) at the fragment's own k-th update."""
    b1, b2, k = outer["beta1"], outer["beta2"], kept.updates + 1
    first = tree_map(lambda m, d: b1 * m + (1 - b1) * d, kept.buffers[0], delta)
    second = tree_map(lambda v, d: b2 * v + (1 - b2) * d * d, kept.buffers[1], delta)

    def step(x: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
        return x - outer["lr"] * (m / (1 - b1**k)) / (np.sqrt(v / (1 - b2**k)) + outer["eps"])

    return tree_map(step, theta, first, second), Kept((first, second), k)


def take(params: Tree, fragment: Fragment) -> Tree:
    """The part of a whole tree that belongs to a fragment (groups it has nothing of are left out)."""
    part: Tree = {}
    if fragment["embed"]:
        part["embed"] = dict(params["embed"])
    if fragment["layers"]:
        part["layers"] = {name: leaf[list(fragment["layers"])] for name, leaf in params["layers"].items()}
    return part


def put(params: Tree, fragment: Fragment, part: Tree) -> Tree:
    """A whole tree with the fragment's part replaced."""
    result = {group: dict(leaves) for group, leaves in params.items()}
    if fragment["embed"]:
        result["embed"] = dict(part["embed"])
    if fragment["layers"]:
        for name, leaf in params["layers"].items():
            changed = leaf.copy()
            changed[list(fragment["layers"])] = part["layers"][name]
            result["layers"][name] = changed
    return result


def tree_map(function: Callable[..., np.ndarray], *trees: Tree) -> Tree:
    """`function` on the leaves of trees that have the same names."""
    first = trees[0]
    assert all(tree.keys() == first.keys() for tree in trees)
    assert all(tree[group].keys() == first[group].keys() for tree in trees for group in first)
    return {g: {name: function(*(tree[g][name] for tree in trees)) for name in first[g]} for g in first}


def mean(trees: Sequence[Tree]) -> Tree:
    """(1/M) Σ_m, leaf by leaf."""
    return tree_map(lambda *leaves: np.mean(leaves, axis=0), *trees)


def elected_mean(trees: Sequence[Tree]) -> Tree:
    """TIES: the sign of Σ_m wins, and the mean runs over the replicas that have it; zero where nobody wins."""

    def elect(*leaves: np.ndarray) -> np.ndarray:
        result = np.zeros_like(leaves[0])
        for place in np.ndindex(result.shape):
            values = [float(leaf[place]) for leaf in leaves]
            agreeing = [v for v in values if v * sum(values) > 0]
            result[place] = sum(agreeing) / len(agreeing) if agreeing else 0.0
        return result

    return tree_map(elect, *trees)


def _zeros(tree: Tree) -> Tree:
    return tree_map(np.zeros_like, tree)


def _as_float64(tree: Tree) -> Tree:
    return tree_map(lambda x: np.asarray(x, dtype=np.float64), tree)


def _assert_partition(params: Tree, fragments: Sequence[Fragment]) -> None:
    """Every parameter in exactly one fragment (or no fragments at all)."""
    if not fragments:
        return
    layers = next((len(leaf) for leaf in params["layers"].values()), 0)
    assert sorted(layer for fragment in fragments for layer in fragment["layers"]) == list(range(layers))
    assert sum(fragment["embed"] for fragment in fragments) == 1
