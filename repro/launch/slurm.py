"""The engine for Slurm: one sbatch script a run, with a task a GPU. No JAX.

Plain scripts, since what is submitted is a command and not a Python function: a run is saved by its trainer, which
answers SIGTERM with exit code 42, and found again by its name. Slurm gives the signal to the tasks, so the script only
waits for them; it asks for another start where the trainer was stopped, and never where it failed.
"""

import getpass
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from repro.diloco.resources import local_resources
from repro.errors import EXIT_INTERRUPTED, UserError
from repro.files import folder_at
from repro.launch.engine import Engine, Request, create_each, job_name, trainer
from repro.spec.experiment import PlannedRun
from repro.values import WORD, check_fields, one_of, several, text, whole
from repro.words import counted

EXAMPLE = """\
partition = "gpu"
account = "my-account"
time = "24:00:00"                       # of one job; it saves and is queued again before that
nodes = 2
gpus_per_node = 8
checkout = "/shared/streaming-diloco"   # this repository, its .venv with the JAX of these GPUs; or `container`
root = "/shared/runs"                   # run folders: configs, checkpoints, results, and a log of each run
cache = "/shared/cache"                 # the folder that holds tokens/
"""
FLAGS = {
    "partition": "of Slurm",
    "account": "of Slurm",
    "time": "limit of one job: [DAYS-]HOURS:MINUTES:SECONDS",
    "nodes": "of each run",
    "gpus_per_node": "GPUs, and tasks, of a node; 0: one task on its CPU",
}

# In a script neither the shell nor Slurm's patterns read them as anything else.
Shared = Annotated[
    str,
    text(
        r"/[A-Za-z0-9._/+@:-]{0,4095}",
        "an absolute path of letters, digits and ._/+@:-, the same on every node",
    ),
]
Word = Annotated[str, WORD]
Image = Annotated[str, text(r"[A-Za-z0-9/][A-Za-z0-9._:/@+#-]{0,4095}", "an image: the path of a file, or its name")]
Program = Annotated[str, text(r"[A-Za-z0-9._/@+][A-Za-z0-9._/@+-]{0,4095}", "the path of a Python")]
Option = Annotated[
    str, text(r"--[a-z][a-z-]*(?:=[A-Za-z0-9._,:/@+*\[\]-]+)?", "an option of sbatch such as --qos=high")
]
Time = Annotated[
    str, text(r"(?:[0-9]{1,3}-)?[0-9]{1,3}:[0-5][0-9]:[0-5][0-9]", "[DAYS-]HOURS:MINUTES:SECONDS, such as 24:00:00")
]


@dataclass(frozen=True)
class SlurmSettings:
    """Nodes of one cluster and its shared file system. UserError with the value for what can't be."""

    time: Time  # of one job
    nodes: Annotated[int, whole(1, 4096)]
    gpus_per_node: Annotated[int, whole(0, 64)]  # 0: a task a node, on its CPU
    root: Shared  # of the run folders
    cache: Shared  # of the tokens and compiled programs
    partition: Word | None = None  # None: the cluster's own
    account: Word | None = None
    checkout: Shared | None = None  # the repository, or …
    container: Image | None = None  # … an image that holds it, for pyxis
    python: Program | None = None  # None: .venv/bin/python of the checkout, python of the image
    cpus_per_task: Annotated[int, whole(1, 4096)] | None = None  # None: the cluster's own
    platform: Annotated[str, one_of("cuda", "rocm")] = "cuda"
    sbatch: Annotated[tuple[Option, ...], several(0, "a list of options of sbatch, such as --qos=high")] = ()
    restarts: Annotated[int, whole(1, 10**6)] = 30  # in a row without a new checkpoint, before the run counts as failed
    meet_within_s: Annotated[int, whole(1, 86_400)] = 300  # until all tasks of a run are there; doubled after each try
    grace_s: Annotated[int, whole(1, 65_535)] = 120  # from SIGTERM to the end of the time

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.checkout is None) == (self.container is None):
            raise UserError(
                f"checkout={self.checkout!r} with container={self.container!r}: give one of them, the repository on "
                "the shared file system or an image that holds it."
            )

    @property
    def devices(self) -> int:
        """Devices of all nodes."""
        return self.nodes * max(self.gpus_per_node, 1)


def render(request: Request, runs: Sequence[PlannedRun], settings: SlurmSettings, folder: Path) -> str:
    """A script of each run in the folder."""
    scripts = _scripts(request, runs, settings)
    folder.mkdir(parents=True, exist_ok=True)
    for run_id, script in scripts.items():
        (folder / f"{run_id}.sbatch").write_text(script, encoding="utf-8")
    return f"{counted(len(scripts), 'script')} in {folder}; nothing was started."


