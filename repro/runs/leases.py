"""Who may work at a run: leases with heartbeats, on one machine or several that share a folder or bucket. No JAX.

    runs/<id>/leases/000003.json  who holds lease 3; created exclusively, so that each number is had once
                     000003.beat  rewritten while its holder comes forward, with how far it is
                     000003.end   how it ended; from then on the run is free

Whoever works at a run does three things: `take`, `Lease.lost` and `Lease.release`.

The number fences: it only grows, and whoever holds another than the newest has lost the run, knowing it or not.
A lease is taken over at once when its process is known to be dead (same machine), and otherwise when its
beat has not changed for its length, by the clock of the one who watches: clocks of two machines are never compared.
A worker that was stopped meanwhile looks for a newer lease before it goes on, since its own last look is too old.
A beat stands for progress: when work is at one thing for longer than its phase may take (`repro.runs.liveness`), a last
beat says so, and no other follows.
"""

import contextlib
import json
import math
import os
import platform
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from repro.errors import UnusableFile, UserError
from repro.files import create_bytes, is_bucket, listing, modified, read_bytes, write_bytes
from repro.runs.folder import RunFolder
from repro.runs.liveness import LIMITS_S, Progress

LEASE_S = 60.0  # without a beat for so long, a lease may be taken over
BEATS = 6  # in a lease
# Goes on while the machine sleeps, where there is such a clock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LeaseLost(Exception):
    """The run was taken over, or finished, by another; given its id."""

    def __str__(self) -> str:
        return f"{self.args[0]} was taken over by another worker, which goes on with it or has finished it."


def now() -> float:
    """Seconds, of this machine's clock that never jumps."""
    return time.clock_gettime(_CLOCK)


def newest(folder: RunFolder) -> int:
    """The number of the newest lease; 0 when nobody leased the run yet."""
    return max((int(n[:-5]) for n in listing(_leases(folder)) if n.endswith(".json") and n[:-5].isdecimal()), default=0)


def _leases(folder: RunFolder) -> Path:
    return folder.path / "leases"


def _path(folder: RunFolder, number: int, kind: str) -> Path:
    return _leases(folder) / f"{number:06d}.{kind}"


