"""Log-likelihoods of continuations on JAX: few shapes, any number of devices and processes.

Requests are sorted by length and padded to powers of two up to the model's length, so that a program is compiled for
each of a handful of lengths. Rows are spread over the devices, where a program takes them in blocks of one shape: the
order in which a matrix product adds depends on its shape, so that otherwise a value would depend on the batch. Nothing
here knows of tasks, texts or files.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from repro.diloco import model as lm
from repro.diloco.mesh import DATA, FSDP, REPLICA, make_mesh, tree_shardings
from repro.diloco.resources import Resources
from repro.evaluation.tasks import BATCH
from repro.spec.config import ModelConfig

SHORTEST = 32  # tokens: shorter rows are padded to this
BLOCK_TOKENS = {"cpu": 1024}  # a device's block of rows; on a CPU more would leave its caches
OTHER_BLOCK_TOKENS = 8192
PROGRAMS_KEPT = 4  # models of one process


@dataclass(frozen=True)
class ScoringRequest:
    """Tokens, of which the last `scored` are to be predicted from those before them."""

    tokens: np.ndarray
    scored: int


@dataclass(frozen=True)
class Batch:
    """Requests by index that are computed together, padded to `length` predicted positions."""

    length: int
    indices: np.ndarray


Save = Callable[[np.ndarray, np.ndarray, np.ndarray], None]


class Scorer:
    """One set of parameters, ready to score on a mesh of this process's devices (default: all of them).

    `params` is the tree of one replica. `batch` is the number of rows of full length given to a device at a time, in
    whole blocks; shorter rows come in proportion more. It changes no value.
    """

    def __init__(
        self, model: ModelConfig, params: Any, *, mesh: Mesh | None = None, batch: int = BATCH, unroll: bool = False
    ) -> None:
        self.model, self.batch = model, batch
        self._mesh = mesh or make_mesh(Resources(data=jax.local_device_count()), jax.local_devices())
        self._params = jax.device_put(params, tree_shardings(self._mesh, params))
        self._rows = NamedSharding(self._mesh, PartitionSpec(None, (REPLICA, DATA, *FSDP)))
        self._score = _program(model, unroll, self._rows)

    def score(
        self, requests: list[ScoringRequest], save: Save = lambda *_: None, skip: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(log-likelihood in nats, whether greedy decoding would write it) of each request; float64, bool.

        Context is cut from the left to the model's length, and then the continuation itself. `save` is given
        (indices, log-likelihoods, greedy) as they come; requests where `skip` is true are left at zero.
        """
        log_likelihoods, greedy = np.zeros(len(requests)), np.zeros(len(requests), bool)
        rows = [_cut(request, self.model.seq_len) for request in requests]
        pending: tuple[np.ndarray, Any] | None = None
        for batch in batches([len(r.tokens) - 1 for r in rows], self.model.seq_len, self._rows_at_once, skip):
            started = batch.indices, self._start([rows[i] for i in batch.indices], batch.length)
            if pending:  # read the batch before, while this one is computed
                self._read(pending, log_likelihoods, greedy, save)
            pending = started
        if pending:
            self._read(pending, log_likelihoods, greedy, save)
        return log_likelihoods, greedy

    def _block_rows(self, length: int) -> int:
        """Rows of a block on all devices together."""
        tokens = BLOCK_TOKENS.get(self._mesh.devices.flat[0].platform, OTHER_BLOCK_TOKENS)
        return self._mesh.size * max(1, tokens // length)

    def _rows_at_once(self, length: int) -> int:
        block = self._block_rows(length)
        wanted = self.batch * self._mesh.size * max(1, self.model.seq_len // length)
        return block * -(-wanted // block)

    def _start(self, rows: list[ScoringRequest], length: int) -> Any:
        count, block = self._rows_at_once(length), self._block_rows(length)
        tokens = np.zeros((count, length + 1), np.int32)
        first, end = np.zeros(count, np.int32), np.zeros(count, np.int32)
        for i, row in enumerate(rows):
            tokens[i, : len(row.tokens)] = row.tokens
            end[i] = len(row.tokens) - 1
            first[i] = end[i] - row.scored
        blocks = (x.reshape(count // block, block, *x.shape[1:]) for x in (tokens, first, end))
        return self._score(self._params, *(jax.device_put(x, self._rows) for x in blocks))

    def _read(
        self, pending: tuple[np.ndarray, Any], log_likelihoods: np.ndarray, greedy: np.ndarray, save: Save
    ) -> None:
        indices, (values, is_greedy) = pending
        log_likelihoods[indices] = np.asarray(values).ravel()[: len(indices)]
        greedy[indices] = np.asarray(is_greedy).ravel()[: len(indices)]
        save(indices, log_likelihoods[indices], greedy[indices])


def score_together(scorer: Scorer, requests: list[ScoringRequest]) -> tuple[np.ndarray, np.ndarray]:
    """`Scorer.score`, each process of the job taking every n-th request, its answer the same on all of them."""
    processes, mine = jax.process_count(), jax.process_index()
    if processes == 1:
        return scorer.score(requests)
    values, greedy = scorer.score(requests[mine::processes])
    # One exchange at the end: shares differ in size, and programs with a collective could wait for each other.
    longest = -(-len(requests) // processes)
    padded = np.zeros((longest, 3), np.float32)
    padded[: len(values), 0] = values
    padded[: len(values), 1] = values - padded[: len(values), 0]
    padded[: len(values), 2] = greedy
    everyone = np.asarray(multihost_utils.process_allgather(padded)).reshape(processes, longest, 3)
    merged = everyone.transpose(1, 0, 2).reshape(-1, 3)[: len(requests)].astype(np.float64)
    return merged[:, 0] + merged[:, 1], merged[:, 2] > 0


def batches(
    lengths: list[int], longest: int, rows_at_once: Callable[[int], int], skip: np.ndarray | None = None
) -> Iterator[Batch]:
    """Requests by descending length, so that memory runs out at once or never, cut where the padded length changes."""
    order = [i for i in np.argsort(-np.array(lengths, int), kind="stable") if skip is None or not skip[i]]
    while order:
        length = padded_length(lengths[order[0]], longest)
        count = rows_at_once(length)
        together = [i for i in order[:count] if padded_length(lengths[i], longest) == length]
        yield Batch(length, np.array(together))
        order = order[len(together) :]


def padded_length(length: int, longest: int) -> int:
    """The power of two, from `SHORTEST` on, that holds `length` positions; at most the model's length."""
    padded = SHORTEST
    while padded < length:
        padded *= 2
    return min(padded, longest)


def _cut(request: ScoringRequest, longest: int) -> ScoringRequest:
    """The last positions that the model has; the first token of a row is never predicted."""
    tokens = request.tokens[-(longest + 1) :]
    return ScoringRequest(tokens, min(request.scored, len(tokens) - 1))


@lru_cache(maxsize=PROGRAMS_KEPT)
def _program(model: ModelConfig, unroll: bool, rows: NamedSharding) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """`_score` compiled; evaluations of one process that differ in the parameters alone share it."""
    return jax.jit(partial(_score, model=model, unroll=unroll), out_shardings=rows)


def _score(
    params: Any, tokens_NxBxS1: jax.Array, first_NxB: jax.Array, end_NxB: jax.Array, *, model: ModelConfig, unroll: bool
) -> tuple[jax.Array, jax.Array]:
    """Σ log p(token) over the targets [first, end) of a row, and whether each is the most likely token there.

    N blocks, one after the other. A tie for the most likely counts as greedy.
    """

    def block(rows: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        tokens_BxS1, first_B, end_B = rows
        logits_BxSxV = lm.logits(params, tokens_BxS1[:, :-1], model, unroll=unroll)
        is_target_BxSxV = tokens_BxS1[:, 1:, None] == jnp.arange(model.vocab)
        target_BxS = jnp.sum(jnp.where(is_target_BxSxV, logits_BxSxV, 0.0), axis=-1)
        at_S = jnp.arange(tokens_BxS1.shape[1] - 1)
        scored_BxS = (first_B[:, None] <= at_S) & (at_S < end_B[:, None])
        values_BxS = target_BxS - jax.nn.logsumexp(logits_BxSxV, axis=-1)
        greedy_BxS = target_BxS >= jnp.max(logits_BxSxV, axis=-1)
        return jnp.sum(jnp.where(scored_BxS, values_BxS, 0.0), axis=1), jnp.all(greedy_BxS | ~scored_BxS, axis=1)

    return jax.lax.map(block, (tokens_NxBxS1, first_NxB, end_NxB))
