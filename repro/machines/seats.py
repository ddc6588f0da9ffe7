"""Which of a machine's devices a run takes, and the workers that share the machine. Pure; no JAX.

A run takes the fewest devices that hold it, by the estimate that also chooses TPU slices (`repro.machines.placement`),
and as many workers as that leaves room for work side by side. What can't be trained here is refused before anything
starts.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from repro.diloco.resource_flags import MESH, flag_words
from repro.diloco.resources import Resources, local_resources, meshes
from repro.errors import UserError
from repro.machines.hardware import Hardware
from repro.machines.placement import FILL, GIB, candidates, estimate
from repro.spec.config import RunConfig
from repro.spec.experiment import PlannedRun
from repro.spec.identity import run_id
from repro.spec.shapes import parameter_count
from repro.words import counted

CORE_FLOPS = 5e10  # a second, of one core: small models do 20 to 80 GFLOP/s
LONGEST_YEARS = 1.0  # of one run on all cores of a machine
YEAR_S = 365.25 * 86400
TPU_PORT = 8476  # of the first worker; each process of libtpu listens at one
# Chips of one process as libtpu wants them told, for the neighbours that it numbers in a row.
TPU_BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}
# Variables that say which GPUs a process sees; that which is set already is divided further.
VISIBLE = {
    "cuda": ("JAX_CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "rocm": ("JAX_ROCM_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    "tpu": ("TPU_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS"),
}
ELSEWHERE = "launch it on pods (docs/pod.md) or with Slurm (docs/slurm.md), or choose a smaller scale (--scale mini)"


@dataclass(frozen=True)
class Part:
    """Runs that take equally many devices, and the environment that gives each worker its own."""

    runs: tuple[PlannedRun, ...]
    seats: tuple[dict[str, str], ...]
    memory: int | None  # bytes of each device of a worker


def parts(runs: Iterable[PlannedRun], hardware: Hardware, workers: int) -> tuple[Part, ...]:
    """The runs by the number of chips that each needs, the fewest first, with at most `workers` workers.

    UserError for one that this machine can't hold, or not in a lifetime.
    """
    runs = tuple(runs)
    memory = hardware.memory and (hardware.memory // workers if hardware.is_cpu else hardware.memory)
    if hardware.is_cpu and runs:
        check_time(max((run.config for run in runs), key=lambda config: config.flops), hardware.chips)
    groups: dict[int, list[PlannedRun]] = {}
    for run in runs:
        groups.setdefault(_chips(run.config, hardware, memory), []).append(run)
    divided = []
    for width, group in sorted(groups.items()):
        count = min(workers, hardware.chips // width, len(group))
        divided.append(Part(tuple(group), seats(hardware, count, width, os.environ), memory))
    return tuple(divided)


def check_workers(workers: int, hardware: Hardware) -> None:
    """UserError for more workers than `hardware` has chips or cores, or none."""
    if not 1 <= workers <= hardware.chips:
        raise UserError(f"workers={workers}: this machine offers {hardware.words}, choose 1 to {hardware.chips}.")


def seats(hardware: Hardware, count: int, width: int, environment: Mapping[str, str]) -> tuple[dict[str, str], ...]:
    """The environment of each of `count` workers that gives it `width` chips of its own; empty where one has all."""
    if hardware.is_cpu or width == hardware.chips:
        return ({},) * count
    variable, names = visible(hardware, environment)
    share = [",".join(names[i * width : (i + 1) * width]) for i in range(count)]
    if hardware.platform != "tpu":
        return tuple({variable: own} for own in share)
    return tuple({variable: own, **_tpu_process(width, TPU_PORT + i)} for i, own in enumerate(share))


def visible(hardware: Hardware, environment: Mapping[str, str]) -> tuple[str, list[str]]:
    """The variable that shows a process its chips, and their names in it; "" and none where no variable does."""
    variables = VISIBLE.get(hardware.platform)
    if variables is None:
        return "", []
    for variable in variables:
        if environment.get(variable, "all") != "all":
            return variable, environment[variable].split(",")
    return variables[-1], [str(i) for i in range(hardware.chips)]


def fit(config: RunConfig, devices: int, memory: int | None) -> Resources | None:
    """The first resources on exactly so many devices that hold the run, of `memory` bytes each if that is known."""
    return next((r for r in _laid(config, devices) if memory is None or _held(config, r) <= FILL * memory), None)


def worker_resources(config: RunConfig, devices: int, memory: int | None) -> Resources:
    """What a worker trains on, whose devices `parts` chose; simulated ones as far as the run can be laid on them."""
    return fit(config, devices, memory) or local_resources(config, devices)


def all_devices(config: RunConfig, devices: int, memory: int | None) -> Resources:
    """What a run takes that has a machine, or several, to itself: every device; UserError where it can't."""
    if resources := fit(config, devices, memory):
        return resources
    most = local_resources(config, devices)
    if most.devices < devices:
        mesh = " ".join(flag_words(most)[: 2 * len(MESH)])
        raise UserError(
            f"{run_id(config)} can be laid on {most.devices} of the {counted(devices, 'device')} here, and the others "
            f"would be idle: say so with {mesh}, or show it fewer."
        )
    raise UserError(_too_large(config, devices, memory))


