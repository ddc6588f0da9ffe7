"""Two sweeps over one folder, as on two machines, while processes are killed, stopped and run out of disk.

`python tests/support/torture.py --events 200 --seed 7` (`make torture`): afterwards every run must be there, finished
once, and
equal bit by bit, wall-clock fields aside, to one that nothing disturbed. What happens when is drawn from the seed; what
it hits depends on the machine too. Disk full: the folder is a small tmpfs that is filled for a while (as root), or the
processes may write no file any more (RLIMIT_FSIZE, EFBIG) where none can be mounted.
"""

import argparse
import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import process_rig

from experiments.registry import load
from repro.corpus.prepare import prepare
from repro.runs.folder import RunFolder
from repro.spec.experiment import PlannedRun, expand, unique

LEASE_S = 3.0
EVENTS = ("kill worker", "kill sweep", "term worker", "term sweep", "stop worker", "disk full")
DISK_MB = 64
WALL_CLOCK = {"seconds", "tokens_per_s", "processor_seconds"}
PATIENCE_S = 3600.0
LIGHT = (str(Path(__file__).with_name("light_sweep.py")),)


def planned(count: int) -> tuple[PlannedRun, ...]:
    """The first smoke runs of Table 5."""
    return unique(expand(load("table5"), "smoke"))[:count]


