"""How a preparation tells where it is: a callback of (stage, done, total), and the bar that shows it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]


def quiet(stage: str, done: int, total: int) -> None:
    """Say nothing."""


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on standard error, one line a stage, with the time left; pass what it yields as `progress`."""
    from rich.console import Console  # only a preparation that has work to do needs it
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    tasks = {}
    columns = (TextColumn("{task.description:>12}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Bar(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bar:

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield show
