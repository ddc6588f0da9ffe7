"""The commands `evaluate` and `lm-eval`: arguments in, sentences out.

`evaluate` takes the accelerators that are there, as `run` does; `evaluate --windows`, `lm-eval` and `export` compute on
the CPU unless JAX_PLATFORMS names another platform.
"""

import argparse
import os
import sys
from collections.abc import Iterable

from experiments.registry import experiment_names, load, trained
from repro.commands import options
from repro.diloco.jax_settings import clean, pin
from repro.errors import UnusableFile, UserError, pass_over
from repro.evaluation.evaluator import Job, evaluate_all, pending_jobs
from repro.evaluation.tasks import BATCH, PARAMETERS, SETS, TASKS, choose, read_result, result_path
from repro.machines.hardware import Hardware, cpu, find, require_devices
from repro.machines.seats import check_workers, holds_checkpoints
from repro.runs.folder import RunFolder, find_run, runs_root
from repro.runs.takeover import saved_steps
from repro.spec.config import RunConfig
from repro.spec.experiment import expand
from repro.spec.validation import validation_id
from repro.values import brief
from repro.words import counted

UNREAD = ("eval", "tasks", "limit", "step", "workers", "batch", "source")  # by --windows


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """Arguments of `evaluate`."""
    parser.add_argument("what", nargs="+", help="an experiment such as table5, or run ids, or their beginnings")
    options.add_paper(parser)
    options.add_scale(parser, "of an experiment: ")
    options.add_seeds(parser, "of an experiment: ")
    parser.add_argument(
        "--eval", choices=sorted(SETS), help="full: whole sets (default at paper scale); part: at mini; few: at smoke"
    )
    parser.add_argument("--tasks", type=_tasks, default=(), help=f"instead of a set: some of {','.join(TASKS)}")
    parser.add_argument(
        "--limit", type=options.count, help="the first N questions of each task; never compared with anything"
    )
    parser.add_argument("--step", type=options.step, help="a checkpoint's step (default: the end of the run)")
    text = "instead of scores: the validation loss of finished runs on the first N held-out windows, into their summary"
    parser.add_argument("--windows", type=options.count, metavar="N", help=text)
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
    options.add_root(parser)
    options.add_cache(parser, "tokens, questions and compiled programs")


def refuse_experiment(args: argparse.Namespace) -> None:
    """UserError for --scale and --seeds where no experiment is named, and for --paper without all of them."""
    if "all" not in args.what and "paper" in args.usual:
        options.refuse(args, ("paper",), "it says which paper `all` is")
    if not set(args.what) & {*experiment_names(), "all"}:
        options.refuse(args, ("scale", "seeds"), "they say which runs an experiment has, and runs are named")


def _tasks(text: str) -> tuple[str, ...]:
    tasks = tuple(text.split(","))
    if not set(tasks) <= set(TASKS) or len(set(tasks)) < len(tasks):
        raise argparse.ArgumentTypeError(f"give some of {','.join(TASKS)}, each once, not {brief(text)}")
    return tasks


def evaluate(args: argparse.Namespace) -> int:
    """Score what is missing; nothing heavy is imported when nothing is."""
    runs_root(args.root)
    if args.tasks:
        options.refuse(args, ("eval",), "--tasks stands in place of a set")
    refuse_experiment(args)
    if args.windows is not None:
        options.refuse(args, UNREAD, "--windows validates the end of a run, in this process")
    jobs = tuple(dict.fromkeys(_jobs(args)))  # rows may share a run
    if not jobs:
        runs = f"of {' '.join(args.what)} at scale {args.scale}"
        which = "finished run" if args.step is None else f"run with a checkpoint of step {args.step}"
        print(f"nothing to evaluate: no {which} {runs} under {args.root}.")
    if args.windows is not None:
        return _validate(jobs, args)
    todo = pending_jobs(jobs, args.root)
    code = 0
    if todo:
        code = _score(todo, args)
    for job in jobs if not code and args.what[0] not in (*experiment_names(), "all") else ():
        print(result_path(RunFolder(args.root, job.run_id), job.spec.id(job.step)))
    return code


def _validate(jobs: tuple[Job, ...], args: argparse.Namespace) -> int:
    """Print the validation loss of each; nothing heavy is imported where all are there."""

    def sentence(job: Job) -> str:
        folder, name = RunFolder(args.root, job.run_id), validation_id(job.spec.parameters, args.windows)
        validation = (folder.result() or {"validations": {}})["validations"].get(name)
        if validation is None:
            open_platform()
            from repro.evaluation.validating import validate_run  # JAX: seconds

            validation = validate_run(folder, job.spec.parameters, args.windows, args.cache)
        return f"{job.run_id}  {name}  validation loss {validation['loss']:.4f}"

    return options.do_each(jobs, sentence)


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
            for experiment in trained("all", args.paper):
                if experiment.scored or args.windows is not None:
                    yield from _experiment_jobs(experiment.name, args)
        elif what in experiment_names():
            yield from _experiment_jobs(what, args)
        else:
            folder = find_run(args.root, what)
            job = _job(folder, folder.config(), args)
            if job is None:
                if args.step is not None:
                    folder.saved_step(args.step)  # says which there are
                mend = "give one of its checkpoints with --step" if args.windows is None else "run it to its end"
                raise UserError(f"{folder.run_id} is not finished: {mend}.")
            yield job


def _experiment_jobs(name: str, args: argparse.Namespace) -> Iterable[Job]:
    missing = 0
    for run in expand(load(name), args.scale, args.seeds):
        folder = RunFolder(args.root, run.run_id)
        try:
            job = _job(folder, run.config, args, run.parameters)
        except UnusableFile as error:
            pass_over(str(error))
            continue
        if job is None:
            missing += 1
        else:
            yield job
    if missing:
        without = "not finished" if args.step is None else f"without a checkpoint of step {args.step}"
        print(f"{counted(missing, 'run')} of {name} {without}: left out.")


def _job(folder: RunFolder, config: RunConfig, args: argparse.Namespace, parameters: str = "outer") -> Job | None:
    """What is to be scored of a run; None for one without an end, or without the checkpoint that is asked for."""
    which = args.parameters or parameters
    spec = choose(config, args.eval, tasks=args.tasks, limit=args.limit, parameters=which)
    if args.step is None:
        summary = folder.result()
        return None if summary is None else Job(folder.run_id, config, spec, int(summary["steps"]))
    scored = read_result(folder, spec, args.step) is not None
    there = scored or args.step in saved_steps(folder.home)
    return Job(folder.run_id, config, spec, args.step) if there else None


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
