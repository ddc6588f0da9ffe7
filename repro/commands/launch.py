"""`python -m repro launch`: the runs of an experiment by an engine, on this machine or elsewhere.

`--engine local` is `python -m repro run`, nothing else. The others make one job of each run that is not finished;
launching twice is a no-op.
"""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.commands import options
from repro.disk import local
from repro.errors import UserError
from repro.files import folder_at
from repro.launch import slurm, xpk
from repro.launch.engine import Engine, Request, read_settings
from repro.spec.experiment import PlannedRun

ELSEWHERE = {"xpk": xpk.ENGINE, "slurm": slurm.ENGINE}
HELP = "local (default): as `run`; xpk: TPU pods (docs/pod.md); slurm: GPUs of a cluster (docs/slurm.md)"


@dataclass(frozen=True)
class LocalSettings:
    """How `run` works on this machine, as its options say; None where they aren't given."""

    root: str
    cache: str
    workers: int | None
    eval: str | None
    takeover_after: float | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    from repro.commands import run as sweep_cli

    add = parser.add_argument
    add("experiment", help="a module of experiments/, such as table5, or all")
    add("--engine", choices=("local", *ELSEWHERE), default="local", help=HELP)
    options.add_paper(parser)
    options.add_scale(parser)
    options.add_seeds(parser)
    add("--root", help="where run folders lie (default: runs, or launch.toml's)")
    add("--cache", help="tokens (default: cache, or launch.toml's)")
    add("--dry-run", action="store_true", help="offline: write the manifests or scripts, start nothing")
    add("--out", type=local, default=Path("build/launch"), help="where a dry run writes them (build/launch)")
    sweep_cli.add_run(parser)
    jobs = parser.add_argument_group("jobs, of xpk and slurm")
    options.add_run_choice(jobs)
    text = "default launch.toml; flags go before"
    jobs.add_argument("--settings", type=local, default=Path("launch.toml"), help=text)
    for name, engine in ELSEWHERE.items():
        group = parser.add_argument_group(f"settings of {name}")
        for flag, text in engine.flags.items():
            kind = {"slices": options.count, "nodes": options.count, "gpus_per_node": options.process}.get(flag, str)
            group.add_argument(f"--{flag.replace('_', '-')}", type=kind, help=text)


def main(args: argparse.Namespace) -> int:
    """Launch; 2 where something has to be mended first."""
    _check_options(args)
    engine = _local(args) if args.engine == "local" else ELSEWHERE[args.engine]
    settings = _local_settings(args) if args.engine == "local" else read_settings(engine, args.settings, _flags(args))
    runs, request = _runs(args), Request(args.experiment, args.scale, args.seeds)
    if args.dry_run:
        print(engine.render(request, runs, settings, args.out))
        return 0
    return engine.create(request, runs, settings, args.retry_failed)


def _check_options(args: argparse.Namespace) -> None:
    """UserError for an option that has no effect on this engine."""
    for name, engine in ELSEWHERE.items():
        if name != args.engine:
            options.refuse(args, tuple(engine.flags), f"--engine {name} takes it, not {args.engine}")
    if args.engine == "local":
        options.refuse(args, ("run", "settings"), "they are for jobs, of --engine xpk or slurm")
    else:
        options.refuse(args, ("workers", "eval", "takeover_after"), "each run is a job of its own")
    if args.dry_run:
        options.refuse(args, ("retry_failed",), "--dry-run writes what all runs would be started by, and starts none")
    else:
        options.refuse(args, ("out",), "only --dry-run writes there")


def _local(args: argparse.Namespace) -> Engine:
    """The sweep of this machine: the script that it would be, and `run` itself."""

    def render(request: Request, runs: Sequence[PlannedRun], settings: LocalSettings, folder: Path) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.sh").write_text(local_script(request, settings), encoding="utf-8")
        return f"{folder / 'run.sh'} would train what is missing of {len(runs)} runs; nothing was started."

    def create(request: Request, runs: Sequence[PlannedRun], settings: LocalSettings, retry_failed: bool) -> int:
        from repro.commands import run as sweep_cli

        args.root, args.cache = folder_at(settings.root), local(settings.cache)
        return sweep_cli.run(args)

    return Engine(LocalSettings, render, create)


def local_script(request: Request, settings: LocalSettings) -> str:
    """`run` as a shell would call it."""
    words = ["python", "-m", "repro", "run", request.experiment, "--scale", request.scale]
    words += ["--seeds", str(request.seeds)]
    for name, value in vars(settings).items():
        words += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    return f"#!/bin/sh\nexec {shlex.join(words)}\n"


def _local_settings(args: argparse.Namespace) -> LocalSettings:
    root, cache = ("runs" if args.root is None else args.root), ("cache" if args.cache is None else args.cache)
    folder_at(root)  # a path that can't be is refused in a dry run too
    local(cache)
    takeover = args.takeover_after if args.takeover_after != args.usual["takeover_after"][1] else None
    return LocalSettings(root, cache, args.workers, args.eval, takeover)


def _flags(args: argparse.Namespace) -> dict[str, Any]:
    names = ("root", "cache", *ELSEWHERE[args.engine].flags)
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def _runs(args: argparse.Namespace) -> tuple[PlannedRun, ...]:
    from repro.spec.experiment import expand, unique

    runs = unique(run for e in options.chosen(args) for run in expand(e, args.scale, args.seeds))
    for name in args.run or ():
        if not any(run.run_id.startswith(name) for run in runs):
            raise UserError(f"no run of {args.experiment} at scale {args.scale} begins with {name!r}: see its plan.")
    return tuple(run for run in runs if args.run is None or run.run_id.startswith(tuple(args.run)))
