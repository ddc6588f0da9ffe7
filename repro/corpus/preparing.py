"""How a preparation tells where it is: a callback of (stage, done, total), and the bar that shows it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from repro.words import print_line

Progress = Callable[[str, int, int], None]
LINE_SECONDS = 10.0  # between two lines where there is no terminal


def quiet(stage: str, done: int, total: int) -> None:
    """Say nothing."""


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on standard error, one line a stage, with the time left; pass what it yields as `progress`.

    Where standard error is no terminal, a line now and then says the same.
    """
    from rich.console import Console  # only a preparation that has work to do needs it
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    tasks = {}
    columns = (TextColumn("{task.description:>12}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(lambda text: print_line(console, text))
        return
    with Bar(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield show


class _Lines:
    """Progress as lines for a log: the start and the end of each stage, and between them one in LINE_SECONDS."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._stage, self._next = "", 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._start, self._base, self._ended = stage, now, done, False
        elif (now < self._next and done < total) or self._ended:
            return
        self._ended = done >= total
        self._next = now + LINE_SECONDS
        left = ""
        if self._base < done < total:
            seconds = round((total - done) / (done - self._base) * (now - self._start))
            left = f", {seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d} left"
        self._write(f"{stage:>12} {100 * done // max(1, total):>3} %{left}")
