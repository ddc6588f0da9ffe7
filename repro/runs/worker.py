"""A worker process of a sweep: leases each run that it is given, trains it, and tells its parent how that goes.

Started by `repro.runs.sweep`. It dies with its parent, at a step boundary and with the step saved.
"""

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.diloco.jax_settings import start_jax
from repro.errors import EXIT_INTERRUPTED, Interrupted, UserError
from repro.pool import Parent, failure, worker_parser
from repro.stopping import Stop, end_now

if TYPE_CHECKING:
    from repro.runs.leases import Lease
    from repro.spec.config import RunConfig


def main() -> int:
    """Do runs until nothing is left; 42 when asked to stop."""
    parser = worker_parser()
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--lease", type=float, required=True)
    parser.add_argument("--memory", type=int, required=True, help="bytes of a device; 0 where it isn't known")
    args = parser.parse_args()
    parent = Parent(args)
    stop = Stop(lambda sentence: parent.tell(ended="interrupted", reason=sentence), with_parent=True)
    start_jax(args.cache)
    for request in parent.jobs():
        outcome = _served(request, args, parent, stop)
        parent.tell(**outcome)
        if outcome["ended"] == "interrupted":
            return EXIT_INTERRUPTED
    return 0


def _served(request: dict[str, Any], args: argparse.Namespace, parent: Parent, stop: Stop) -> dict[str, Any]:
    """Lease one run and do it; how it ended."""
    from repro.files import folder_at
    from repro.runs.folder import open_folder
    from repro.runs.leases import take
    from repro.spec.config import RunConfig
    from repro.spec.identity import from_json

    config = from_json(RunConfig, request["config"])
    try:
        lease = take(open_folder(folder_at(args.root), config), request["over"], args.lease, on_stall=end_now)
    except (UserError, OSError) as error:
        return {"ended": "failed", "reason": failure(error)[1]}
    if lease is None:
        return {"ended": "busy"}
    outcome = _ended(config, lease, request["retry"], args, parent, stop)
    lease.release(outcome["ended"])
    return outcome


def _ended(
    config: "RunConfig", lease: "Lease", retry: bool, args: argparse.Namespace, parent: Parent, stop: Stop
) -> dict[str, Any]:
    """Do a leased run; how it ended, as the parent is told."""
    from repro.runs.leases import LeaseLost

    folder = lease.folder
    try:
        if folder.summary() is None:
            if (before := folder.failure()) is not None and not retry:
                return {"ended": "crashed" if before.get("crashed") else "failed", "reason": before["reason"]}
            folder.forget_failure()
            _attempt(config, lease, args, parent, stop)
        return {"ended": "finished"}
    except LeaseLost as message:
        return {"ended": "lost", "reason": str(message)}
    except Interrupted as message:
        return {"ended": "interrupted", "reason": str(message)}
    except Exception as error:
        if lease.lost(look=True):  # its folder may be deleted under it: the error is of no interest
            return {"ended": "lost", "reason": str(LeaseLost(folder.run_id))}
        kind, reason = record_failure(lease, error)
        if kind == "crashed":
            print(reason, file=sys.stderr, flush=True)
        return {"ended": kind, "reason": reason}


def record_failure(lease: "Lease", error: Exception) -> tuple[str, str]:
    """Keep how and why the run failed, where it can be written: on a full disk it is only told."""
    kind, reason = failure(error)
    with contextlib.suppress(UserError):
        lease.folder.write_failure(reason, crashed=kind == "crashed")
    return kind, reason


def _attempt(config: "RunConfig", lease: "Lease", args: argparse.Namespace, parent: Parent, stop: Stop) -> None:
    import jax

    from repro.machines.seats import worker_resources
    from repro.runs.attempt import attempt

    def report(message: dict[str, Any]) -> None:
        lease.mark(message)
        parent.tell(**message)

    resources = worker_resources(config, jax.local_device_count(), args.memory or None)
    attempt(config, resources, lease.folder, args.cache, report, stop, lease=lease)


if __name__ == "__main__":
    sys.exit(main())
