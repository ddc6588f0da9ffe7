"""`python -m repro run` and `python -m repro status`: a sweep, and how far it is. No JAX."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from repro.commands import options
from repro.errors import EXIT_BUG, EXIT_INTERRUPTED, EXIT_USER_ERROR
from repro.evaluation.tasks import SETS, EvalSpec
from repro.runs.leases import LEASE_S
from repro.spec.experiment import PlannedRun
from repro.words import counted

if TYPE_CHECKING:
    from repro.runs.sweep import Crew, Outcome
    from repro.spec.config import RunConfig


def add_run(parser: argparse.ArgumentParser) -> None:
    """Options of `run`, beside those that say which runs."""
    text = "runs side by side (default: one for each set of devices that a run needs; of cores one a core)"
    parser.add_argument("--workers", type=options.count, help=text)
    parser.add_argument("--eval", choices=sorted(SETS), help="what will be evaluated after it: for the estimate")
    parser.add_argument("--retry-failed", action="store_true", help="try again what failed before")
    text = f"without a sign of another worker, seconds until its run is taken over (default {LEASE_S:g})"
    parser.add_argument("--takeover-after", type=options.seconds, default=LEASE_S, metavar="SECONDS", help=text)


def add_status(parser: argparse.ArgumentParser) -> None:
    """Options of `status`."""
    parser.add_argument("experiment", nargs="?", help="a module of experiments/, or all (default: what is in the root)")
    options.add_paper(parser)
    options.add_scale(parser)
    options.add_seeds(parser)
    options.add_root(parser)
    parser.add_argument("--json", action="store_true", help="for scripts")
    parser.add_argument("--watch", action="store_true", help="on the screen, until it is interrupted")


def run(args: argparse.Namespace) -> int:
    """Train what is missing of an experiment; 1 when a program failed, 2 when a run can't be done, 42 when stopped."""
    from repro.runs.sweep import Outcome, failed_before, pending_runs, unusable
    from repro.spec.experiment import expand

    experiments = options.chosen(args)
    if not experiments:
        return _nothing(args)
    if not any(experiment.scored for experiment in experiments):
        options.refuse(args, ("eval",), f"nothing of {args.experiment} is scored")
    # One seed first: every item has its first results before any has its second.
    planned = [run for experiment in experiments for run in expand(experiment, args.scale, args.seeds)]
    planned.sort(key=lambda run: run.config.seed)
    damaged = unusable(planned, args.root)
    for reason in damaged.values():
        print(f"repro: {reason}", file=sys.stderr)
    runs = pending_runs(planned, args.root)
    before = Outcome() if args.retry_failed else failed_before(runs, args.root)
    failures = {**before.failed, **before.crashed}
    for run_id, reason in failures.items():
        print(f"repro: {run_id} failed before: {reason} (--retry-failed tries it again)", file=sys.stderr)
    left = tuple(run for run in runs if run.run_id not in failures)
    return _run(args, left, bool(before.crashed), bool(failures or damaged))


def _nothing(args: argparse.Namespace) -> int:
    """A paper without runs: its root is made all the same, for the commands that come after."""
    from experiments.papers import paper

    print(f"{paper(args.paper).short} has nothing to train: `build` shows what is calculated.", file=sys.stderr)
    if isinstance(args.root, Path):
        args.root.mkdir(parents=True, exist_ok=True)
    return 0


def _run(args: argparse.Namespace, runs: tuple[PlannedRun, ...], crashed: bool, failed: bool) -> int:
    crew = _crew(args, training=bool(runs))
    if runs:
        outcome = _sweep(args, crew, runs)
        if outcome.interrupted:
            print("repro: stopped, everything reached is saved; run the same command to go on.", file=sys.stderr)
            return EXIT_INTERRUPTED
        crashed, failed = crashed or bool(outcome.crashed), failed or bool(outcome.failed)
    return EXIT_BUG if crashed else EXIT_USER_ERROR if failed else 0


