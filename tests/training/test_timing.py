"""What a start took, and how long saving held the loop up."""

import pytest

from repro.training import timing
from repro.training.timing import Timing


def test_the_parts_of_a_start_and_the_share_of_saving(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(timing.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(timing, "process_age", lambda: 5.0)

    def spend(seconds: float) -> None:
        clock[0] += seconds

    watch = Timing()
    with watch.of("restore"):
        spend(2)
    with watch.of("programs"):
        spend(3)
    watch.loop_begins()
    spend(1)
    start = watch.first_step_is_there()
    assert start == {"before": 5.0, "restore": 2.0, "programs": 3.0, "first_step": 1.0, "total": 11.0}
    for _ in range(2):
        spend(4)
        with watch.of("saving"):
            spend(0.5)
    assert watch.facts() == {
        "start_s": start,
        "training_s": 10.0,
        "saving": {"saves": 2, "seconds": 1.0, "share": 0.1},
    }


def test_a_process_is_older_each_time_it_is_asked() -> None:
    assert 0 < timing.process_age() <= timing.process_age()
