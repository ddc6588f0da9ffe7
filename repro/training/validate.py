"""Validation loss on held-out windows, in nats per token."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from repro.corpus.text_bytes import bits_per_byte
from repro.corpus.tokens import TokenSet
from repro.diloco import model as lm
from repro.diloco.mesh import DATA, FSDP, REPLICA
from repro.spec.config import ModelConfig
from repro.spec.metric import METRIC_VERSION
from repro.training.processes import on_host, placed
from repro.training.scored import evaluated_parameters
from repro.training.state import Layout, TrainState

CHUNK = 32  # windows a device at a time
PROGRAMS_KEPT = 16  # of one process


class Validator:
    """The compiled loss of one layout on a fixed set of windows."""

    def __init__(self, layout: Layout, tokens: TokenSet, windows: int) -> None:
        self._layout = layout
        self._windows = tokens.windows(layout.config.model.seq_len, 0, windows)
        self._text = tokens

    def losses(self, state: TrainState, which: str = "outer", look: Callable[[], None] = lambda: None) -> float:
        """Mean negative log-likelihood of `which` parameters: outer, first or average; calls `look` before each chunk.

        Windows are scored in chunks of one shape and their sums added in float64, in order, so that the
        result hardly depends on the layout.
        """
        chunk = CHUNK * self._layout.resources.devices
        params = evaluated_parameters(self._layout, state, which)
        score = _score(self._layout.config.model, self._layout.resources.unroll, self._layout.mesh)
        total = 0.0
        for first in range(0, len(self._windows), chunk):
            look()
            rows = self._windows[first : first + chunk]
            padded = np.zeros((chunk, rows.shape[1]), np.int32)
            padded[: len(rows)] = rows
            windows = placed(padded.shape, _rows(self._layout.mesh), padded.__getitem__)
            sums = on_host(score(params, windows)).astype(np.float64)
            total += float(sums[: len(rows)].sum())
        return -total / (len(self._windows) * self._layout.config.model.seq_len)

    def record(self, loss: float) -> dict[str, Any]:
        """A validation as it is kept: a loss in nats per token, of how many, and in bits per byte of their text."""
        return {
            "loss": loss,
            "tokens": len(self._windows) * self._layout.config.model.seq_len,
            "bits_per_byte": bits_per_byte(loss, self._windows, self._text),
            "metric_version": METRIC_VERSION,
        }


def _rows(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec((REPLICA, DATA, *FSDP)))


@lru_cache(maxsize=PROGRAMS_KEPT)
def _score(model: ModelConfig, unroll: bool, mesh: Mesh) -> Callable[[Any, jax.Array], jax.Array]:
    def score(params: Any, windows: jax.Array) -> jax.Array:
        return jnp.sum(lm.token_log_likelihoods(params, windows, model, unroll=unroll), axis=1)

    return jax.jit(score, out_shardings=_rows(mesh))
