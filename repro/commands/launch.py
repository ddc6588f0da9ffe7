"""`python -m repro launch`: the runs of an experiment, on this machine or on TPU pods.

`--engine local` is `python -m repro run`, nothing else. `--engine xpk` makes one JobSet of each run that is not
finished; launching twice is a no-op.
"""

import argparse
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from repro.commands import options
from repro.disk import local
from repro.errors import UnusableFile, UserError
from repro.files import place as place_of
from repro.launch.settings import Settings, read_settings
from repro.spec.experiment import PlannedRun

ENGINES = ("local", "xpk")
POD_FLAGS = {
    "project": "of Google Cloud",
    "zone": "such as us-west4-a",
    "cluster": "made by xpk",
    "image": "built from repro/launch/Dockerfile",
    "topology": "chips of a slice, such as v5e:8x16 (default: the rule's, for each run)",
    "slices": "slices of a run (default: the rule's)",
    "capacity": "on-demand, spot, flex, or the name of a reservation",
    "xpk": "the program (default .venv-xpk/bin/xpk)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    from repro.commands import run as sweep_cli

    add = parser.add_argument
    add("experiment", help="a module of experiments/, such as table5, or all")
    add("--engine", choices=ENGINES, default="local", help="local (default): as `run`; xpk: TPU pods (docs/pod.md)")
    add("--scale", type=options.scale, default="mini", help="paper, mini (default) or smoke")
    add("--seeds", type=options.seeds, default=1, help="seeds 0 .. N-1 (default 1)")
    add(
        "--run",
        action="append",
        type=options.run_id,
        metavar="ID",
        help="only runs whose id begins so (repeatable)",
    )
    add("--root", help="where run folders lie (default: runs, or launch.toml's bucket)")
    add("--cache", help="tokens (default: cache, or launch.toml's folder in the pod)")
    sweep_cli.add_run(parser)
    pods = parser.add_argument_group("pods")
    pods.add_argument(
        "--settings", type=local, default=Path("launch.toml"), help="default launch.toml; flags go before"
    )
    pods.add_argument("--dry-run", action="store_true", help="offline: write the manifests, start nothing")
    pods.add_argument("--out", type=local, default=Path("build/launch"), help="where manifests go (build/launch)")
    for name, text in POD_FLAGS.items():
        pods.add_argument(f"--{name}", type=options.count if name == "slices" else str, help=text)


def main(args: argparse.Namespace) -> int:
    """Launch; 2 where something has to be mended first."""
    if args.engine == "local":
        return _local(args)
    from repro.launch.jobs import Request, job_for, xpk_arguments
    from repro.launch.xpk import require

    options.refuse(args, ("workers", "eval", "takeover_after"), "in pods each run is a job of its own")
    if args.dry_run:
        options.refuse(args, ("retry_failed",), "--dry-run writes the manifests of all runs and starts none")
    settings = read_settings(args.settings, _flags(args))
    runs = _runs(args)
    jobs = [job_for(run, settings) for run in runs]
    xpk = require(settings.xpk)
    request = Request(args.experiment, args.scale, args.seeds)
    todo = [(job, xpk_arguments(job, request, settings)) for job in jobs]
    return _render(args, xpk, todo, settings) if args.dry_run else _create(args, xpk, todo, settings)


def _local(args: argparse.Namespace) -> int:
    from repro.commands import run as sweep_cli

    asked = [name for name in POD_FLAGS if getattr(args, name) is not None]
    if asked or args.dry_run or args.run:
        word = (asked or (["dry-run"] if args.dry_run else ["run"]))[0]
        raise UserError(f"--{word} is for pods: say --engine xpk, or leave it out and launch on this machine.")
    options.refuse(args, ("settings", "out"), "they are for pods, of --engine xpk")
    args.root = place_of("runs" if args.root is None else args.root)
    args.cache = local("cache" if args.cache is None else args.cache)
    return sweep_cli.run(args)


def _flags(args: argparse.Namespace) -> dict[str, Any]:
    names = [field.name for field in fields(Settings) if field.name in (*POD_FLAGS, "root", "cache")]
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def _runs(args: argparse.Namespace) -> tuple[PlannedRun, ...]:
    from experiments.registry import trained
    from repro.spec.experiment import expand, unique

    runs = unique(run for e in trained(args.experiment) for run in expand(e, args.scale, args.seeds))
    for name in args.run or ():
        if not any(run.run_id.startswith(name) for run in runs):
            raise UserError(f"no run of {args.experiment} at scale {args.scale} begins with {name!r}: see its plan.")
    return tuple(run for run in runs if args.run is None or run.run_id.startswith(tuple(args.run)))


def _render(args: argparse.Namespace, xpk: str, todo: list[Any], settings: Settings) -> int:
    from repro.launch import xpk as engine
    from repro.launch.chip_hours import table

    args.out.mkdir(parents=True, exist_ok=True)
    engine.render(xpk, [(arguments, args.out / f"{job.run.run_id}.yaml") for job, arguments in todo])
    print(table([job for job, _ in todo]))
    print(f"\n{len(todo)} manifests in {args.out}; nothing was started.")
    if settings.storage:
        names = ", ".join(settings.storage)
        print(f"Storage {names} is looked up in the cluster, so its volumes are not in these manifests.")
    return 0


def _create(args: argparse.Namespace, xpk: str, todo: list[Any], settings: Settings) -> int:
    from repro.launch import xpk as engine
    from repro.runs.folder import RunFolder

    root, stopped = place_of(settings.root), False
    for job, arguments in todo:
        folder = RunFolder(root, job.run.run_id)
        try:
            folder.check(job.run.config)
            failure, summary = folder.failure(), folder.summary()
        except UnusableFile as error:
            stopped = True
            print(f"{job.run.run_id}: {error}", flush=True)
            continue
        if summary is not None:
            print(f"{job.run.run_id}: finished", flush=True)
        elif failure and not args.retry_failed:
            stopped = True
            print(
                f"{job.run.run_id}: failed before: {failure['reason']} (--retry-failed launches it again)", flush=True
            )
        else:
            told = "launched" if engine.create(xpk, arguments) else "there already, left alone"
            print(f"{job.run.run_id}: {told} ({job.name})", flush=True)
    if stopped:
        print("repro: some runs failed before, or their folders can't be used, and were not launched.", file=sys.stderr)
    return os.EX_OK if not stopped else 2
