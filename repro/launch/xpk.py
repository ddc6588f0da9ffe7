"""The engine for TPU pods: one JobSet a run, made by xpk. No JAX."""

from collections.abc import Sequence
from pathlib import Path

from repro.files import folder_at
from repro.launch import xpk_program
from repro.launch.chip_hours import table
from repro.launch.engine import Engine, Request, create_each
from repro.launch.xpk_jobs import EXAMPLE, PodSettings, job_for, xpk_arguments
from repro.spec.experiment import PlannedRun

FLAGS = {
    "project": "of Google Cloud",
    "zone": "such as us-west4-a",
    "cluster": "made by xpk",
    "image": "built from repro/launch/Dockerfile",
    "topology": "chips of a slice, such as v5e:8x16 (default: the rule's, for each run)",
    "slices": "slices of a run (default: the rule's)",
    "capacity": "on-demand, spot, flex, or the name of a reservation",
    "xpk": "the program (default .venv-xpk/bin/xpk)",
}


def render(request: Request, runs: Sequence[PlannedRun], settings: PodSettings, folder: Path) -> str:
    """A manifest of each run in the folder, and what all of them take."""
    jobs = [job_for(run, settings) for run in runs]
    xpk = xpk_program.require(settings.xpk)
    folder.mkdir(parents=True, exist_ok=True)
    todo = [(xpk_arguments(job, request, settings), folder / f"{job.run.run_id}.yaml") for job in jobs]
    xpk_program.render_manifests(xpk, todo)
    lines = [table(jobs), "", f"{len(jobs)} manifests in {folder}; nothing was started."]
    if settings.storage:
        names = ", ".join(settings.storage)
        lines.append(f"Storage {names} is looked up in the cluster, so its volumes are not in these manifests.")
    return "\n".join(lines)


def create(request: Request, runs: Sequence[PlannedRun], settings: PodSettings, retry_failed: bool) -> int:
    """A JobSet of each run that needs one, after all of them could be laid out."""
    jobs = {run.run_id: job_for(run, settings) for run in runs}
    xpk = xpk_program.require(settings.xpk)

    def create_one(run: PlannedRun) -> str | None:
        job = jobs[run.run_id]
        return job.name if xpk_program.create_workload(xpk, xpk_arguments(job, request, settings)) else None

    return create_each(runs, folder_at(settings.root), retry_failed, create_one)


ENGINE = Engine(PodSettings, render, create, EXAMPLE, "docs/pod.md", FLAGS)
