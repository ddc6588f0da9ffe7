"""Several processes of one run on this machine, each the ordinary command line: `python -m repro train`."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from repro.spec.config import RunConfig
from repro.spec.identity import config_text

ROOT = Path(__file__).parents[2]
PATIENCE_S = 420.0


@dataclass
class Cast:
    """The processes of one run."""

    members: list[subprocess.Popen] = field(default_factory=list)

    def wait(self, patience_s: float = PATIENCE_S) -> list[tuple[int, str]]:
        """(exit code, what was written) of each; all are killed when one takes too long."""
        end = time.monotonic() + patience_s
        try:
            done = [member.communicate(timeout=max(end - time.monotonic(), 1.0)) for member in self.members]
        finally:
            for member in self.members:
                member.kill()
        return [(m.returncode, out + err) for m, (out, err) in zip(self.members, done, strict=True)]


def launch(
    config: RunConfig,
    root: Path,
    cache: Path,
    *,
    devices: Sequence[int],
    options: Sequence[str] = (),
    prefixes: Sequence[Sequence[str]] | None = None,
    host: str = "127.0.0.1",
) -> Cast:
    """Start one process for each entry of `devices`, with so many simulated devices.

    `prefixes` are commands that each process is run by (`ip netns exec …`); `host` is where process 0 is found.
    """
    root.mkdir(parents=True, exist_ok=True)
    path = root / "asked.json"
    path.write_text(config_text(config), encoding="utf-8")
    coordinator = f"{host}:{free_port()}"
    commands = []
    for index, count in enumerate(devices):
        command = [*(prefixes[index] if prefixes else ()), sys.executable, "-m", "repro", "train", str(path)]
        command += ["--root", str(root), "--cache", str(cache), "--devices", str(count), "--scan", *options]
        if len(devices) > 1:
            command += ["--coordinator", coordinator, "--processes", str(len(devices)), "--process", str(index)]
        commands.append(command)
    return start(commands)


def start(commands: Sequence[Sequence[str]]) -> Cast:
    """Start a process for each command, in the root of the repository."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("JAX_NUM_CPU_DEVICES", None)
    cast = Cast()
    for command in commands:
        cast.members.append(
            subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
            )
        )
    return cast


def free_port() -> int:
    """A port that nothing holds."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
