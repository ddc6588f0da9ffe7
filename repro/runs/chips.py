"""Which accelerators of this machine a command holds, so that a second one is told so and not short of memory. No JAX.

A lock a chip, by the name that the environment gives it: known to one user's processes on this machine, within one job
of Slurm, which may number each job's own GPUs from 0. CPU cores are shared, and nobody holds them.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from repro import disk
from repro.errors import UserError
from repro.machines.hardware import Hardware
from repro.machines.seats import visible
from repro.runs.leases import host


@contextmanager
def holding(hardware: Hardware, seats: Iterable[Mapping[str, str]]) -> Iterator[None]:
    """Hold the chips of workers with such environments; UserError, and none is held, where another command has one."""
    with ExitStack() as held:
        for chip in () if hardware.is_cpu else _chips(hardware, seats):
            place = f"{host()} {os.environ.get('SLURM_JOB_ID', '')} {hardware.platform} {chip}"
            if not held.enter_context(disk.locked(disk.machine_lock(place), wait=False)):
                variable, _ = visible(hardware, os.environ)
                others = f", or show this one others by {variable}" if variable else ""
                raise UserError(
                    f"{hardware.platform} device {chip} is taken by another sweep or evaluation on this machine: "
                    f"wait until that has ended{others}."
                )
        yield


def _chips(hardware: Hardware, seats: Iterable[Mapping[str, str]]) -> list[str]:
    """Their names: those that the environments show, and all for a worker that is shown no fewer."""
    variable, names = visible(hardware, os.environ)
    visible_chips = [seat.get(variable) for seat in seats]
    if None in visible_chips:
        return names or ["0"]
    return sorted({chip for chips in visible_chips if chips for chip in chips.split(",")})
