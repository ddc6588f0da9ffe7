"""What a person sees of a sweep: a bar for each worker and one for all, or plain lines without a terminal; of one run
alone, lines."""

import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from repro.spec.config import RunConfig
from repro.spec.experiment import PlannedRun
from repro.spec.validation import declared
from repro.words import counted, print_line

LINE_SECONDS = 15.0  # between two lines of one worker, without a terminal


def work(config: RunConfig) -> float:
    """How long a run takes, up to a constant: its FLOPs, and a fixed cost a step that small models feel."""
    return config.flops + 1e8 * config.steps


def progress_line(run: str, config: RunConfig, message: dict[str, Any]) -> str:
    """What the training loop tells, in words: `35m-dp-s0-…  training  20/24  loss 3.401  12.3k tokens/s`."""
    if "warning" in message:
        return f"{run}  {message['warning']}"
    text = f"{run}  {message['stage']}  {message.get('step', 0)}/{config.steps}"
    if "loss" in message:
        text += f"  loss {message['loss']:.3f}  {message['tokens_per_s'] / 1000:.1f}k tokens/s"
    return text


class Board:
    """Progress of all workers; use as a context."""

    def __init__(self, runs: tuple[PlannedRun, ...], workers: int, title: str) -> None:
        self._console = Console(stderr=True)
        self._live = self._console.is_terminal
        self._total = sum(work(run.config) for run in runs)
        self._runs, self._count = len(runs), 0
        self._done: dict[str, float] = {}
        self._start: float | None = None
        self._line_at = [0.0] * workers
        self._text: list[str] = [""] * workers
        self._title = title or "all runs"
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
        )
        self._progress = Progress(*columns, console=self._console, disable=not self._live)
        self._all: TaskID = self._progress.add_task(self._title, total=self._total, text="starting workers")
        self._bars = [self._progress.add_task(f"worker {i}", total=1, text="") for i in range(workers)]

    def __enter__(self) -> "Board":
        self.say(f"{self._title}: {counted(self._runs, 'run')} to do")
        self._progress.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """A line above the bars."""
        print_line(self._progress.console, text)

    def update(self, worker: int, run: PlannedRun, message: dict[str, Any]) -> None:
        """A message of a worker: stage, step and, in training, loss and tokens/s."""
        if "warning" in message:
            self.say(progress_line(run.run_id, run.config, message))
            message = {key: value for key, value in message.items() if key != "warning"}
        step, steps = message.get("step", 0), run.config.steps
        if message["stage"] == "training" and self._start is None:
            self._start = time.monotonic()
            self._base = sum(self._done.values())
        self._done[run.run_id] = work(run.config) * step / steps
        text = progress_line(run.run_id, run.config, message)
        self._progress.update(self._bars[worker], total=steps, completed=step, text=text)
        self._text[worker] = text
        self.tick()
        if not self._live and time.monotonic() - self._line_at[worker] > LINE_SECONDS:
            self._line_at[worker] = time.monotonic()
            self.say(f"{text}  [{self._summary()}]")

    def finished(self, worker: int, run: PlannedRun, summary: dict[str, Any]) -> None:
        """A run ended well."""
        self._count += 1
        self._done[run.run_id] = work(run.config)
        validation = declared(summary, run.config.scale, run.config.model.seq_len)
        result = f"validation loss {validation['loss']:.4f}" if validation else "finished"
        self.say(f"{run.run_id}  {result}  ({self._count}/{self._runs}, {self._summary()})")

    def failed(self, worker: int, run: PlannedRun, reason: str) -> None:
        """A run stopped for good."""
        self._count += 1
        self._done[run.run_id] = work(run.config)
        self.say(f"{run.run_id}  FAILED: {reason}")

    def idle(self, worker: int, text: str) -> None:
        """A worker has nothing to do, and why."""
        self._progress.update(self._bars[worker], text=text)
        if not self._live:
            self.say(text)

    def tick(self) -> None:
        """Refresh the overall bar."""
        done = sum(self._done.values())
        self._progress.update(self._all, completed=done, text=self._summary())

    def _summary(self) -> str:
        done = sum(self._done.values())
        share = f"{100 * done / self._total:.0f} %"
        if self._start is None or done <= self._base:
            return share
        left = (self._total - done) / (done - self._base) * (time.monotonic() - self._start)
        return f"{share}, {_clock(left)} left"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02d}"
