"""The commands `evaluate` and `lm-eval`: arguments in, sentences out.

`evaluate` takes the accelerators that are there, as `run` does; `lm-eval` and `export` compute on the CPU unless
JAX_PLATFORMS names another platform.
"""

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from experiments.registry import load, names, trained
from repro.commands import options
from repro.diloco.jax_settings import clean, pin
from repro.disk import local
from repro.errors import UnusableFile, UserError, pass_over
from repro.evaluation.evaluator import Job, evaluate_all, pending
from repro.evaluation.tasks import BATCH, PARAMETERS, SETS, TASKS, choose, result_path
from repro.files import place, read_json
from repro.machines.hardware import Hardware, cpu, find, require_devices
from repro.machines.seats import check_workers, holds_checkpoints
from repro.runs.folder import RunFolder, find_run, named
from repro.spec.config import RunConfig
from repro.spec.experiment import expand
from repro.spec.identity import from_json
from repro.values import brief
from repro.words import counted


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """Arguments of `evaluate`."""
    parser.add_argument("what", nargs="+", help="an experiment such as table5, or run ids, or their beginnings")
    parser.add_argument(
        "--scale", type=options.scale, default="mini", help="of an experiment: paper, mini (default) or smoke"
    )
    parser.add_argument("--seeds", type=options.seeds, default=1, help="of an experiment: seeds 0 .. N-1 (default 1)")
    parser.add_argument(
        "--eval", choices=sorted(SETS), help="full: whole sets (default at paper scale); part: at mini; few: at smoke"
    )
    parser.add_argument("--tasks", type=_tasks, default=(), help=f"instead of a set: some of {','.join(TASKS)}")
    parser.add_argument(
        "--limit", type=options.count, help="the first N questions of each task; never compared with anything"
    )
    parser.add_argument("--step", type=options.step, help="a checkpoint's step (default: the end of the run)")
    parser.add_argument("--workers", type=options.count, help="runs side by side (default one a core)")
    parser.add_argument("--batch", type=options.count, default=BATCH, help=f"sequences at a time (default {BATCH})")
    parser.add_argument("--source", choices=("packages", "hub"), default="packages", help="where questions come from")
    add_common(parser)


def add_lm_eval(parser: argparse.ArgumentParser) -> None:
    """Arguments of `lm-eval`: its own go before the run, those of lm-eval after it."""
    parser.add_argument("--step", type=options.step, help="a checkpoint's step (default: the newest)")
    add_common(parser)
    parser.add_argument("run", type=options.run_id, help="a run id, or its beginning")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of lm-eval: --tasks piqa --limit 100 …")


def add_common(parser: argparse.ArgumentParser) -> None:
    """Arguments of all commands on a run's parameters."""
    parser.add_argument(
        "--parameters", choices=PARAMETERS, help="default: as the row says (Table 3), outer without one"
    )
    parser.add_argument("--root", type=place, default=Path("runs"), help="where run folders lie (default runs)")
    parser.add_argument("--cache", type=local, default=Path("cache"), help="tokens, questions and compiled programs")


def refuse_experiment(args: argparse.Namespace) -> None:
    """UserError for --scale and --seeds where no experiment is named."""
    if not set(args.what) & {*names(), "all"}:
        options.refuse(args, ("scale", "seeds"), "they say which runs an experiment has, and runs are named")


def _tasks(text: str) -> tuple[str, ...]:
    tasks = tuple(text.split(","))
    if not set(tasks) <= set(TASKS) or len(set(tasks)) < len(tasks):
        raise argparse.ArgumentTypeError(f"give some of {','.join(TASKS)}, each once, not {brief(text)}")
    return tasks


