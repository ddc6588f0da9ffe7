"""A worker process: takes runs as JSON lines on standard input, tells how they go on standard output.

Started by `repro.sweep`, pinned to its cores before JAX counts them. It dies with its parent, at a step
boundary and with the step saved.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

EXIT_INTERRUPTED = 42


def main() -> int:
    """Serve runs until standard input closes; 42 when asked to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--root", type=Path, required=True)
    args = parser.parse_args()
    os.sched_setaffinity(0, {int(c) for c in args.cores.split(",")})
    stop = Stop(with_parent=True)
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


class Stop:
    """Set by the first SIGTERM or SIGINT, or `with_parent` by the parent's death; a second signal kills."""

    def __init__(self, *, with_parent: bool = False) -> None:
        self.asked = False
        self._parent = os.getppid() if with_parent else None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _: Any) -> None:
        self.asked = True
        signal.signal(number, signal.SIG_DFL)

    def __call__(self) -> bool:
        return self.asked or self._parent not in (None, os.getppid())


def _configure_jax(cache: Path) -> None:
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_compilation_cache_dir", str((cache / "xla").resolve()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def _serve(request: dict[str, Any], args: argparse.Namespace, stop: Stop) -> bool:
    """Do one run; False when asked to stop."""
    from repro.config import RunConfig
    from repro.errors import UserError
    from repro.identity import from_json
    from repro.store import RunBusy, open_folder
    from repro.train import Interrupted

    config = from_json(RunConfig, request["config"])
    try:
        folder = open_folder(args.root, config)
        with folder.held():
            if folder.summary() is None:
                _attempt(config, folder, args, stop)
        tell(finished=folder.run_id)
    except RunBusy as busy:
        tell(busy=str(busy))
    except Interrupted as message:
        tell(interrupted=str(message))
        return False
    except (UserError, OSError) as error:
        reason = str(error) if isinstance(error, UserError) else f"{error}: make room, or choose another root."
        _record_failure(args.root, request["run_id"], reason)
        tell(failed=request["run_id"], reason=reason)
    except Exception:
        trace = traceback.format_exc()
        print(trace, file=sys.stderr, flush=True)
        _record_failure(args.root, request["run_id"], trace)
        tell(crashed=request["run_id"], reason=trace.strip().splitlines()[-1])
    return True


def _record_failure(root: Path, run_id: str, reason: str) -> None:
    from repro.errors import UserError
    from repro.store import write_json

    # On a full disk the reason can only be told, not kept.
    with contextlib.suppress(UserError):
        write_json(root / run_id / "failure.json", {"reason": reason, "time": time.time()})


def _attempt(config: Any, folder: Any, args: argparse.Namespace, stop: Stop) -> None:
    import jax

    from repro.attempt import attempt
    from repro.resources import local_resources

    resources = local_resources(config, jax.local_device_count())
    attempt(config, resources, folder, args.cache, lambda m: tell(**m), stop)


if __name__ == "__main__":
    sys.exit(main())
