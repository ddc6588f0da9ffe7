"""Curves in immutable parts that follow the checkpoints."""

from pathlib import Path

import pytest

from repro.errors import UserError
from repro.training.metrics import MetricsLog, read_metrics


def write(log: MetricsLog, first: int, last: int, value: float) -> None:
    for step in range(first, last + 1):
        log.add({"step": step, "loss_0": value, "validation_loss": None})
    log.close_part(last)


def test_parts_after_the_checkpoint_are_written_again(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    write(log, 1, 4, 1.0)
    write(log, 5, 8, 1.0)
    log.add({"step": 9, "loss_0": 1.0, "validation_loss": None})  # never closed: lost with the process
    resumed = MetricsLog(tmp_path, 4)
    assert [p.name for p in tmp_path.iterdir()] == ["part-000000001-000000004.parquet"]
    write(resumed, 5, 10, 2.0)
    table = read_metrics(tmp_path)
    assert table["step"].to_pylist() == list(range(1, 11))
    assert table["loss_0"].to_pylist() == [1.0] * 4 + [2.0] * 6


def test_an_empty_part_is_not_written(tmp_path: Path) -> None:
    MetricsLog(tmp_path, 0).close_part(3)
    with pytest.raises(UserError, match="holds no metrics"):
        read_metrics(tmp_path)


def test_a_column_may_be_empty_in_one_part(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    write(log, 1, 2, 1.0)
    log.add({"step": 3, "loss_0": 1.0, "validation_loss": 2.5})
    log.close_part(3)
    assert read_metrics(tmp_path)["validation_loss"].to_pylist() == [None, None, 2.5]
