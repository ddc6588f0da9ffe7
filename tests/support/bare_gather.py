"""One process of a bare all-gather, the collective of a send, without a trainer or a model.

`python tests/support/bare_gather.py HOST:PORT PROCESS SIZES REPEATS FILE` leaves JSON: when each call began and ended,
and how
many bytes had left this network namespace when. Both processes read the machine's one monotonic clock.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from repro.training.processes import Cluster, join, placed

DEVICE, SAMPLE_S = "veth0", 0.002


def gather_of(mesh: Mesh, size: int) -> Callable[[], jax.Array]:
    """A compiled all-gather of `size` bytes a process: a call that waits for the result."""

    @partial(jax.shard_map, mesh=mesh, in_specs=P("replica"), out_specs=P(), check_vma=False)
    def gather(bytes_1xN: jax.Array) -> jax.Array:
        return lax.all_gather(bytes_1xN, "replica", axis=0, tiled=True)

    own = placed((2, size), NamedSharding(mesh, P("replica")), lambda _: np.ones((1, size), np.uint8))
    compiled = jax.jit(gather).lower(own).compile()
    return lambda: jax.block_until_ready(compiled(own))


def bytes_sent() -> int:
    """Bytes that have left this network namespace over its veth, whole frames."""
    lines = Path("/proc/net/dev").read_text(encoding="utf-8").splitlines()
    (fields,) = (line.split(":")[1].split() for line in lines if line.strip().startswith(f"{DEVICE}:"))
    return int(fields[8])


def watch(samples: list[tuple[float, int]], stop: threading.Event) -> None:
    """Append (time, bytes sent) until told to stop."""
    while not stop.wait(SAMPLE_S):
        samples.append((time.monotonic(), bytes_sent()))


def main(coordinator: str, process: str, sizes: str, repeats: str, file: str) -> None:
    """Gather each size so often and write what was seen."""
    join(Cluster(coordinator=coordinator, processes=2, process=int(process), devices=1))
    mesh = Mesh(np.array(jax.devices()), ("replica",))
    gathers = {size: gather_of(mesh, size) for size in map(int, sizes.split(","))}
    calls, samples, stop = [], [], threading.Event()
    watcher = threading.Thread(target=watch, args=(samples, stop))
    watcher.start()
    for size, gather in gathers.items():
        gather()  # the first makes the connection and opens its window
        for _ in range(int(repeats)):
            begun = time.monotonic()
            gather()
            calls.append((size, begun, time.monotonic()))
    stop.set()
    watcher.join()
    Path(file).write_text(json.dumps({"calls": calls, "samples": samples}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
