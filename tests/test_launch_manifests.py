"""The golden manifests rendered again by xpk itself, byte for byte: `make test-launch` (xpk has an environment)."""

import os
from pathlib import Path

import launch_rig
import pytest

from repro.launch.engine import render
from repro.launch.jobs import xpk_arguments

ROOT = Path(__file__).parents[1]
XPK = Path(os.environ.get("XPK", ROOT / ".venv-xpk/bin/xpk"))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not XPK.exists(), reason="xpk is not installed: make xpk")]


def test_xpk_renders_the_golden_manifests(tmp_path: Path) -> None:
    jobs = []
    for case in launch_rig.CASES:
        arguments = xpk_arguments(launch_rig.job_of(case), launch_rig.REQUEST, launch_rig.settings_of(case))
        jobs.append((arguments, tmp_path / f"{case}.yaml"))
    render(str(XPK), jobs)
    for _, path in jobs:
        golden = launch_rig.GOLDEN / path.name
        if os.environ.get("UPDATE_GOLDEN") == "1":
            golden.write_bytes(path.read_bytes())
        assert path.read_bytes() == golden.read_bytes()