@dataclass
class Sweep:
    """One `repro run`, started again whenever it ends before all is done."""

    name: str
    root: Path
    cache: Path
    codes: Counter[int] = field(default_factory=Counter)
    program: tuple[str, ...] = ("-m", "repro")
    process: subprocess.Popen | None = None
    workers: set[int] = field(default_factory=set)

    def tend(self) -> None:
        """Start the command, if it does not run; note its workers."""
        if self.process is not None and (code := self.process.poll()) is not None:
            self.codes[code] += 1
            self.process = None
        if self.process is None:
            kept = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
            environment = kept | {"REPRO_HOST": self.name}
            environment["PYTHONPATH"] = str(process_rig.ROOT)
            words = [sys.executable, *self.program, "run", "table5", "--scale", "smoke", "--workers", "1"]
            words += ["--root", str(self.root), "--cache", str(self.cache), "--retry-failed"]
            words += ["--takeover-after", str(LEASE_S)]
            self.process = subprocess.Popen(
                words, cwd=process_rig.ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        self.workers |= set(self.children())

    def children(self) -> list[int]:
        """Its worker processes."""
        assert self.process is not None
        with contextlib.suppress(FileNotFoundError):
            text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="utf-8")
            return [int(pid) for pid in text.split()]
        return []

    def end(self) -> None:
        """Stop it and every worker it ever had, at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for pid in self.workers:
            if b"--lease" in _command(pid):
                _signal(pid, signal.SIGKILL)


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Storm:
    """Draws events and lets them happen."""

    def __init__(self, sweeps: list[Sweep], root: Path, seed: int, mounted: bool) -> None:
        self.sweeps, self.root, self.mounted = sweeps, root, mounted
        self.draw, self.happened = random.Random(seed), Counter[str]()
        self.ends: list[tuple[float, str, int]] = []  # when, what ("continue", "room"), of which process

    def strike(self) -> None:
        """One event on one sweep or worker; nothing when there is no worker yet."""
        sweep = self.draw.choice(self.sweeps)
        kind, last = self.draw.choice(EVENTS), self.draw.uniform(0.1, 2.0) * LEASE_S
        assert sweep.process is not None
        pids = [sweep.process.pid] if kind.endswith("sweep") else sweep.children()
        if not pids:
            return
        self.happened[kind] += 1
        if kind == "disk full":
            self._fill(pids)
            self.ends.append((time.monotonic() + last, "room", pids[0]))
        elif kind == "stop worker":
            _signal(pids[0], signal.SIGSTOP)
            self.ends.append((time.monotonic() + last, "continue", pids[0]))
        else:
            _signal(pids[0], signal.SIGKILL if kind.startswith("kill") else signal.SIGTERM)

    def calm(self, *, all_of_it: bool = False) -> None:
        """End what has lasted long enough."""
        for entry in list(self.ends):
            at, what, pid = entry
            if all_of_it or time.monotonic() >= at:
                self.ends.remove(entry)
                if what == "continue":
                    _signal(pid, signal.SIGCONT)
                else:
                    self._clear(pid)

    def _fill(self, pids: list[int]) -> None:
        if self.mounted:
            with contextlib.suppress(OSError), (self.root.parent / "ballast").open("wb") as out:
                while True:
                    out.write(bytes(2**16))
                    out.flush()
        else:
            _limit(pids[0], 0)

    def _clear(self, pid: int) -> None:
        if self.mounted:
            (self.root.parent / "ballast").unlink(missing_ok=True)
        else:
            _limit(pid, resource.RLIM_INFINITY)


def _limit(pid: int, size: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[bool]:
    """A small file system at `path`, where this process may mount one; else a folder, and False."""
    path.mkdir(parents=True, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(path)]
    mounted = os.geteuid() == 0 and subprocess.run(words, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(path)], check=True)


def undisturbed(runs: tuple[PlannedRun, ...], root: Path, cache: Path, light: bool = False) -> None:
    """Do the runs with nothing happening, on the same layout; what is there already is kept."""
    leave_out_all_but(runs, root)
    sweep = Sweep("quiet", root, cache, program=LIGHT if light else ("-m", "repro"))
    sweep.tend()
    assert sweep.process is not None and sweep.process.wait(PATIENCE_S) == 0


def leave_out_all_but(runs: tuple[PlannedRun, ...], root: Path) -> None:
    """Mark the other smoke runs as finished."""
    for run in planned(1000):
        if run not in runs:
            RunFolder(root, run.run_id).write_summary({"run_id": run.run_id})


def disturbed(
    runs: tuple[PlannedRun, ...],
    root: Path,
    cache: Path,
    seed: int,
    events: int,
    mean_s: float,
    mounted: bool,
    light: bool = False,
) -> Counter[str]:
    """Do the runs with up to `events` things happening, `mean_s` seconds apart on average; what happened."""
    leave_out_all_but(runs, root)
    program = LIGHT if light else ("-m", "repro")
    sweeps = [Sweep(name, root, cache, program=program) for name in ("one", "other")]
    storm, deadline = Storm(sweeps, root, seed, mounted), time.monotonic() + PATIENCE_S
    following = time.monotonic()
    try:
        while any(RunFolder(root, run.run_id).summary() is None for run in runs):
            assert time.monotonic() < deadline, "the runs did not end in time"
            for sweep in sweeps:
                sweep.tend()
            if time.monotonic() >= following and storm.happened.total() < events:
                storm.strike()
                following = time.monotonic() + storm.draw.expovariate(1 / mean_s)
            storm.calm()
            time.sleep(0.02)
        storm.calm(all_of_it=True)
    finally:
        for sweep in sweeps:
            sweep.end()
    for sweep in sweeps:
        storm.happened.update({f"exit {code}": count for code, count in sweep.codes.items()})
    return storm.happened


def compare(runs: tuple[PlannedRun, ...], root: Path, quiet: Path, light: bool = False) -> dict[str, int]:
    """AssertionError unless each run is there, finished once, with the bits of the undisturbed; attempts of each."""
    attempts = {}
    for run in runs:
        ours, theirs = RunFolder(root, run.run_id), RunFolder(quiet, run.run_id)
        one, other = (({k: v for k, v in (f.summary() or {}).items() if k not in WALL_CLOCK}) for f in (ours, theirs))
        assert one == other and one, f"{run.run_id}: {one} is not {other}"
        if not light:
            _compare_bits(run, ours, theirs)
        entries = (ours.provenance() or {"attempts": []})["attempts"]
        assert sum(entry["outcome"] == "finished" for entry in entries) <= 1, f"{run.run_id} was finished twice"
        attempts[run.run_id] = len(entries)
    return attempts


def _compare_bits(run: PlannedRun, ours: RunFolder, theirs: RunFolder) -> None:
    import jax
    import numpy as np

    from repro.diloco.resources import local_resources
    from repro.training.checkpoint import Checkpoints
    from repro.training.metrics import read_metrics
    from repro.training.state import Layout

    def state(folder: RunFolder) -> list[np.ndarray]:
        layout = Layout.of(run.config, local_resources(run.config, 1), jax.local_devices()[:1])
        checkpoints = Checkpoints(folder.checkpoints)
        restored = checkpoints.restore(layout, run.config.steps)
        checkpoints.close()
        return [np.asarray(x) for x in jax.tree.leaves((restored.params, restored.inner, restored.outer))]

    curves = [read_metrics(folder.metrics).drop_columns(["seconds"]) for folder in (ours, theirs)]
    assert curves[0].equals(curves[1]), f"{run.run_id}: another curve"
    for a, b in zip(state(ours), state(theirs), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=run.run_id)


def main() -> int:
    """Rounds of the same runs until enough has happened."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--mean", type=float, default=4.0, help="seconds between two events, on average")
    parser.add_argument("--light", action="store_true", help="workers that train nothing (light_sweep)")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if args.seed is None else args.seed
    print(f"seed {seed}: {args.events} events over {args.runs} smoke runs, 2 sweeps of 1 worker", flush=True)
    runs, happened, rounds = planned(args.runs), Counter[str](), 0
    with tempfile.TemporaryDirectory() as name, small_disk(Path(name) / "disk") as mounted:
        print("disk full by " + (f"a tmpfs of {DISK_MB} MB" if mounted else "RLIMIT_FSIZE"), flush=True)
        cache, quiet, root = Path(name) / "cache", Path(name) / "quiet", Path(name) / "disk" / "runs"
        prepare("smoke", cache)
        undisturbed(runs, quiet, cache, args.light)
        while sum(happened[kind] for kind in EVENTS) < args.events:
            left = args.events - sum(happened[kind] for kind in EVENTS)
            happened += disturbed(runs, root, cache, seed + rounds, left, args.mean, mounted, args.light)
            attempts, rounds = compare(runs, root, quiet, args.light), rounds + 1
            counts = ", ".join(f"{what} {count}" for what, count in sorted(happened.items()))
            print(f"round {rounds}: all equal; attempts {sorted(attempts.values())}; so far {counts}", flush=True)
            shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
