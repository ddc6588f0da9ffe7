"""A run that this process holds, as a worker would, while a test looks at what others do."""

from collections.abc import Iterator
from contextlib import contextmanager

from repro.runs.folder import RunFolder
from repro.runs.leases import Lease, take


@contextmanager
def holding(folder: RunFolder, lease_s: float) -> Iterator[Lease]:
    """The lease, which ends with the block."""
    lease = take(folder, lease_s=lease_s)
    assert lease is not None
    try:
        yield lease
    finally:
        lease.release("failed")
