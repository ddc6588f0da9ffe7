"""Jobs whose xpk command lines and manifests are golden: one of each kind that Table 5 has at paper scale."""

from pathlib import Path

from experiments.registry import load
from repro.launch.engine import Request
from repro.launch.xpk_jobs import PodJob, PodSettings, job_for
from repro.spec.experiment import expand, unique

GOLDEN = Path(__file__).parents[1] / "golden" / "launch"
REQUEST = Request("table5", "paper", 1)
SETTINGS = dict(
    project="my-project",
    zone="us-west4-a",
    cluster="diloco",
    image="us-docker.pkg.dev/my-project/repro/train:1",
    root="gs://my-bucket/runs",
    cache="/tokens",
    storage=("tokens",),
)
# File of the golden manifest -> (beginning of the run's id, what the settings add).
CASES = {
    "35m-dp": ("35m-dp", {}),
    "35m-stream-h30": ("35m-stream-h30", {}),
    "1b-stream-h100-four-slices": ("1b-stream-h100", dict(topology="v5e:8x8", slices=4, capacity="spot")),
    "4b-stream-h100": ("4b-stream-h100", dict(capacity="my-reservation")),
}


def settings_of(case: str) -> PodSettings:
    """The settings of a golden case."""
    return PodSettings(**{**SETTINGS, **CASES[case][1]})


def job_of(case: str) -> PodJob:
    """The job of a golden case."""
    (run,) = (r for r in unique(expand(load("table5"), "paper")) if r.run_id.startswith(CASES[case][0]))
    return job_for(run, settings_of(case))