def _crew(args: argparse.Namespace, *, training: bool) -> "Crew":
    """Who will work; where there is nothing to train no device is asked for."""
    from repro.machines.hardware import cpu, find
    from repro.runs.sweep import Crew

    hardware = find() if training else cpu()
    workers = hardware.chips if args.workers is None else args.workers
    return Crew(args.root, args.cache, workers, args.takeover_after, args.retry_failed, hardware)


def _sweep(args: argparse.Namespace, crew: "Crew", runs: tuple[PlannedRun, ...]) -> "Outcome":
    from repro.corpus.prepare import prepared
    from repro.machines.seats import parts
    from repro.runs.chips import holding
    from repro.runs.sweep import corpora, sweep

    divided = parts(runs, crew.hardware, crew.workers)  # what can't fit is refused
    with holding(crew.hardware, [seat for part in divided for seat in part.seats]):
        for corpus, vocab in sorted(corpora(runs)):
            prepared(corpus, vocab, args.cache)
        _announce(args, crew, runs, max(len(part.seats) for part in divided))
        return sweep(runs, crew, title=f"{args.experiment} at scale {args.scale}")


def _announce(args: argparse.Namespace, crew: "Crew", runs: tuple[PlannedRun, ...], workers: int) -> None:
    """How many runs, on what, and how long."""
    from repro.results.collected import timed_records
    from repro.results.estimate import UNTIMED, duration_sentence, scoring_sentence

    timed = timed_records(args.scale)
    long = duration_sentence(runs, timed, workers) if crew.hardware.is_cpu else UNTIMED
    beside = f", {workers} side by side" if workers > 1 else ""
    print(f"{counted(len(runs), 'run')} to train on {crew.hardware.words}{beside}: {long}.", file=sys.stderr)
    if crew.hardware.note:
        print(crew.hardware.note, file=sys.stderr)
    if crew.hardware.is_cpu and (asked := _unscored(args)):
        print(f"After it, `evaluate`: {scoring_sentence(asked, timed, crew.workers)}.", file=sys.stderr)


def _unscored(args: argparse.Namespace) -> "list[tuple[RunConfig, EvalSpec]]":
    """What `evaluate` will have to do when all is trained, each evaluation once."""
    from repro.evaluation.tasks import choose, read_result
    from repro.runs.folder import RunFolder
    from repro.spec.experiment import expand

    unscored = {}
    for run in (r for e in options.chosen(args) if e.scored for r in expand(e, args.scale, args.seeds)):
        spec, steps = choose(run.config, args.eval, parameters=run.parameters), run.config.steps
        if read_result(RunFolder(args.root, run.run_id), spec, steps) is None:
            unscored[run.run_id, spec.id(steps)] = run.config, spec
    return list(unscored.values())


def status(args: argparse.Namespace) -> int:
    """Show how far the runs of an experiment are, or all runs of a root."""
    from repro.runs import status as progress
    from repro.runs.folder import existing, runs_root
    from repro.spec.experiment import expand

    runs = None
    runs_root(args.root)
    if args.watch:
        options.refuse(args, ("json",), "--watch shows a screen")
    if not args.experiment:
        options.refuse(args, ("paper", "scale", "seeds"), "they say which runs an experiment has")
    if args.experiment:
        runs = [run for e in options.chosen(args) for run in expand(e, args.scale, args.seeds)]
    if runs is None:
        existing(args.root)
    if args.watch:
        progress.watch_runs(runs, args.root)
    else:
        show = progress.status_json if args.json else progress.status_text
        print(show(runs, args.root, progress.clock_of(args.root)))
        if runs is not None and not args.json:
            _tell_collected(args, runs)
    return 0


def _tell_collected(args: argparse.Namespace, runs: list[PlannedRun]) -> None:
    """Where the results are of runs without a folder: those of data/results, if it has some."""
    from repro.results.collected import records

    there = {record["run_id"] for record in records(args.scale)}
    if count := sum(run_id in there and not (args.root / run_id).exists() for run_id in {run.run_id for run in runs}):
        print(
            f"{counted(count, 'run')} without a folder here: the results are in data/results, and "
            f"`python -m repro build {args.experiment} --scale {args.scale}` shows them.",
            file=sys.stderr,
        )
