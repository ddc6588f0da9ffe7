"""Figures without runs, drawn by another process while this one makes the tables: half of a new page's time.

That process only goes ahead. What it hasn't drawn when it ends, for whatever reason, is drawn where it is shown.
"""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from analysis.pages import report
from analysis.pages.stamps import SUITE
from repro.cores import cores


@contextlib.contextmanager
def drawing_ahead(names: Iterable[str], out: Path, forms: Sequence[str]) -> Iterator[Callable[[], object]]:
    """Draw what of `names` isn't kept under `out` meanwhile, where there are two cores; gives what waits for it."""
    missing = [name for name in names if not report.is_kept(name, out, forms)]
    if not missing or len(cores()) == 1:
        yield lambda: None
        return
    command = [sys.executable, "-m", "analysis.pages.ahead", str(out.resolve()), ",".join(forms), *missing]
    with subprocess.Popen(command, cwd=SUITE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            yield child.wait
        finally:
            child.kill()


def main(out: str, forms: str, *names: str) -> None:
    """Draw them."""
    for name in names:
        report.draw_figure(name, Path(out), forms.split(","))


if __name__ == "__main__":
    main(*sys.argv[1:])
