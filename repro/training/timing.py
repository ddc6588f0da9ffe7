"""How long a start takes, part by part, and how long saving holds the loop up: for the run's provenance. No JAX."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Timing:
    """Wall-clock seconds of one attempt, from the start of its process to its end."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._age = process_age()
        self._spent: dict[str, float] = {"restore": 0.0, "programs": 0.0, "saving": 0.0}
        self._start: dict[str, float] = {}
        self._loop, self._saves = self._begun, 0

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Count what is done inside as `part`: restore, programs or saving."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._spent[part] += time.monotonic() - start
            self._saves += part == "saving"

    def loop_begins(self) -> None:
        """The programs are ready."""
        self._loop = time.monotonic()

    def first_step_is_there(self) -> dict[str, float]:
        """What the start took, in seconds.

        before: from the start of the process to the training function (imports and checks of the tokens; in a
        process that serves several runs, those before this one too); restore: of a checkpoint, or the first state;
        programs: compiled, or loaded from the persistent cache; first_step: its loss is on the host.
        """
        now = time.monotonic()
        known = {"before": self._age, "restore": self._spent["restore"], "programs": self._spent["programs"]}
        total = self._age + now - self._begun
        self._start = {**known, "first_step": now - self._loop, "total": total}
        return {name: round(seconds, 3) for name, seconds in self._start.items()}

    def facts(self) -> dict[str, Any]:
        """For the provenance: the start, and how long the loop was held up by saving, also as a share of all of it."""
        training = time.monotonic() - self._loop
        saving = {"saves": self._saves, "seconds": self._spent["saving"], "share": self._spent["saving"] / training}
        return {
            "start_s": {name: round(seconds, 3) for name, seconds in self._start.items()},
            "training_s": round(training, 3),
            "saving": {name: round(value, 4) for name, value in saving.items()},
        }


def process_age() -> float:
    """Seconds since this process was started; 0 where the system does not tell."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of all, since boot
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started
