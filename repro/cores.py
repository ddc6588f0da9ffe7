"""The processor cores of this process: how many there are, and a worker's share of them. No JAX.

The one place that asks the system: macOS counts cores and pins nothing, Linux may give a process fewer than there are.
"""

import os
from collections.abc import Iterable


def cores() -> list[int]:
    """Numbers of the cores that this process may use, in order."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cores_of_worker(index: int, count: int) -> list[int]:
    """The cores of the worker `index` of `count`; where workers with accelerators are more than cores, one of them."""
    own = cores()
    return own[index::count] or [own[index % len(own)]]


def keep_to(share: Iterable[int]) -> None:
    """Keep this process to these cores; call it before JAX counts them.

    Where a process can't be pinned, XLA is told to take so many threads, which is what decides how fast workers go
    beside each other.
    """
    own = set(share)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, own)
    else:
        os.environ["NPROC"] = str(len(own))
