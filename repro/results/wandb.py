"""A run as a run of Weights & Biases, under its own id: curves, config, provenance, final numbers. No JAX.

The account, project and mode are W&B's own settings (`wandb login`, WANDB_PROJECT, WANDB_MODE=offline, …). An export
resumes what is there and adds the steps that came since; offline, where nothing can be resumed, the
folder of the export before is deleted.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from repro.errors import UserError
from repro.results.curves import Curves

PROJECT = "streaming-diloco"
# Of this machine nothing is told: it is not where the run was trained.
SETTINGS = {
    "console": "off",
    "disable_git": True,
    "save_code": False,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}


def write_wandb(curves: Curves, out: Path) -> str:
    """Log the run, with local files in `out`/wandb; returns its page, or offline its folder, which `wandb sync` sends.

    A row a step, with the seconds of training up to it. UserError without the extra, or when W&B does not take the run.
    """
    try:
        import wandb  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError("Weights & Biases needs its client, which is not there: pip install wandb.") from error
    # Where the client isn't installed, a type checker takes this file for it.
    out.mkdir(parents=True, exist_ok=True)
    earlier = list((out / "wandb").glob(f"offline-run-*-{curves.run_id}"))
    try:
        run = wandb.init(  # pyright: ignore[reportAttributeAccessIssue]
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=curves.run_id,
            name=curves.run_id,
            config=curves.config | {"provenance": curves.provenance},
            tags=[curves.config["scale"]],
            dir=out,
            resume="allow",
            settings=SETTINGS,
        )
    except wandb.Error as error:  # pyright: ignore[reportAttributeAccessIssue]
        raise UserError(f"W&B does not take the run ({_line(error)}): `wandb login`, or WANDB_MODE=offline.") from error
    _log(run, curves)
    for folder in earlier:
        shutil.rmtree(folder)
    return run.url or str(Path(run.dir).parent)


def _log(run: Any, curves: Curves) -> None:
    there = run.step  # W&B takes no step again
    for point in curves.points:
        if point.step >= there:
            run.log(point.values | {"train/seconds": point.seconds}, step=point.step)
    run.summary.update(curves.results)
    run.finish(exit_code=1 if curves.failed else 0)


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")
