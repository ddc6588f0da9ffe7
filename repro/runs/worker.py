"""A worker process: takes runs as JSON lines on standard input, tells how they go on standard output.

Started by `repro.runs.sweep`, pinned to its cores before JAX counts them. It leases each run it is given, and dies
with its
parent, at a step boundary and with the step saved.
"""

import argparse
import contextlib
import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro import disk
from repro.cores import keep_to
from repro.diloco.jax_settings import pin
from repro.errors import EXIT_INTERRUPTED
from repro.stopping import Stop, end_now

if TYPE_CHECKING:
    from repro.runs.leases import Lease
    from repro.spec.config import RunConfig


def main() -> int:
    """Serve runs until standard input closes; 42 when asked to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--lease", type=float, required=True)
    parser.add_argument("--memory", type=int, required=True, help="bytes of a device; 0 where it isn't known")
    args = parser.parse_args()
    keep_to(int(core) for core in args.cores.split(","))
    stop = Stop(lambda sentence: tell(interrupted=sentence), with_parent=True)
    _configure_jax(args.cache)
    tell(ready=True)
    for line in sys.stdin:
        if not _serve(json.loads(line), args, stop):
            return EXIT_INTERRUPTED
    return 0


def tell(**message: Any) -> None:
    """One JSON line to the parent; a parent that is gone is no failure of the run, and `Stop` notices it."""
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(message), flush=True)


def _configure_jax(cache: Path) -> None:
    pin()
    import jax

    jax.config.update("jax_compilation_cache_dir", str((cache / "xla").resolve()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def _serve(request: dict[str, Any], args: argparse.Namespace, stop: Stop) -> bool:
    """Lease one run and do it; False when asked to stop."""
    from repro.errors import UserError
    from repro.files import place
    from repro.runs.folder import open_folder
    from repro.runs.leases import take
    from repro.spec.config import RunConfig
    from repro.spec.identity import from_json

    config, run_id = from_json(RunConfig, request["config"]), request["run_id"]
    try:
        folder = open_folder(place(args.root), config)
        lease = take(folder, request["over"], args.lease, on_stall=end_now)
    except (UserError, OSError) as error:
        tell(failed=run_id, reason=str(error))
        return True
    if lease is None:
        tell(busy=run_id)
        return True
    outcome = _ended(config, lease, request["retry"], args, stop)
    (kind,) = outcome.keys() & {"finished", "lost", "interrupted", "failed", "crashed"}
    lease.release(kind)
    tell(**outcome)
    return kind != "interrupted"


def _ended(config: "RunConfig", lease: "Lease", retry: bool, args: argparse.Namespace, stop: Stop) -> dict[str, Any]:
    """Do a leased run; how it ended, as told to the parent."""
    from repro.errors import Interrupted, UserError
    from repro.runs.leases import LeaseLost

    folder = lease.folder
    try:
        if folder.summary() is None:
            if (failure := folder.failure()) is not None and not retry:
                return {"crashed" if failure.get("crashed") else "failed": folder.run_id, "reason": failure["reason"]}
            folder.forget_failure()
            _attempt(config, lease, args, stop)
        return {"finished": folder.run_id}
    except LeaseLost as message:
        return {"lost": str(message)}
    except Interrupted as message:
        return {"interrupted": str(message)}
    except Exception as error:
        if lease.lost(look=True):  # whose folder may be deleted under it: the error is of no interest
            return {"lost": str(LeaseLost(folder.run_id))}
        mendable = isinstance(error, (UserError, OSError))
        reason = explain(error) if mendable else traceback.format_exc()
        if not mendable:
            print(reason, file=sys.stderr, flush=True)
        record_failure(lease, reason, crashed=not mendable)
        return {"failed" if mendable else "crashed": folder.run_id, "reason": reason.strip().splitlines()[-1]}


def explain(error: Exception) -> str:
    """One sentence on an error that the user can mend."""
    return f"{error}: {disk.advice(error)}." if isinstance(error, OSError) else str(error)


def record_failure(lease: "Lease", reason: str, *, crashed: bool) -> None:
    """Keep why the run failed, where it can be written: on a full disk the reason is only told."""
    from repro.errors import UserError

    with contextlib.suppress(UserError):
        lease.folder.write_failure(reason, crashed=crashed)


def _attempt(config: "RunConfig", lease: "Lease", args: argparse.Namespace, stop: Stop) -> None:
    import jax

    from repro.machines.seats import worker_resources
    from repro.runs.attempt import attempt

    def report(message: dict[str, Any]) -> None:
        lease.mark(message)
        tell(**message)

    resources = worker_resources(config, jax.local_device_count(), args.memory or None)
    attempt(config, resources, lease.folder, args.cache, report, stop, lease=lease)


if __name__ == "__main__":
    sys.exit(main())
