"""`python -m repro run` with workers that train nothing: a chain of hashes in the place of a model, all else as it is.

Leases, takeover, fences, signals and the sweep are the real ones, and an attempt takes a second, not a minute. What it
can't show is that a model's bits survive: `test_resume` and the torture test with real runs do. LIGHT_SWEEP in the
environment makes each attempt raise, die, or hear no signal, or a worker start late; LIGHT_DEVICES is what JAX is to
have found, as JSON; LIGHT_STEP_S how long a step lasts, for tests that disturb nothing.
"""

import hashlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from fabricated import validations

import repro.machines.hardware
import repro.runs.sweep
import repro.runs.worker
from repro.commands.cli import main
from repro.errors import Interrupted
from repro.runs.leases import Lease, LeaseLost
from repro.runs.provenance import Attempt
from repro.runs.takeover import begin, saved_steps

STEP_S = float(os.environ.get("LIGHT_STEP_S", "0.1"))
KEEP, EVERY = 2, 3
ENVIRONMENT = ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES", "XLA_FLAGS")
WORKER = "worker"


def attempt(config: Any, lease: Lease, args: Any, parent: Any, stop: Any) -> None:
    """As `repro.runs.attempt.attempt`."""
    environment = {name: os.environ.get(name) for name in ENVIRONMENT}
    entry, outcome = Attempt(lease.folder, {"environment": environment}), "failed"
    try:
        _train(config, lease, stop)
        outcome = "finished"
    except (Interrupted, LeaseLost) as end:
        outcome = type(end).__name__
        raise
    finally:
        entry.end(outcome)


def _train(config: Any, lease: Lease, stop: Any) -> None:
    steps, home = config.steps, begin(lease.folder.path, lease.number)
    match os.environ.get("LIGHT_SWEEP"):
        case "raise":
            print(1 / 0)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "deaf":
            time.sleep(1000)
        case "print":
            print("not a message", flush=True)
            print('{"ended": "failed", "reason": "a stray line"}', flush=True)
    step = max(saved_steps(home), default=0)
    state = (home / f"checkpoints/{step}/state").read_text(encoding="utf-8") if step else lease.folder.run_id
    while step < steps:
        time.sleep(STEP_S)
        step, state = step + 1, hashlib.sha256(f"{state} {step + 1}".encode()).hexdigest()
        if lease.lost():
            raise LeaseLost(lease.folder.run_id)
        if stop() or step % EVERY == 0 or step == steps:
            _save(home / "checkpoints", step, state)
            lease.mark({"stage": "training", "step": step})
        if stop():
            raise Interrupted(f"stopped after step {step}")
    summary = {"run_id": lease.folder.run_id, "steps": steps, "state": state, **validations(config, outer=1.0)}
    if lease.lost(look=True) or not lease.folder.write_summary(summary):
        raise LeaseLost(lease.folder.run_id)


def _save(folder: Path, step: int, state: str) -> None:
    part = folder / f"{step}.orbax-checkpoint-tmp"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    (part / "state").write_text(state, encoding="utf-8")
    part.rename(folder / str(step))
    for old in saved_steps(folder.parent)[:-KEEP]:
        shutil.rmtree(folder / str(old))


if __name__ == "__main__":
    if sys.argv[1] == WORKER:
        repro.runs.worker.start_jax = lambda _: time.sleep(2 if os.environ.get("LIGHT_SWEEP") == "late" else 0)
        repro.runs.worker._attempt = attempt
        del sys.argv[1]
        sys.exit(repro.runs.worker.main())
    if devices := os.environ.get("LIGHT_DEVICES"):
        repro.machines.hardware.PROBE = (sys.executable, "-c", f"print({devices!r})")
    repro.runs.sweep.WORKER = (str(Path(__file__).resolve()), WORKER)
    sys.exit(main())