def evaluate(args: argparse.Namespace) -> int:
    """Score what is missing; nothing heavy is imported when nothing is."""
    named(args.root)
    if args.tasks:
        options.refuse(args, ("eval",), "--tasks stands in place of a set")
    refuse_experiment(args)
    jobs = tuple(dict.fromkeys(_jobs(args)))  # rows may share a run
    todo = pending(jobs, args.root)
    code = 0
    if todo:
        code = _score(todo, args)
    if not jobs:
        runs = f"run of {' '.join(args.what)} at scale {args.scale}"
        print(f"nothing to evaluate: no finished {runs} under {args.root}.")
    for job in jobs if not code and args.what[0] not in (*names(), "all") else ():
        print(result_path(RunFolder(args.root, job.run_id), job.spec.id(job.step)))
    return code


def _score(todo: tuple[Job, ...], args: argparse.Namespace) -> int:
    clean(os.environ)  # for one sentence, where each worker would say its own
    hardware = find()
    if not hardware.is_cpu and not holds_checkpoints((job.config for job in todo), hardware):
        hardware = cpu()
    workers = hardware.chips if args.workers is None else args.workers
    check_workers(workers, hardware)
    print(f"{_estimate(todo, workers, hardware)}.", file=sys.stderr)
    return evaluate_all(todo, args.root, args.cache, workers, batch=args.batch, source=args.source, hardware=hardware)


def _estimate(todo: tuple[Job, ...], workers: int, hardware: Hardware) -> str:
    from repro.results.collected import records
    from repro.results.estimate import UNTIMED, scoring_sentence

    if not hardware.is_cpu:
        return f"{counted(len(todo), 'evaluation')} on {hardware.words}: {UNTIMED}"
    return scoring_sentence([(job.config, job.spec) for job in todo], records(todo[0].config.scale), workers)


def _jobs(args: argparse.Namespace) -> Iterable[Job]:
    for what in args.what:
        if what == "all":
            for experiment in trained("all"):
                if experiment.scored:
                    yield from _experiment_jobs(experiment.name, args)
        elif what in names():
            yield from _experiment_jobs(what, args)
        else:
            folder = find_run(args.root, what)
            config = from_json(RunConfig, read_json(folder.path / "config.json"))
            step = _step(folder, args.step)
            if step is None:
                raise UserError(f"{folder.run_id} is not finished: give one of its checkpoints with --step.")
            yield _job(folder, config, step, args)


def _experiment_jobs(name: str, args: argparse.Namespace) -> Iterable[Job]:
    missing = 0
    for run in expand(load(name), args.scale, args.seeds):
        folder = RunFolder(args.root, run.run_id)
        try:
            step = _step(folder, args.step)
        except UnusableFile as error:
            pass_over(str(error))
            continue
        if step is None:
            missing += 1
        else:
            yield _job(folder, run.config, step, args, run.parameters)
    if missing:
        print(f"{counted(missing, 'run')} of {name} not finished: left out.")


def _step(folder: RunFolder, asked: int | None) -> int | None:
    """The step to evaluate; None for a run without an end."""
    if asked is not None:
        return asked
    summary = folder.result()
    return None if summary is None else int(summary["steps"])


def _job(folder: RunFolder, config: RunConfig, step: int, args: argparse.Namespace, parameters: str = "outer") -> Job:
    which = args.parameters or parameters
    spec = choose(config, args.eval, tasks=args.tasks, limit=args.limit, parameters=which)
    return Job(folder.run_id, config, spec, step)


def lm_eval(args: argparse.Namespace) -> int:
    """lm-eval's command line with a run as its model."""
    run = find_run(args.root, args.run).run_id
    open_platform()
    from repro.evaluation.lm_eval_model import command_line  # JAX and lm-eval: seconds

    model_args = {"run": run, "root": str(args.root), "cache": str(args.cache)}
    model_args |= {} if args.step is None else {"step": str(args.step)}
    model_args |= {} if args.parameters is None else {"parameters": args.parameters}
    return command_line(model_args, args.cache, args.options)


def open_platform() -> None:
    """Import JAX in this process, on the CPU unless JAX_PLATFORMS names another; UserError where that isn't there."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    pin()
    require_devices()
