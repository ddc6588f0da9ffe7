"""What a save and a restart cost a run of the mini ladder, in processes of their own: the last part of `make bench`.

One run is started, stopped by SIGTERM in training, started again and stopped, and started a third time to its end. Each
start tells in its provenance what it took (`repro.training.timing`). Nothing of the third but imports, the checkpoint
and its
programs should count, which come from the persistent cache: in at most 1.2 times what the quicker restart took.
"""

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from repro.errors import EXIT_INTERRUPTED
from repro.machines.hardware import cpu
from repro.runs.folder import RunFolder, open_folder
from repro.runs.sweep import environment
from repro.spec.identity import config_text

SLACK = 1.2  # over the time that loading the compiled programs took
STALL = 0.02  # of training time, for saving


def measure_start(cache: Path, scale: str = "mini") -> list[str]:
    """Lines of the report. RuntimeError when an attempt ends as it shouldn't."""
    from experiments.streaming.table5 import STREAM_30, method_rows
    from repro.spec.scales import at_scale

    (config,) = (at_scale(row.config, scale) for row in method_rows("35M") if row.labels[1] == STREAM_30)
    assert config is not None
    with tempfile.TemporaryDirectory() as root:
        folder = open_folder(Path(root), config)
        asked = Path(root) / "asked.json"
        asked.write_text(config_text(config), encoding="utf-8")
        for ends in (EXIT_INTERRUPTED, EXIT_INTERRUPTED, 0):
            _attempt(asked, Path(root), cache, stop=ends == EXIT_INTERRUPTED, expected=ends)
        second, third = _facts(folder, 2), _facts(folder, 3)
    return lines(second, third)


def lines(second: dict[str, Any], third: dict[str, Any]) -> list[str]:
    """The report of two restarts' provenance."""
    start = third["start_s"]
    load = min(start["programs"], second["start_s"]["programs"])
    most = start["before"] + start["restore"] + SLACK * load
    parts = ", ".join(f"{name} {start[name]:.2f} s" for name in ("before", "restore", "programs", "first_step"))
    saving = third["saving"]
    return [
        f"restart: {parts} (before: from the process's start to the trainer, imports mostly)",
        f"{'restart to first step / (imports + restore + 1.2 x programs)':<60} {start['total'] / most:7.3f}  bar <= 1",
        f"{'saving / training':<60} {saving['share']:7.4f}  bar <= {STALL:g}  "
        f"{saving['saves']} saves, {saving['seconds']:.2f} s of {third['training_s']:.1f} s",
    ]


def _attempt(config: Path, root: Path, cache: Path, *, stop: bool, expected: int) -> None:
    command = [sys.executable, "-m", "repro", "train", str(config), "--json", "--root", str(root)]
    command += ["--cache", str(cache)]
    worker_environment = environment(cpu(), smoke=False)
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8", env=worker_environment) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if stop and json.loads(line).get("stage") == "training":
                child.send_signal(signal.SIGTERM)
                stop = False
    if child.returncode != expected:
        raise RuntimeError(f"an attempt ended with {child.returncode}, not {expected}")


def _facts(folder: RunFolder, attempt: int) -> dict[str, Any]:
    return json.loads((folder.path / "provenance" / f"{attempt:06d}.json").read_text(encoding="utf-8"))
