"""One run as one job: its name, its slices, what its processes run, and xpk's arguments for it. Pure; no JAX."""

import shlex
from dataclasses import dataclass

from repro.diloco.resource_flags import words
from repro.launch.settings import CAPACITIES, Settings
from repro.machines.placement import Placement, chips_of, days, place, resources_for
from repro.spec.experiment import PlannedRun

NAME_LIMIT = 40  # of xpk's names
# xpk's word for a generation of chips; others are called as in JAX.
PREFIXES = {"v5e": "v5litepod"}


@dataclass(frozen=True)
class Request:
    """Which experiment is launched, as the processes of a pod are told."""

    experiment: str
    scale: str
    seeds: int


@dataclass(frozen=True)
class Job:
    """A run, and the slices it takes."""

    run: PlannedRun
    placement: Placement

    @property
    def name(self) -> str:
        """Of the JobSet: a function of the run's id, so that a second launch finds the first."""
        slug, _, digest = f"r-{self.run.run_id}".rpartition("-")  # a name starts with a letter
        return f"{slug[: NAME_LIMIT - len(digest) - 1].rstrip('-')}-{digest}"

    @property
    def chips(self) -> int:
        """Of all slices together."""
        return self.placement.resources.devices

    @property
    def days(self) -> float:
        """Of training, by the rule's share of the peak; communication and pre-emption left out."""
        return days(self.run.config, self.placement.topology, self.placement.slices)


def job_for(run: PlannedRun, settings: Settings) -> Job:
    """The run on the slices that the settings name, else on those of the rule; UserError where it can't be laid out."""
    chosen = place(run.config)
    topology = settings.topology or chosen.topology
    slices = settings.slices or chosen.slices
    if (topology, slices) != (chosen.topology, chosen.slices):
        resources = resources_for(run.config, chips_of(topology), slices, topology)
        chosen = Placement(topology, slices, resources)
    chosen.resources.check(run.config)
    return Job(run, chosen)


def train_command(job: Job, request: Request, settings: Settings) -> str:
    """What bash runs in every pod. `exec`, so that the SIGTERM of a pre-emption reaches Python and not a shell."""
    command = ["python", "-m", "repro", "train", job.run.run_id]
    command += ["--experiment", request.experiment, "--scale", request.scale, "--seeds", str(request.seeds)]
    command += ["--root", settings.root, "--cache", settings.cache, "--cluster"]
    command += ["--meet-within", str(settings.meet_within_s), "--restarts", str(settings.restarts)]
    return "exec " + shlex.join([*command, *words(job.placement.resources)])


def xpk_arguments(job: Job, request: Request, settings: Settings) -> list[str]:
    """The arguments of `xpk` that make the job's workload.

    Never --quiet: it would delete and replace a workload that is there already.
    """
    generation, _, shape = job.placement.topology.partition(":")
    options = {
        "--workload": job.name,
        "--project": settings.project,
        "--zone": settings.zone,
        "--cluster": settings.cluster,
        "--tpu-type": f"{PREFIXES.get(generation, generation)}-{shape}",
        "--num-slices": str(job.placement.slices),
        "--docker-image": settings.image,
        "--command": train_command(job, request, settings),
        "--priority": settings.priority,
        "--max-restarts": str(settings.restarts),
        "--termination-grace-period-seconds": str(settings.grace_s),
        "--ttl-seconds-after-finished": str(settings.keep_s),
    }
    # A pod without its chips must fail, and not train on the host.
    environment = {"JAX_PLATFORMS": "tpu,cpu", "JAX_COMPILATION_CACHE_DIR": settings.programs}
    arguments = ["workload", "create", *(word for pair in options.items() for word in pair)]
    arguments += [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
    arguments += [word for name in settings.storage for word in ("--storage", name)]
    capacity = [settings.capacity] if settings.capacity in CAPACITIES else ["reservation", settings.capacity]
    return [*arguments, f"--{capacity[0]}", *capacity[1:]]
