"""One run as a job on TPU pods: the settings, its slices, what its processes run, and xpk's arguments. Pure; no JAX."""

import shlex
from dataclasses import dataclass
from typing import Annotated

from repro.diloco.resource_flags import flag_words
from repro.launch.engine import Request, job_name, trainer
from repro.machines.placement import Placement, chips_of, days, place, resources_for
from repro.spec.experiment import PlannedRun
from repro.values import PATH, WORD, check_fields, one_of, several, text, whole

# xpk's word for a generation of chips; others are called as in JAX.
PREFIXES = {"v5e": "v5litepod"}


EXAMPLE = """\
project = "my-project"                                  # of Google Cloud
zone = "us-west4-a"
cluster = "diloco"                                      # made by `xpk cluster create`
image = "us-docker.pkg.dev/my-project/repro/train:1"    # built from repro/launch/Dockerfile
root = "gs://my-bucket/runs"                            # run folders: configs, checkpoints, results
cache = "/tokens"                                       # in the pod: the folder that holds tokens/
storage = ["tokens"]                                    # what xpk mounts there (`xpk storage attach`)
"""
# What becomes an argument of xpk or a label of Kubernetes.
Word = Annotated[str, WORD]
SEGMENT = (
    r"(?!\.\.?(?:/|\Z))[^/\x00-\x20\x7f?*\[\]#]{1,255}"  # of an object's name; these signs are patterns to some tools
)
BUCKET = rf"gs://[a-z0-9][a-z0-9._-]{{1,220}}[a-z0-9](?:/{SEGMENT})+/?"
Bucket = Annotated[str, text(BUCKET, "gs://BUCKET/PATH, as pods on several machines share a bucket")]
CAPACITIES = ("on-demand", "spot", "flex")


@dataclass(frozen=True)
class PodSettings:
    """One cluster and its bucket. UserError with the value for what can't be."""

    project: Word
    zone: Word
    cluster: Word
    image: Word
    root: Bucket  # of the run folders
    cache: Annotated[str, text(r"/[^\x00-\x1f\x7f]{0,4095}", "an absolute path, as it is in the pod")]  # of the tokens
    storage: Annotated[tuple[Word, ...], several(0, f"a list, each {WORD.description}")] = ()  # what xpk mounts
    topology: Word | None = None  # chips of a slice such as v5e:8x16; None: the rule's
    slices: Annotated[int, whole(1, 4096)] | None = None  # None: the rule's
    capacity: Word = "on-demand"  # on-demand, spot, flex, or the name of a reservation
    priority: Annotated[str, one_of("very-low", "low", "medium", "high", "very-high")] = "medium"  # of Kueue
    restarts: Annotated[int, whole(1, 10**6)] = 30  # in a row without a new checkpoint, before the run counts as failed
    meet_within_s: Annotated[int, whole(1, 86_400)] = 300  # until all pods of a run are there; doubled after each try
    grace_s: Annotated[int, whole(1, 86_400)] = 120  # from SIGTERM to the kill
    keep_s: Annotated[int, whole(0, 10**7)] = 3600  # an ended JobSet is shown so long, and in its way for as long
    xpk: Annotated[str, PATH] = ".venv-xpk/bin/xpk"

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def programs(self) -> str:
        """Where all pods keep compiled programs, so that a restart loads them: beside the run folders."""
        return self.root.rstrip("/").rpartition("/")[0] + "/xla"


@dataclass(frozen=True)
class PodJob:
    """A run, and the slices it takes."""

    run: PlannedRun
    placement: Placement

    @property
    def name(self) -> str:
        """The JobSet's name."""
        return job_name(self.run.run_id)

    @property
    def chips(self) -> int:
        """Chips of all slices together."""
        return self.placement.resources.devices

    @property
    def days(self) -> float:
        """Days of training, by the rule's share of the peak; communication and pre-emption left out."""
        return days(self.run.config, self.placement.topology, self.placement.slices)


def job_for(run: PlannedRun, settings: PodSettings) -> PodJob:
    """The run on the slices that the settings name, else on those of the rule; UserError where it can't be laid out."""
    chosen = place(run.config)
    topology = settings.topology or chosen.topology
    slices = settings.slices or chosen.slices
    if (topology, slices) != (chosen.topology, chosen.slices):
        resources = resources_for(run.config, chips_of(topology), slices, topology)
        chosen = Placement(topology, slices, resources)
    chosen.resources.check(run.config)
    return PodJob(run, chosen)


def train_command(job: PodJob, request: Request, settings: PodSettings) -> str:
    """What bash runs in every pod. `exec`, so that the SIGTERM of a pre-emption reaches Python and not a shell."""
    command = ["python", *trainer(job.run, request, settings), *flag_words(job.placement.resources)]
    return "exec " + shlex.join(command)


def xpk_arguments(job: PodJob, request: Request, settings: PodSettings) -> list[str]:
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
