"""The command `export`: a run's parameters as safetensors, or its curves for TensorBoard or Weights & Biases."""

import argparse
from collections.abc import Callable
from pathlib import Path

from experiments.registry import experiment_names, load
from repro.commands import options
from repro.commands.evaluate import add_common, open_platform, refuse_experiment
from repro.disk import local
from repro.errors import UserError
from repro.files import listing
from repro.runs.folder import RunFolder, find_run
from repro.spec.experiment import expand

FORMATS = ("safetensors", "tensorboard", "wandb")
DASHBOARDS = FORMATS[1:]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `export`."""
    parser.add_argument("what", nargs="+", help="an experiment such as table5, or run ids, or their beginnings")
    options.add_scale(parser, "of an experiment: ")
    options.add_seeds(parser, "of an experiment: ")
    parser.add_argument("--to", default="safetensors", help="safetensors (default), tensorboard or wandb")
    text = "the folder to write (default exports/<id>; exports/tensorboard and exports/wandb, with a folder a run)"
    parser.add_argument("--out", type=local, help=text)
    parser.add_argument("--step", type=options.step, help="a checkpoint's step, for safetensors (default: the newest)")
    add_common(parser)


def main(args: argparse.Namespace) -> int:
    """Write runs in a form that others read."""
    if args.to not in FORMATS:
        raise UserError(f"export to {args.to!r} is unknown: choose {', '.join(FORMATS)}.")
    if args.to in DASHBOARDS and (args.step, args.parameters) != (None, None):
        raise UserError(f"--step and --parameters choose parameters, and --to {args.to} shows curves: leave them out.")
    refuse_experiment(args)
    if args.to in DASHBOARDS:
        options.refuse(args, ("cache",), "curves are read from the run's folder")
    folders = {folder.run_id: folder for what in args.what for folder in _folders(what, args)}
    if args.out and len(folders) > 1 and args.to not in DASHBOARDS:
        raise UserError(f"--out {args.out} for {len(folders)} runs: without it each goes to exports/<id>.")
    if not folders:
        raise UserError(f"nothing to export under {args.root}: train first, or give with --root where the runs lie.")
    write = (_curves if args.to in DASHBOARDS else _parameters)(args)
    return options.do_each(folders.values(), write)


def _folders(what: str, args: argparse.Namespace) -> list[RunFolder]:
    """The runs that a word names; of an experiment those that have something to show."""
    if what not in experiment_names():
        return [find_run(args.root, what)]
    planned = {run.run_id: RunFolder(args.root, run.run_id) for run in expand(load(what), args.scale, args.seeds)}
    exportable = [folder for folder in planned.values() if listing(folder.metrics)]
    if missing := len(planned) - len(exportable):
        print(f"{missing} of {len(planned)} runs of {what} have no checkpoint: left out.")
    return exportable


def _curves(args: argparse.Namespace) -> Callable[[RunFolder], object]:
    from repro.results.curves import read_curves

    write, out = _writer(args.to), args.out or Path("exports") / args.to
    return lambda folder: write(read_curves(folder), out)


def _writer(form: str) -> Callable[..., object]:
    if form == "tensorboard":
        from repro.results.tensorboard import write_tensorboard as write
    else:
        from repro.results.wandb import write_wandb as write
    return write


def _parameters(args: argparse.Namespace) -> Callable[[RunFolder], object]:
    open_platform()
    from repro.results.safetensors import export  # JAX

    def write(folder: RunFolder) -> object:
        out = args.out or Path("exports") / folder.run_id
        return export(folder, args.cache, out, step=args.step, which=args.parameters or "outer")

    return write