class Lease:
    """A run held by this process; beats while it comes forward, until it is released.

    `on_stall` is called, in a thread and with a sentence, when it didn't come forward for longer than `limits_s` allow.
    """

    def __init__(
        self,
        folder: RunFolder,
        number: int,
        lease_s: float,
        limits_s: Mapping[str, float] = LIMITS_S,
        on_stall: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.number, self.folder = number, replace(folder, attempt=number)
        self._lease_s, self._lost, self._looked = lease_s, False, now()
        self._progress, self._stalled, self._on_stall = Progress(limits_s=limits_s), False, on_stall
        self._note: dict[str, Any] = {}
        self._start, self._count = now(), 0
        self._ended = threading.Event()
        self._beat()
        self._thread = threading.Thread(target=self._keep_beating, daemon=True)
        self._thread.start()

    def mark(self, message: dict[str, Any] | None = None) -> None:
        """A sign of progress: a step, a batch; or a `message` that the next beats tell: stage, step, loss, tokens/s."""
        if message is not None:
            self._note = message
        self._progress.mark(message["stage"] if message else None)

    def lost(self, *, look: bool = False) -> bool:
        """Whether another took the run over or finished it: looked up when the last look is too old to trust, or now.

        What is lost stays so.
        """
        if look or (not self._lost and now() - self._looked > self._lease_s / 2):
            self._look()
        return self._lost

    def release(self, outcome: str) -> None:
        """The run is free. Where that can't be written, it is when no beat has come for the length of the lease."""
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(OSError, UserError):
            self._beat()
            content = json.dumps({"outcome": outcome, "seconds": round(now() - self._start, 3)})
            create_bytes(_path(self.folder, self.number, "end"), content.encode(), sync=False)

    def _look(self) -> None:
        self._lost = newest(self.folder) != self.number or self.folder.summary() is not None
        self._looked = now()

    def _keep_beating(self) -> None:
        while not self._ended.wait(self._lease_s / BEATS):
            stalled = self._progress.stalled(self._lease_s / BEATS)
            # A beat that can't be written is a missed one: when enough are missed, another takes the run.
            with contextlib.suppress(OSError, UserError):
                self._look()
                if not (stalled and self._stalled):
                    self._stalled = stalled
                    self._beat()
            if stalled:
                self._on_stall(self._progress.sentence(self.folder.run_id))

    def _beat(self) -> None:
        self._count += 1
        facts = {"beat": self._count, "seconds": round(now() - self._start, 3), **self._note}
        if self._stalled:
            facts["stalled_s"] = round(self._progress.idle_s, 3)
        _overwrite(_path(self.folder, self.number, "beat"), json.dumps(facts).encode())


def _overwrite(path: Path, content: bytes) -> None:
    """In place: who reads a network file system sees the new bytes of a file at once, but a renamed one only later."""
    if is_bucket(path):
        write_bytes(path, content)
        return
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(file, content, 0)
        os.ftruncate(file, len(content))
    finally:
        os.close(file)


def check_lease(seconds: float) -> None:
    """UserError for what is no time."""
    if not 0 < seconds < math.inf:
        raise UserError(f"a lease of {seconds} seconds: give some time without a sign of a worker.")


def take(
    folder: RunFolder,
    over: int | None = None,
    lease_s: float = LEASE_S,
    limits_s: Mapping[str, float] = LIMITS_S,
    on_stall: Callable[[str], None] = lambda _: None,
) -> Lease | None:
    """Lease a run; None when another holds it, which may take a beat of its to be seen, or its whole lease.

    With `over`, which is free (`Watch.free`), at once after that lease; None when another was quicker.
    """
    over = Watch().settle(folder) if over is None else over
    facts = {"host": host(), "pid": os.getpid(), "process": _process(os.getpid()), "lease_s": lease_s}
    # The bytes may be lost when the machine fails, and the process is too then: nothing waits for the disk.
    if over is None or not create_bytes(_path(folder, over + 1, "json"), json.dumps(facts).encode(), sync=False):
        return None
    return Lease(folder, over + 1, lease_s, limits_s, on_stall)


class Watch:
    """What this process has seen of the beats of others."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], tuple[bytes | None, float]] = {}

    def free(self, folder: RunFolder) -> int | None:
        """The newest lease's number, when the run may be leased; None while its holder lives, as far as is known."""
        number = newest(folder)
        if number == 0 or (held_by := holder(folder, number)) is None:
            return number
        beat, since = self._seen.get((folder.run_id, number), (None, 0.0))
        current = read_bytes(_path(folder, number, "beat"))
        if since == 0.0 or current != beat:
            self._seen[folder.run_id, number] = current, now()
            return None
        return number if now() - since > held_by["lease_s"] else None

    def settle(self, folder: RunFolder) -> int | None:
        """As `free`, but waits until a beat shows that the holder lives, or the lease is over."""
        number, first = self.free(folder), None
        while number is None:
            key = folder.run_id, newest(folder)
            first = first or (key, self._seen.get(key))
            if (key, self._seen.get(key)) != first:
                return None
            time.sleep(0.1)
            number = self.free(folder)
        return number


def holder(folder: RunFolder, number: int) -> dict[str, Any] | None:
    """Who holds a lease; None when it has ended, or its process is known to be dead: only on its own machine it is.

    Of one that a failing machine left unreadable, the length alone is known.
    """
    if read_bytes(_path(folder, number, "end")) is not None:
        return None
    record = {"host": None, "pid": None, "process": None, "lease_s": LEASE_S} | _record(folder, number, "json")
    return None if record["host"] == host() and _process(record["pid"]) != record["process"] else record


def beat_record(folder: RunFolder, number: int) -> dict[str, Any]:
    """What the last beat of a lease told; empty when it is being written."""
    return _record(folder, number, "beat")


def last_sign(folder: RunFolder, number: int) -> float:
    """When the last beat of a lease was written, or the lease itself, by the clock of the file system or bucket."""
    for kind in ("beat", "json"):
        with contextlib.suppress(FileNotFoundError):
            return modified(_path(folder, number, kind))
    return 0.0


def _record(folder: RunFolder, number: int, kind: str) -> dict[str, Any]:
    """A file of a lease; empty for one that is being written, or that a failing machine left unreadable."""
    try:
        content = json.loads(read_bytes(_path(folder, number, kind)) or b"")
    except (ValueError, UnusableFile):
        return {}
    return content if isinstance(content, dict) else {}


@cache
def host() -> str:
    """This machine, since it was started, as its processes number each other; REPRO_HOST names it otherwise."""
    if name := os.environ.get("REPRO_HOST"):
        return name
    boot, space = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    if not boot.exists():
        return f"{platform.node()} {platform.system()}"
    return f"{platform.node()} {boot.read_text(encoding='utf-8').strip()} {space.readlink()}"


def _process(pid: int) -> str | None:
    """When a process was started, which tells it from a later one of the same number; None when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except FileNotFoundError:
        return _exists(pid) if not Path("/proc/self/stat").exists() else None
    return None if fields[0] in "ZX" else fields[19]


def _exists(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "running"