def create(request: Request, runs: Sequence[PlannedRun], settings: SlurmSettings, retry_failed: bool) -> int:
    """A job of each run that has none, after all of them could be laid out."""
    scripts, root = _scripts(request, runs, settings), folder_at(settings.root)
    root.mkdir(parents=True, exist_ok=True)  # Slurm starts no job whose log has no folder

    def create_one(run: PlannedRun) -> str | None:
        name = job_name(run.run_id)
        queue = ["squeue", "--noheader", f"--user={getpass.getuser()}", f"--name={name}", "--format=%i"]
        if _output(queue):
            return None
        return f"{name}, job {_output(['sbatch', '--parsable'], scripts[run.run_id]).partition(';')[0]}"

    return create_each(runs, root, retry_failed, create_one)


def script(run: PlannedRun, request: Request, settings: SlurmSettings) -> str:
    """What sbatch takes: the job's options, the tasks, and what follows from their exit code."""
    options = "\n".join(f"#SBATCH {option}" for option in _options(run, settings))
    gpus = f"{settings.platform},cpu  # a task without its GPU must fail, and not train on the host"
    return SCRIPT.format(
        options=options,
        platforms=gpus if settings.gpus_per_node else "cpu",
        begin=f"cd {settings.checkout} || exit 2\n" if settings.checkout else "",
        tasks=shlex.join(_srun(settings) + trainer(run, request, settings)),
        stopped=EXIT_INTERRUPTED,
    )


# A task that is stopped leaves with a code, and the others must still save: srun may end none of them.
SCRIPT = """\
#!/bin/bash
{options}

trap : TERM  # the signal is for the tasks: wait until they have saved
export JAX_PLATFORMS={platforms}
{begin}{tasks}
code=$?
if [ $code -ne {stopped} ] && [ $code -lt 128 ]; then exit $code; fi
# Stopped, or lost with a node. A job that is being cancelled is no longer RUNNING, and stays so.
if [ "$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T)" = RUNNING ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
"""


def _scripts(request: Request, runs: Sequence[PlannedRun], settings: SlurmSettings) -> dict[str, str]:
    for run in runs:
        used = local_resources(run.config, settings.devices).devices
        if used != settings.devices:
            raise UserError(
                f"{run.run_id} can be laid on {used} of the {settings.devices} devices of nodes={settings.nodes} with "
                f"gpus_per_node={settings.gpus_per_node}: choose others, for a part of the runs with --run."
            )
    return {run.run_id: script(run, request, settings) for run in runs}


def _options(run: PlannedRun, settings: SlurmSettings) -> list[str]:
    options = [
        f"--job-name={job_name(run.run_id)}",
        "--dependency=singleton",  # should two be made of one name
        f"--output={settings.root.rstrip('/')}/{run.run_id}.log",
        "--open-mode=append",
        "--requeue",
        f"--signal=TERM@{settings.grace_s}",
        f"--time={settings.time}",
        f"--nodes={settings.nodes}",
        f"--ntasks-per-node={max(settings.gpus_per_node, 1)}",
    ]
    options += [f"--gpus-per-node={settings.gpus_per_node}"] * bool(settings.gpus_per_node)
    given = {"partition": settings.partition, "account": settings.account, "cpus-per-task": settings.cpus_per_task}
    return [*options, *(f"--{name}={value}" for name, value in given.items() if value), *settings.sbatch]


def _srun(settings: SlurmSettings) -> list[str]:
    words = ["srun", "--label", "--kill-on-bad-exit=0", "--wait=0"]
    words += [f"--cpus-per-task={settings.cpus_per_task}"] * bool(settings.cpus_per_task)  # not inherited from sbatch
    if settings.container is None:
        return [*words, settings.python or ".venv/bin/python"]
    mounts = ",".join(f"{path}:{path}" for path in dict.fromkeys((settings.root, settings.cache)))
    words += [f"--container-image={settings.container}", f"--container-mounts={mounts}"]
    return [*words, settings.python or "python"]


def _output(command: Sequence[str], given: str = "") -> str:
    """What a program of Slurm prints; UserError where it isn't there or fails."""
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, encoding="utf-8", errors="replace", check=False
        )
    except OSError as error:
        raise UserError(
            f"{command[0]} can't be run ({error.strerror}): launch where Slurm's programs are, or write the scripts "
            "with --dry-run."
        ) from error
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        reason = lines[-1] if lines else "it said nothing"
        raise UserError(
            f"{command[0]} failed (exit code {done.returncode}: {reason}): mend it and launch again; what runs is left "
            "alone."
        )
    return done.stdout.strip()


ENGINE = Engine(SlurmSettings, render, create, EXAMPLE, "docs/slurm.md", FLAGS)
