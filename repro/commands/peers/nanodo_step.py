"""NanoDO's model, read from its source, with AdamW and clipping by optax: nanodo_step.py SHAPE PATH.

The model has no QK-norm and no z-loss, as its source has none. It runs in the suite's environment.
"""

import sys

import jax
import jax.numpy as jnp
import optax

from repro.commands.peers import serve as at


def main() -> None:
    """Serve one shape."""
    at.keep_to_one_core()
    shape = at.SHAPES[sys.argv[1]]
    sys.path.insert(0, sys.argv[2])
    from nanodo.model import DoConfig, TransformerDo  # pyright: ignore[reportMissingImports]

    d = shape.width
    model = TransformerDo(
        DoConfig(D=d, H=shape.heads, L=at.SEQUENCE, N=shape.layers, V=shape.vocab, F=4 * d, fsdp_enabled=False)
    )
    tokens = jax.random.randint(jax.random.key(1), (shape.batch, at.SEQUENCE + 1), 0, shape.vocab)
    params = model.init(jax.random.key(0), tokens[:, :-1])["params"]
    optimizer = optax.chain(
        optax.clip_by_global_norm(at.CLIP), optax.adamw(at.RATE, at.BETA1, at.BETA2, at.EPSILON, weight_decay=at.DECAY)
    )

    def loss_of(params: optax.Params) -> jax.Array:
        logits = model.apply({"params": params}, tokens[:, :-1])
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]))

    def step(params: optax.Params, state: optax.OptState) -> tuple[optax.Params, optax.OptState, jax.Array]:
        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    compiled, held = jax.jit(step, donate_argnums=(0, 1)), [params, optimizer.init(params)]

    def steps(count: int) -> float:
        for _ in range(count):
            *held[:], loss = compiled(*held)
        return float(loss)

    at.serve("NanoDO", sum(p.size for p in jax.tree.leaves(params)), jax.__version__, steps)


if __name__ == "__main__":
    main()
