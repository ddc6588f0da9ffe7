"""One run in several processes: how they find each other, and what the host learns from the others.

Every process runs the same loop and dispatches the same programs. A global array is made of what each
process holds; a step without an event moves nothing between them, so the host asks the others only
when it logs. On one process nothing here communicates.
"""

import contextlib
import math
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, NoReturn

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding

from repro.cores import cores
from repro.errors import EXIT_INTERRUPTED, UserError
from repro.stopping import end_now, explain_abort
from repro.values import Address, check_fields, whole

MEET_S = 300.0  # in which the processes of a run have to be there
JAX_LATER_S = 60.0
LOST = (
    "JAX aborted this process (exit code 134), most likely because another process of the run was lost: the log of "
    "that one says why. What was saved stays; started again, all go on from there, and compile again what they had not."
)
Index = tuple[slice, ...]


@dataclass(frozen=True)
class Cluster:
    """Where processes of a run meet: named by hand, or `detected` by JAX (Slurm, Open MPI, Kubernetes, TPU pods)."""

    detected: bool = False
    coordinator: Address | None = None  # of process 0
    processes: Annotated[int, whole(1)] | None = None
    process: Annotated[int, whole()] | None = None  # this one's number
    devices: Annotated[int, whole(1)] | None = None  # simulated CPU devices of this process; None: those that are there

    def __post_init__(self) -> None:
        check_fields(self)
        named = (self.coordinator, self.processes, self.process)
        if any(x is not None for x in named) and (None in named or self.detected):
            raise UserError(
                f"coordinator={self.coordinator}, processes={self.processes}, process={self.process}: give all "
                "three, or none of them and let JAX find the cluster."
            )
        if self.processes is not None and self.process is not None and self.process >= self.processes:
            raise UserError(f"process={self.process} of {self.processes}: processes are numbered from 0.")


def join(cluster: Cluster, within_s: float = MEET_S, in_vain: Callable[[], None] = lambda: None) -> bool:
    """Meet the other processes, where there are any; call it before anything asks JAX for its devices.

    Whether JAX's preemption service has taken SIGTERM to itself (`stop_at`). The process ends with a sentence and 42
    when they don't meet in time: one was pre-empted or comes late, so trying again may do. UserError where JAX
    finds no cluster. `in_vain` is called before that end. From here on a sentence stands beside an abort of JAX's.
    """
    if not within_s > 0:
        raise UserError(f"--meet-within {within_s:g}: give the others some seconds.")
    if cluster.devices is not None:
        # A collective holds a thread for each device until all are there: with fewer threads it never ends.
        threads = max(2 * cluster.devices, len(cores()))
        os.environ.setdefault("NPROC", str(threads))
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", cluster.devices)
    if not cluster.detected and cluster.coordinator is None:
        return False
    jax.config.update("jax_enable_preemption_service", True)  # `stop_at`
    # JAX aborts the process when it gives up, so it is given longer than this.
    timer = threading.Timer(within_s, _not_met, [in_vain, f"not all were there within {within_s:g} seconds"])
    timer.daemon = True
    timer.start()
    patience = math.ceil(within_s + JAX_LATER_S)
    try:
        jax.distributed.initialize(
            cluster.coordinator, cluster.processes, cluster.process, initialization_timeout=patience
        )
    except jax.errors.JaxRuntimeError as error:
        _not_met(in_vain, str(error).splitlines()[0])
    except (RuntimeError, ValueError) as error:
        raise UserError(f"the processes of the run can't meet ({str(error).splitlines()[0]}).") from error
    finally:
        timer.cancel()
    explain_abort(LOST)
    return True


def _not_met(in_vain: Callable[[], None], reason: str) -> NoReturn:
    """At once, and from any thread: the main one may be waiting inside JAX, and nothing is held yet."""
    with contextlib.suppress(OSError, UserError):  # a start that can't be noted is one that isn't counted
        in_vain()
    advice = (
        f"start all of them again, with one coordinator; a scheduler does so on this exit code, {EXIT_INTERRUPTED}."
    )
    end_now(f"the processes of the run did not meet ({reason}): {advice}")


def alone() -> bool:
    """Whether this run has one process only."""
    return jax.process_count() == 1


def is_first() -> bool:
    """Whether this process writes what the run leaves, checkpoints apart (all write those)."""
    return jax.process_index() == 0


def any_of(flag: bool) -> bool:
    """Whether `flag` is set in any process: the same answer in all. They wait for each other."""
    return flag if alone() else bool(np.any(multihost_utils.process_allgather(np.array(flag))))


def from_first(number: int) -> int:
    """The number that process 0 gives, in all processes. They wait for each other."""
    return number if alone() else int(multihost_utils.broadcast_one_to_all(np.int64(number)))


def stop_at(look: int, asked: bool) -> bool:
    """Whether all processes stop at a `look`, counted by each from 1 without a gap: the same answer in all.

    Where none were met, when it is `asked`. Else they agree through JAX's preemption service, which takes SIGTERM
    itself: the look after the furthest that any had come to when one got the signal. They don't wait for each other.
    What asks a process in another way (SIGINT) is passed on to the service as that signal.
    """
    if not jax.distributed.is_initialized():
        return asked
    if asked:
        _pass_on()
    reached = multihost_utils.reached_preemption_sync_point(look)
    if reached:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the service would swallow a second one, which means: at once
    return reached


@cache
def _pass_on() -> None:
    """Once, however often it is asked."""
    os.kill(os.getpid(), signal.SIGTERM)


def placed(shape: tuple[int, ...], sharding: NamedSharding, block: Callable[[Index], np.ndarray]) -> jax.Array:
    """A global array of which each process makes the blocks of its own devices."""
    return jax.make_array_from_callback(shape, sharding, block)  # pyright: ignore[reportArgumentType]


def on_host(array: jax.Array) -> np.ndarray:
    """The whole array in every process; they wait for each other if no process holds all of it."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    return np.asarray(multihost_utils.process_allgather(array, tiled=True))


def rows_on_host(rows_M: list[jax.Array]) -> np.ndarray:
    """Several (M,) arrays, spread over the replicas, as one (n, M) in every process, by one gather."""
    if all(row.is_fully_addressable for row in rows_M):
        return np.stack([np.asarray(row) for row in rows_M])
    own = np.stack([_own_entries(row) for row in rows_M])  # (n, 2, M)
    return merged(np.asarray(multihost_utils.process_allgather(own)))


def merged(own: np.ndarray) -> np.ndarray:
    """(processes, n, 2, M) entries, and a one where the process holds them -> (n, M), each from one that does."""
    holder = own[:, :, 1].argmax(axis=0)[None]
    return np.take_along_axis(own[:, :, 0], holder, axis=0)[0]


def _own_entries(row_M: jax.Array) -> np.ndarray:
    """(2, M): the entries that this process holds, and a one where it does."""
    own = np.zeros((2, *row_M.shape), row_M.dtype)
    for shard in row_M.addressable_shards:
        own[0][shard.index] = np.asarray(shard.data)
        own[1][shard.index] = 1
    return own


def facts() -> dict[str, Any]:
    """What the provenance of a run says of its processes."""
    first = jax.devices()[0]
    return {"processes": jax.process_count(), "platform": first.platform, "device": first.device_kind}