def check_time(config: RunConfig, cores: int) -> None:
    """UserError for a run that takes so many CPU cores more than a year, by its FLOPs."""
    years = config.flops / (CORE_FLOPS * cores) / YEAR_S
    if years > LONGEST_YEARS:
        raise UserError(
            f"{run_id(config)} would take {counted(cores, 'CPU core')} {counted(int(years), 'year')} or more, and JAX "
            f"has no accelerator here: {ELSEWHERE}."
        )


def holds_checkpoints(configs: Iterable[RunConfig], hardware: Hardware) -> bool:
    """Whether one device takes in the whole state of each run, as evaluating restores it."""
    most = max(parameter_count(c.model) * (12 * c.replicas + 8 * (c.sync is not None)) for c in configs)
    return hardware.memory is None or most <= FILL * hardware.memory


def _chips(config: RunConfig, hardware: Hardware, memory: int | None) -> int:
    """The fewest chips that hold the run."""
    per_chip = 1 if hardware.is_cpu else hardware.devices // hardware.chips
    for chips in _widths(hardware):
        if fit(config, chips * per_chip, memory):
            return chips
    raise UserError(_too_large(config, 1 if hardware.is_cpu else hardware.devices, memory))


def _widths(hardware: Hardware) -> Iterator[int]:
    """How many chips one process may be given."""
    if hardware.is_cpu:
        return iter((1,))
    divisors = (n for n in range(1, hardware.chips + 1) if hardware.chips % n == 0)
    known = hardware.platform != "tpu"
    divided = len(visible(hardware, os.environ)[1]) == hardware.chips
    return (n for n in divisors if n == hardware.chips or (divided and (known or n in TPU_BOUNDS)))


def _tpu_process(width: int, port: int) -> dict[str, str]:
    """A process that is alone with its chips, beside others on the host."""
    return {
        "TPU_CHIPS_PER_PROCESS_BOUNDS": TPU_BOUNDS[width],
        "TPU_PROCESS_BOUNDS": "1,1,1",
        "TPU_PROCESS_ADDRESSES": f"localhost:{port}",
        "TPU_PROCESS_PORT": str(port),
        "CLOUD_TPU_TASK_ID": "0",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }


def _laid(config: RunConfig, devices: int) -> Iterator[Resources]:
    return (resources for mesh in meshes(config, devices) for resources in candidates(mesh, config))


def _held(config: RunConfig, resources: Resources) -> int:
    """Bytes on one device, by the estimate of a replica on its own devices, for as many as share them."""
    return estimate(config, resources) * (config.replicas // resources.replica)


def _too_large(config: RunConfig, devices: int, memory: int | None) -> str:
    least = min((_held(config, r) for r in _laid(config, devices)), default=_held(config, local_resources(config, 1)))
    have = f", and one gives out {memory / GIB:.0f}" if memory else ""
    on = f"on each of {devices} devices" if devices > 1 else "on a device"
    return f"{run_id(config)} takes about {least / GIB:.0f} GiB {on}{have}: {ELSEWHERE}."
