"""When work that goes on counts as stuck: how long each phase may last without a sign of progress. No JAX.

Progress is a step, a batch, a program or a change of phase. A limit is no estimate: what is slow but healthy must never
reach it, and what is stuck has to be told from that at some time.
"""

import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

MINUTE_S, HOUR_S = 60.0, 3600.0
# Until the next sign, by the first word of the stage that is told.
LIMITS_S: Mapping[str, float] = MappingProxyType(
    {
        "starting": HOUR_S,  # a GiB of tokens is read through, checkpoints are copied within a bucket
        "waiting": HOUR_S,  # for processes of the same run, each of which restores and compiles in its own time
        "restoring": 2 * HOUR_S,  # tens of GB of a 4B model from a bucket
        "compiling": 2 * HOUR_S,  # one program: the largest of the paper takes minutes, on one busy core an hour
        "first": HOUR_S,  # the first step loads programs onto the devices and tunes them
        "training": 30 * MINUTE_S,  # one step: the longest of the paper takes seconds on its slices
        "validating": 2 * HOUR_S,  # one batch, of which the first is compiled
        "saving": 2 * HOUR_S,  # waits until the checkpoint before is written, to a bucket
        "scoring": 2 * HOUR_S,  # one batch of questions, of which the first is compiled
    }
)


class Progress:
    """How long the main thread has shown none, as a second thread counts it.

    Only waits of that thread count: a machine that slept or a process that was stopped used nothing of its limit.
    """

    def __init__(self, phase: str = "starting", limits_s: Mapping[str, float] = LIMITS_S) -> None:
        self.phase, self.idle_s = phase, 0.0
        self._limits_s, self._limit_s, self._marks, self._seen = limits_s, limits_s[phase], 0, 0

    def mark(self, stage: str | None = None) -> None:
        """A sign of progress; `stage` is what the work is at from now on, in words of which the first is the phase."""
        if stage is not None:
            self.phase = stage.split()[0]
            self._limit_s = self._limits_s[self.phase]
        self._marks += 1

    def stalled(self, waited_s: float) -> bool:
        """Whether the limit of the phase is over, after the watching thread has waited once more."""
        marks = self._marks
        self.idle_s = self.idle_s + waited_s if marks == self._seen else 0.0
        self._seen = marks
        return self.idle_s > self._limit_s

    def sentence(self, what: str) -> str:
        """That it is stuck, and what follows."""
        return (
            f"{what} has shown no progress in {self.phase} for {self.idle_s:.0f} seconds: this process ends; what was "
            "saved stays, and the same command goes on from there."
        )


def watch_progress(progress: Progress, every_s: float, act: Callable[[], None]) -> None:
    """From now on, in a thread: `act` once when the work is stuck."""

    def look() -> None:
        time.sleep(every_s)
        while not progress.stalled(every_s):
            time.sleep(every_s)
        act()

    threading.Thread(target=look, daemon=True).start()
