"""On what this machine computes: its accelerators where JAX can use them, else its processor's cores. No JAX.

A parent must not open a device: a TPU chip serves one process at a time, and a GPU's memory is taken by whoever comes
first. So a child that ends at once asks JAX, and is started only where its answer may be another than the CPU. What
JAX_PLATFORMS names is what is taken. Which runs go where is `repro.machines.seats`.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from repro.cores import cores
from repro.diloco.jax_settings import check_flags, xla_flags
from repro.errors import UserError
from repro.words import counted

PROBE_S = 180.0  # a GPU's driver may take most of a minute; a TPU host that waits for others takes for ever
# Devices as JAX shows them: one process may hold each of `chips`, which may be several devices.
_PROBE = """
import json, jax
found = jax.local_devices()
first = found[0]
stats = (first.memory_stats() or {}) if first.platform != "cpu" else {}
version = str(first.client.platform_version).lower()
gpu = "rocm" if "rocm" in version else "cuda"
print(json.dumps({
    "platform": gpu if first.platform == "gpu" else first.platform,
    "kind": first.device_kind,
    "devices": len(found),
    "chips": len({tuple(d.coords) if d.platform == "tpu" else d.id for d in found}),
    "memory": stats.get("bytes_limit"),
}))
"""
PROBE = (sys.executable, "-c", _PROBE)
# Files by which a driver shows its devices: NVIDIA's (in a container, under Windows), AMD's, Google's.
DEVICE_FILES = ("nvidia[0-9]*", "nvidiactl", "dxg", "kfd", "accel[0-9]*", "vfio/[0-9]*")
DEV = Path("/dev")
NAMED = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME")
# XLA on CPU allocates its temporaries anew each step. Kept by the process, they cost no page faults: a third of a step.
# Read by the C library when a process starts, so the parent sets them.
ALLOCATOR = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
    "MALLOC_TOP_PAD_": "200000000",
}


@dataclass(frozen=True)
class Hardware:
    """What the processes of one command share. `chips` may each have a process of its own; of a CPU they are cores."""

    platform: str  # as in JAX_PLATFORMS: cpu, cuda, rocm, tpu
    kind: str  # as JAX calls one device
    devices: int
    chips: int
    memory: int | None  # bytes that JAX gives out of one device; of a CPU all there are; None where it isn't told
    idle: str = ""  # the file of a device that JAX has no use for

    @property
    def is_cpu(self) -> bool:
        """Whether it trains on cores."""
        return self.platform == "cpu"

    @property
    def words(self) -> str:
        """`2 CPU cores`, or `8 x NVIDIA H100 (cuda)`."""
        if self.is_cpu:
            return counted(self.chips, "CPU core")
        return f"{self.devices} x {self.kind} ({self.platform})"

    @property
    def note(self) -> str:
        """What a person should know of it, or nothing."""
        if not self.idle:
            return ""
        plugins = "jax[tpu], jax[cuda12], …"
        return f"{self.idle} shows an accelerator that this JAX can't use: install jax with its plugin ({plugins})."


def find() -> Hardware:
    """What this machine has for JAX, honouring JAX_PLATFORMS.

    UserError where that names what isn't there, a device doesn't answer, or XLA_FLAGS holds what XLA would end at.
    """
    check_flags(os.environ.get("XLA_FLAGS", ""))
    if on_cpu(os.environ):
        return cpu()
    answer = _ask(PROBE, {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"})
    if answer["platform"] == "cpu":
        return cpu("" if _named(os.environ) else _device_file())
    return Hardware(**answer)


def cpu(idle: str = "") -> Hardware:
    """The cores of this process."""
    own = len(cores())
    return Hardware("cpu", "cpu", own, own, host_memory(), idle)


def host_memory() -> int | None:
    """Bytes that this machine has, or its container may take; None where the system doesn't tell."""
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text(encoding="utf-8").strip() if limit.exists() else ""
    return min(whole, int(text)) if text.isdecimal() else whole


def on_cpu(environment: Mapping[str, str]) -> bool:
    """Whether JAX can only compute on the CPU: its settings say so, or they say nothing and no device shows."""
    if named := _named(environment):
        return named.split(",")[0] == "cpu"
    return not (_device_file() or _has_plugin())


def platforms(hardware: Hardware, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment that keeps a process to `hardware`: one that lost its accelerator must fail, not use the host."""
    return {"JAX_PLATFORMS": "cpu" if hardware.is_cpu else _named(environment) or f"{hardware.platform},cpu"}


def training_environment(hardware: Hardware, environment: Mapping[str, str], *, smoke: bool) -> dict[str, str]:
    """The environment of a process that trains on `hardware`: its parent's, the platform, and how hard XLA tries.

    What compiles fast on a CPU makes slow kernels for an accelerator: there XLA keeps its own measure.
    """
    variables = scoring_environment(hardware, environment)
    if hardware.is_cpu:
        variables["XLA_FLAGS"] = xla_flags(environment.get("XLA_FLAGS", ""), smoke=smoke)
    return variables


def scoring_environment(hardware: Hardware, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that only scores on `hardware`: its parent's, and the platform.

    XLA keeps its own measure, so that scores are those of the parent's process to the bit.
    """
    return {**environment, **platforms(hardware, environment), **(ALLOCATOR if hardware.is_cpu else {})}


def train_here(*, smoke: bool, simulated: bool = False) -> None:
    """Make this process one that trains, before JAX is imported: on a CPU, or simulated devices, as a worker does."""
    if simulated or on_cpu(os.environ):
        flags = xla_flags(os.environ.get("XLA_FLAGS", ""), smoke=smoke)
        os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}


def require_devices() -> None:
    """Open JAX's devices in this process; UserError where JAX_PLATFORMS names what isn't there."""
    import jax

    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # JAX asserts that a platform it knows has a plugin
        raise UserError(_no_device(_last(str(error)))) from error


def _named(environment: Mapping[str, str]) -> str:
    return next((environment[name] for name in NAMED if environment.get(name)), "")


def _device_file() -> str:
    """The first device file of an accelerator, or nothing."""
    return next((str(path) for pattern in DEVICE_FILES for path in sorted(DEV.glob(pattern))), "")


def _has_plugin() -> bool:
    """Whether JAX has a plugin for another platform. libtpu is none: it lies on machines that only compile for TPUs."""
    return bool(metadata.entry_points(group="jax_plugins")) or importlib.util.find_spec("jax_plugins") is not None


def _ask(probe: tuple[str, ...], environment: Mapping[str, str]) -> dict[str, Any]:
    done = _child(probe, environment)
    if done.returncode:
        raise UserError(_no_device(_last(done.stderr)))
    return json.loads(done.stdout.splitlines()[-1])


def _child(probe: tuple[str, ...], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            probe,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=PROBE_S,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"JAX did not find its devices in {PROBE_S:g} seconds: set JAX_PLATFORMS=cpu to train on cores; a TPU host "
            "that is one of several trains with the others only (`train --cluster`, docs/slurm.md)."
        ) from error


def _no_device(reason: str) -> str:
    named = _named(os.environ)
    what = f"JAX_PLATFORMS={named}: " if named else ""
    reason = reason or "it has no plugin for that platform"
    return f"{what}JAX has no such device here ({reason}): mend that, or set JAX_PLATFORMS=cpu to train on cores."


def _last(text: str) -> str:
    """The reason at the end of a trace, without the name of the error and JAX's own advice."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    reason = re.sub(r"^[\w.]*(Error|Exception):? ?", "", lines[-1]) if lines else ""
    return reason.partition(" (set JAX_PLATFORMS")[0].rstrip(". ")
