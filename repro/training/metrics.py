"""Training curves in immutable parquet parts, each covering the steps since the checkpoint before it.

A part is written before the checkpoint that ends it. A run that is cut goes on from its last
checkpoint and writes the same rows again, so parts past that checkpoint are deleted on resume. A run that was asked to
stop in a validation makes it first of all, and the part that ends there is written once more.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from repro.errors import UnusableFile
from repro.files import listing, read_bytes, write_bytes

Row = dict[str, Any]


class MetricsLog:
    """Collects the rows of the steps since the last part."""

    def __init__(self, folder: Path, step: int) -> None:
        """Continue after `step`: parts that end later belong to a future that is run again."""
        self._folder, self._rows, self._start = folder, [], step
        for name in _parts(folder):
            if _last_step(name) > step:
                (folder / name).unlink()

    def reopen(self, step: int, column: str = "") -> Row | None:
        """The last row of the part that ends at `step`, if need be only where it lacks a column.

        Change it, and close the part again.
        """
        for name in _parts(self._folder):
            if _last_step(name) == step and (content := read_bytes(self._folder / name)) is not None:
                rows = pq.read_table(pa.BufferReader(content)).to_pylist()
                if not column or rows[-1][column] is None:
                    self._rows, self._start = rows, _first_step(name) - 1
                    return rows[-1]
        return None

    def add(self, row: Row) -> None:
        """Append the row of one step."""
        self._rows.append(row)

    def close_part(self, step: int) -> None:
        """Write the rows up to `step` as one part, atomically; UserError when it can't be written."""
        if self._rows:
            part = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pylist(self._rows), part)
            write_bytes(self._folder / f"part-{self._start + 1:09d}-{step:09d}.parquet", part.getvalue().to_pybytes())
        self._rows, self._start = [], step


class UnwrittenLog:
    """The log of a process that leaves writing to another."""

    def __init__(self, folder: Path, step: int) -> None:
        pass

    def add(self, row: dict[str, Any]) -> None:
        """Drop it."""

    def reopen(self, step: int, column: str) -> dict[str, Any] | None:
        """Nothing to complete."""

    def close_part(self, step: int) -> None:
        """Nothing to write."""


def read_metrics(folder: Path) -> pa.Table:
    """All rows in the order of their steps."""
    parts = [read_bytes(folder / name) for name in _parts(folder)]
    try:
        tables = [pq.read_table(pa.BufferReader(part)) for part in parts if part is not None]
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UnusableFile(f"{folder} holds damaged metrics ({reason}): move that run's folder away.") from error
    if not tables:
        raise UnusableFile(f"{folder} holds no metrics: the run has not reached its first checkpoint.")
    return pa.concat_tables(tables, promote_options="default")


def _parts(folder: Path) -> list[str]:
    return [name for name in listing(folder) if name.startswith("part-") and name.endswith(".parquet")]


def _first_step(part: str) -> int:
    return int(part.split("-")[1])


def _last_step(part: str) -> int:
    return int(part.removesuffix(".parquet").split("-")[2])
