"""GFLOP/s of one float32 product [rows, inner] x [inner, columns] by XLA on one core: product.py ROWS INNER COLUMNS."""

import sys
import time

import jax
import jax.numpy as jnp

from repro.commands.peers.serve import keep_to_one_core

SECONDS = 1.0


def main() -> None:
    """Print the best of a second's repetitions."""
    keep_to_one_core()
    rows, inner, columns = map(int, sys.argv[1:])
    left, right = jnp.ones((rows, inner)), jnp.ones((inner, columns))
    product = jax.jit(jnp.matmul)
    product(left, right).block_until_ready()
    best, begun = float("inf"), time.perf_counter()
    while time.perf_counter() - begun < SECONDS:
        start = time.perf_counter()
        product(left, right).block_until_ready()
        best = min(best, time.perf_counter() - start)
    print(2e-9 * rows * inner * columns / best)


if __name__ == "__main__":
    main()
