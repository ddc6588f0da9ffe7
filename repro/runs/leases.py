"""Who may work at a run: claims with heartbeats, on one machine or several that share a folder or bucket. No JAX.

    runs/<id>/claims/000003.json  who holds claim 3; created exclusively, so that each number is had once
                     000003.beat  rewritten while its holder comes forward, with how far it is
                     000003.end   how it ended; from then on the run is free

The number fences: it only grows, and whoever holds another than the newest has lost the run, knowing it or not.
A claim is taken over at once when its process is known to be dead (same machine), and otherwise when its
beat has not changed for the lease, by the clock of the one who watches: clocks of two machines are never compared.
A worker that was stopped meanwhile looks for a newer claim before it goes on, since its own last look is too old.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from repro.errors import UnusableFile, UserError
from repro.files import create_bytes, is_bucket, modified, names, read_bytes, write_bytes
from repro.runs.folder import RunBusy, RunFolder
from repro.runs.liveness import LIMITS_S, Progress

LEASE_S = 60.0  # without a beat for so long, a claim may be taken over
BEATS = 6  # in a lease
# Goes on while the machine sleeps, where there is such a clock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class ClaimLost(Exception):
    """The run was taken over, or finished, by another."""


def now() -> float:
    """Seconds, of this machine's clock that never jumps."""
    return time.clock_gettime(_CLOCK)


def newest(folder: RunFolder) -> int:
    """The number of the newest claim; 0 when nobody claimed the run yet."""
    return max((int(n[:-5]) for n in names(_claims(folder)) if n.endswith(".json") and n[:-5].isdecimal()), default=0)


def _claims(folder: RunFolder) -> Path:
    return folder.path / "claims"


def _path(folder: RunFolder, number: int, kind: str) -> Path:
    return _claims(folder) / f"{number:06d}.{kind}"


class Claim:
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

    def note(self, message: dict[str, Any]) -> None:
        """What the next beats tell: stage, step, loss, tokens/s. It is a sign of progress."""
        self._note = message
        self._progress.mark(message["stage"])

    def advance(self) -> None:
        """A sign of progress in the same stage: a step, a batch."""
        self._progress.mark()

    def lost(self) -> bool:
        """Whether another took the run over or finished it: looked up when the last look is too old to trust."""
        if not self._lost and now() - self._looked > self._lease_s / 2:
            self._look()
        return self._lost

    def gone(self) -> bool:
        """Whether another took the run over or finished it, looked up now."""
        self._look()
        return self._lost

    def check(self) -> None:
        """ClaimLost if the run is another's, looked up now."""
        if self.gone():
            raise ClaimLost(f"{self.folder.run_id} was taken over by another worker, which goes on with it.")

    def release(self, outcome: str) -> None:
        """End the claim: the run is free. Where that can't be written, the lease ends it."""
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
    over: int,
    lease_s: float = LEASE_S,
    limits_s: Mapping[str, float] = LIMITS_S,
    on_stall: Callable[[str], None] = lambda _: None,
) -> Claim | None:
    """Claim a run after claim `over`, which is free (`Watch.free`); None when another was quicker."""
    holder = {"host": host(), "pid": os.getpid(), "process": _process(os.getpid()), "lease_s": lease_s}
    # The bytes may be lost when the machine fails, and the process is too then: nothing waits for the disk.
    if not create_bytes(_path(folder, over + 1, "json"), json.dumps(holder).encode(), sync=False):
        return None
    return Claim(folder, over + 1, lease_s, limits_s, on_stall)


class Watch:
    """What this process has seen of the beats of others."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], tuple[bytes | None, float]] = {}

    def free(self, folder: RunFolder) -> int | None:
        """The newest claim's number, when the run may be claimed; None while its holder lives, as far as is known."""
        number = newest(folder)
        if number == 0 or read_bytes(_path(folder, number, "end")) is not None:
            return number
        holder = claim_record(folder, number)
        if is_dead(holder):
            return number
        beat, since = self._seen.get((folder.run_id, number), (None, 0.0))
        current = read_bytes(_path(folder, number, "beat"))
        if since == 0.0 or current != beat:
            self._seen[folder.run_id, number] = current, now()
            return None
        return number if now() - since > holder["lease_s"] else None

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


@contextmanager
def claimed(folder: RunFolder, lease_s: float = LEASE_S) -> Iterator[Claim]:
    """Hold a run; RunBusy when another does, which may take a beat of its to be seen, or its lease."""
    number = Watch().settle(folder)
    claim = None if number is None else take(folder, number, lease_s)
    if claim is None:
        raise RunBusy(folder.run_id)
    outcome = "failed"
    try:
        yield claim
        outcome = "finished"
    finally:
        claim.release(outcome)


def claim_record(folder: RunFolder, number: int) -> dict[str, Any]:
    """Who holds a claim; of one that a failing machine left unreadable, the lease alone."""
    return {"host": None, "pid": None, "process": None, "lease_s": LEASE_S} | _record(folder, number, "json")


def beat_record(folder: RunFolder, number: int) -> dict[str, Any]:
    """What the last beat of a claim told; empty when it is being written."""
    return _record(folder, number, "beat")


def last_sign(folder: RunFolder, number: int) -> float:
    """When the last beat of a claim was written, or the claim itself, by the clock of the file system or bucket."""
    for kind in ("beat", "json"):
        with contextlib.suppress(FileNotFoundError):
            return modified(_path(folder, number, kind))
    return 0.0


def end_record(folder: RunFolder, number: int) -> dict[str, Any] | None:
    """How a claim ended; None when it did not, or its holder had no time to say so."""
    return _record(folder, number, "end") if _path(folder, number, "end").exists() else None


def _record(folder: RunFolder, number: int, kind: str) -> dict[str, Any]:
    """A file of a claim; empty for one that is being written, or that a failing machine left unreadable."""
    try:
        found = json.loads(read_bytes(_path(folder, number, kind)) or b"")
    except (ValueError, UnusableFile):
        return {}
    return found if isinstance(found, dict) else {}


def is_dead(holder: dict[str, Any]) -> bool:
    """Whether the process that holds a claim is known to be dead: only on its own machine can that be seen."""
    return holder["host"] == host() and _process(holder["pid"]) != holder["process"]


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
