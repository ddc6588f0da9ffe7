"""What a launch takes, before it is paid for: slices, chips and chip-hours of each run. Pure; no JAX."""

from collections.abc import Sequence

from repro.launch.xpk_jobs import PodJob
from repro.machines.placement import MODEL_FLOPS_UTILISATION
from repro.words import aligned


def table(jobs: Sequence[PodJob]) -> str:
    """Aligned lines for a terminal, and the sum."""
    head = ("run", "workload", "slices", "chips", "hours", "chip-hours")
    rows = [
        (
            job.run.run_id,
            job.name,
            f"{job.placement.slices} x {job.placement.topology}",
            str(job.chips),
            f"{24 * job.days:.2f}",
            f"{chip_hours(job):,.0f}",
        )
        for job in jobs
    ]
    total, share = sum(map(chip_hours, jobs)), f"{100 * MODEL_FLOPS_UTILISATION:.0f} %"
    note = (
        f"In all {total:,.0f} chip-hours, if the chips do {share} of their peak: an estimate, without compiling, "
        "checkpoints, pre-emption and waiting for a place."
    )
    return "\n".join([*aligned(head, rows, left=2), "", note])


def chip_hours(job: PodJob) -> float:
    """Estimated hours of one chip."""
    return job.chips * job.days * 24
