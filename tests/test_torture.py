"""The short form of `make torture`: a few runs, a few events, the same claims."""

from pathlib import Path

import pytest
import torture

from repro.prepare import prepare

pytestmark = pytest.mark.compiles
RUNS, EVENTS, SEED = 2, 5, 3


def test_disturbed_runs_end_with_the_bits_of_undisturbed_ones(tmp_path: Path) -> None:
    runs, cache = torture.planned(RUNS), tmp_path / "cache"
    prepare("smoke", cache)
    torture.undisturbed(runs, tmp_path / "quiet", cache)
    with torture.small_disk(tmp_path / "disk") as mounted:
        happened = torture.disturbed(runs, tmp_path / "disk/runs", cache, SEED, EVENTS, 2.0, mounted)
        torture.compare(runs, tmp_path / "disk/runs", tmp_path / "quiet")
    assert sum(happened[kind] for kind in torture.EVENTS) > 0
