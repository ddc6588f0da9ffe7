"""A replica's parameters as vectors: nothing is lost, and an optimiser does to them what it does to leaves."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_array_equal

from repro.diloco.flat import flat
from repro.diloco.optim import inner_direction, inner_update
from repro.spec.config import InnerConfig


def _params(seed: int, *lead: int) -> dict:
    rng = np.random.default_rng(seed)

    def of(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=(*lead, *shape)), jnp.float32)

    return {
        "embed": {"tokens": of(7, 4), "final_norm": of(4)},
        "layers": {"up": of(2, 4, 6), "down": of(2, 6, 4), "attn_norm": of(2, 4)},
    }


def test_cut_undoes_join_and_leaves_what_is_no_parameter_alone():
    params = _params(0, 3)
    state = inner_direction(_inner(0.1)).init(params)
    one = flat(params, lead=1)
    joined = one.join((params, state))
    assert {name: v.shape for name, v in joined[0].items()} == {"matrices": (3, 28 + 96), "gains_norm": (3, 4 + 8)}
    again = one.cut(joined)
    assert jax.tree.structure(again) == jax.tree.structure((params, state))
    jax.tree.map(assert_array_equal, again, (params, state))


def test_a_vector_is_updated_as_leaves_are_and_gains_do_not_decay():
    params, grads, inner = _params(0), _params(1), _inner(0.1)
    state, one = inner_direction(inner).init(params), flat(params)
    wanted = inner_update(inner, grads, state, params, jnp.float32(0.01))
    vectors = inner_update(inner, one.join(grads), one.join(state), one.join(params), jnp.float32(0.01))
    # The norm that clips is a sum in another order.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7), one.cut(vectors), wanted)


def _inner(decay: float) -> InnerConfig:
    return InnerConfig(0.01, 1, 1.0, 0.9, 0.99, 1e-8, decay, 1.0)
