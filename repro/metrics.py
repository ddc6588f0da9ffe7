"""Training curves in immutable parquet parts, each covering the steps since the checkpoint before it.

A part is written before the checkpoint that ends it. A run that is cut goes on from its last
checkpoint and writes the same rows again, so parts past that checkpoint are deleted on resume.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from repro.errors import UserError

Row = dict[str, Any]


class MetricsLog:
    """Collects the rows of the steps since the last part."""

    def __init__(self, folder: Path, step: int) -> None:
        """Continue after `step`: parts that end later belong to a future that is run again."""
        self._folder, self._rows, self._start = folder, [], step
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob("part-*.parquet"):
            if _last_step(part) > step:
                part.unlink()

    def add(self, row: Row) -> None:
        """Append the row of one step."""
        self._rows.append(row)

    def close_part(self, step: int) -> None:
        """Write the rows up to `step` as one part, atomically; UserError when the disk is full."""
        if not self._rows:
            self._start = step
            return
        path = self._folder / f"part-{self._start + 1:09d}-{step:09d}.parquet"
        part = path.with_suffix(".writing")
        try:
            pq.write_table(pa.Table.from_pylist(self._rows), part)
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise UserError(f"{path} could not be written ({error.strerror}): free some space, run again.") from error
        self._rows, self._start = [], step


def read_metrics(folder: Path) -> pa.Table:
    """All rows in the order of their steps."""
    parts = sorted(folder.glob("part-*.parquet"))
    if not parts:
        raise UserError(f"{folder} holds no metrics: the run has not reached its first checkpoint.")
    return pa.concat_tables([pq.read_table(part) for part in parts], promote_options="default")


def _last_step(part: Path) -> int:
    return int(part.stem.split("-")[2])
