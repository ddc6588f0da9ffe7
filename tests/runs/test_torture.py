"""The short form of `make torture`: a few runs, a few events, the same assertions; with models, and without."""

from pathlib import Path

import pytest
import torture

from repro.corpus.prepare import prepare

SEED = 3


def disturb(tmp_path: Path, runs: int, events: int, mean_s: float, light: bool) -> None:
    planned, cache = torture.planned(runs), tmp_path / "cache"
    prepare("smoke", cache)
    torture.undisturbed(planned, tmp_path / "quiet", cache, light)
    with torture.small_disk(tmp_path / "disk") as mounted:
        happened = torture.disturbed(planned, tmp_path / "disk/runs", cache, SEED, events, mean_s, mounted, light)
        torture.compare(planned, tmp_path / "disk/runs", tmp_path / "quiet", light)
    assert sum(happened[kind] for kind in torture.EVENTS) > 0


@pytest.mark.slow
def test_disturbed_runs_end_with_the_bits_of_undisturbed_ones(tmp_path: Path) -> None:
    disturb(tmp_path, runs=2, events=4, mean_s=3.0, light=False)


def test_disturbed_sweeps_lose_nothing_and_finish_nothing_twice(tmp_path: Path) -> None:
    disturb(tmp_path, runs=4, events=10, mean_s=0.7, light=True)
