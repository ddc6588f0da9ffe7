"""The command line. Every command imports what it needs when it runs, so that help and plans come at once."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from repro import disk
from repro.commands import options
from repro.corpora import CORPORA, PUBLISHED, corpus_named, hub_of
from repro.errors import EXIT_INTERRUPTED, EXIT_USER_ERROR, UserError
from repro.evaluation.tasks import SETS
from repro.stopping import interruptible
from repro.words import show_what_can_be

GO_ON = "interrupted; run the same command to go on."
_TEXT_OPTIONS = (
    "source",
    "tokenizer",
    "eos_piece",
    "name",
    "revision",
    "workers",
    "limit_files",
    "limit_documents",
    "validation_per_mille",
    "seed",
    "skip_broken",
)


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; 2 with one sentence on bad input, 42 when interrupted with everything saved."""
    show_what_can_be()
    try:
        with interruptible(GO_ON):
            args = _parser().parse_args(words)
            return args.command(args)
    except UserError as error:
        print(f"repro: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        if error.errno not in disk.OF_FILES:
            raise
        where = error.filename or "the disk"
        print(f"repro: {where} can't be written or read ({error.strerror}): {disk.advice(error)}.", file=sys.stderr)
        return EXIT_USER_ERROR
    except KeyboardInterrupt:
        print(f"repro: {GO_ON}", file=sys.stderr)
        return EXIT_INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = options.Parser(
        prog="python -m repro", description="Reproduction suite for Streaming DiLoCo (arXiv 2501.18512)."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add(
        commands,
        "plan",
        _plan,
        "the runs of an experiment: ids, sizes, tokens, FLOPs, bytes",
        _plan_arguments,
    )
    _add(commands, "prepare", _prepare, "make the token shards of a corpus", _prepare_arguments)
    _add_sweep(commands)
    _add_train(commands)
    _add_launch(commands)
    _add_extend(commands)
    _add(commands, "build", _build, "tables and figures from finished runs", _build_arguments)
    _add(commands, "report", _report, "one page: each statement, table and figure", _report_arguments)
    _add(commands, "collect", _collect, "keep finished results in data/results, to be committed", _collect_arguments)
    _add_check(commands)
    _add(commands, "diff", _diff, "why two runs have different ids", _diff_arguments)
    _add_simulate(commands)
    _add_evaluation(commands)
    _add_compile(commands)
    return parser


def _add(
    commands: "argparse._SubParsersAction",
    name: str,
    command: Callable[[argparse.Namespace], int],
    text: str,
    arguments: Callable[[argparse.ArgumentParser], None],
) -> None:
    # A beginning is no option: --seed 3 would mean three seeds.
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    arguments(parser)
    options.remember(parser)
    parser.set_defaults(command=command)


def _add_sweep(commands: "argparse._SubParsersAction") -> None:
    from repro.commands import run

    def run_arguments(parser: argparse.ArgumentParser) -> None:
        _experiment_arguments(parser)
        _places(parser)
        run.add_run(parser)

    _add(commands, "run", run.run, "train what is missing of an experiment", run_arguments)
    _add(commands, "status", run.status, "which runs are there, and how far", run.add_status)


def _add_train(commands: "argparse._SubParsersAction") -> None:
    from repro.commands import train

    text = "train one run from its config.json, in one process or several"
    _add(commands, "train", train.main, text, train.add_arguments)


def _add_launch(commands: "argparse._SubParsersAction") -> None:
    from repro.commands import launch

    text = "the runs of an experiment, on this machine or as jobs on TPU pods or a Slurm cluster"
    _add(commands, "launch", launch.main, text, launch.add_arguments)


def _add_extend(commands: "argparse._SubParsersAction") -> None:
    from repro.commands import extend

    _add(commands, "extend", extend.main, "more steps for a finished run, as a new run", extend.add_arguments)


def _add_check(commands: "argparse._SubParsersAction") -> None:
    from repro.commands import check

    text = "hold results of a spec, ours or someone else's, against the bands of the collected seeds"
    _add(commands, "check", check.main, text, check.add_arguments)


def _add_simulate(commands: "argparse._SubParsersAction") -> None:
    from repro.commands import simulate

    text = "compute utilisation of a method on a link (§3.1)"
    _add(commands, "simulate", simulate.main, text, simulate.add_arguments)


def _add_evaluation(commands: "argparse._SubParsersAction") -> None:
    from repro.commands import evaluate as cli
    from repro.commands import export

    _add(commands, "evaluate", cli.evaluate, "score runs on HellaSwag, PIQA and ARC-Easy", cli.add_evaluate)
    text = "write a run's parameters for others, or its curves for TensorBoard or Weights & Biases"
    _add(commands, "export", export.main, text, export.add_arguments)
    _add(commands, "lm-eval", cli.lm_eval, "lm-eval's own command line, with a run as its model", cli.add_lm_eval)


def _add_compile(commands: "argparse._SubParsersAction") -> None:
    from repro.commands import compile as compile_cli

    text = "compile runs for TPU slices, without a TPU: memory, bytes between slices, overlap"
    _add(commands, "compile", compile_cli.main, text, compile_cli.add_arguments)


def _experiment_arguments(parser: argparse.ArgumentParser, seeds: str = "default 1") -> None:
    parser.add_argument("experiment", help="such as table5 or scaling_laws_table4, by its file in experiments/; or all")
    options.add_paper(parser)
    options.add_scale(parser)
    options.add_seeds(parser, default=seeds)


def _plan_arguments(parser: argparse.ArgumentParser) -> None:
    _experiment_arguments(parser)
    parser.add_argument("--json", action="store_true", help="for scripts")


def _places(parser: argparse.ArgumentParser) -> None:
    options.add_root(parser)
    options.add_cache(parser)


def _collect_arguments(parser: argparse.ArgumentParser) -> None:
    _experiment_arguments(parser)
    options.add_root(parser)
    parser.add_argument("--eval", choices=sorted(SETS), help="whose scores (default: the scale's set)")
    parser.add_argument("--to", type=disk.local, help="another folder than data/results")


def _build_arguments(parser: argparse.ArgumentParser) -> None:
    _experiment_arguments(parser, "default 1; of claims as many as there are")
    parser.set_defaults(seeds=None)
    options.add_root(parser)
    _page_arguments(parser)


def _page_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=disk.local, default=Path("build"), help="where tables and figures go")
    parser.add_argument("--eval", choices=sorted(SETS), help="which evaluation to show (default: the scale's)")
    parser.add_argument("--own", action="store_true", help="only runs under --root, none of data/results")


def _report_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_scale(parser, "of the trained items: ")
    parser.add_argument("--seeds", type=options.seeds, help="seeds 0 .. N-1 (default: as many as there are)")
    options.add_paper(parser)
    options.add_root(parser)
    _page_arguments(parser)


def _diff_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs=2, type=options.run_id, help="two run ids, or their beginnings")
    options.add_root(parser)


def _prepare_arguments(parser: argparse.ArgumentParser) -> None:
    published = " and ".join(PUBLISHED)
    names = "; ".join(f"{', '.join(hub_of(name).names)} of {name}" for name in PUBLISHED)
    parser.add_argument("corpus", help=", ".join(CORPORA))
    parser.add_argument("--vocab", type=options.count, help="vocabulary (default: the corpus's own)")
    options.add_cache(parser, "where token folders lie")
    text = parser.add_argument_group(f"{published} only (docs/data.md)")
    text.add_argument("--source", help="hub (default), or a folder with the files as they lie on the hub")
    text.add_argument("--tokenizer", help="train (default), or a SentencePiece model file")
    text.add_argument("--eos", dest="eos_piece", help="the piece that ends a document, where the model has no EOS")
    text.add_argument("--name", help=f"on the hub, the first by default: {names}")
    text.add_argument("--revision", help="commit on the hub (default: pinned), or that which --source PATH is of")
    text.add_argument("--workers", type=options.count, help="worker processes (default: one a core)")
    text.add_argument("--limit-files", type=options.count, help="read this many training files, evenly spread")
    text.add_argument("--limit-documents", type=options.count, help="read this many documents of each file")
    text.add_argument(
        "--validation-per-mille",
        type=options.per_mille,
        help="held out of a corpus without a validation split, in 1000 documents (default 1)",
    )
    text.add_argument(
        "--seed",
        type=options.seed,
        help="of the documents held out and the tokenizer's sample (default 0)",
    )
    text.add_argument("--skip-broken", action="store_true", default=None, help="leave out bad lines, and count them")


def _plan(args: argparse.Namespace) -> int:
    from analysis.paper.costs import costs_json, costs_text
    from analysis.paper.plan import plan_json, plan_text
    from experiments.registry import load

    if args.experiment == "all":
        print((costs_json if args.json else costs_text)(args.scale, args.seeds, args.paper))
        return 0
    options.refuse(args, ("paper",), f"{args.experiment} is of one paper, whichever is named")
    show = plan_json if args.json else plan_text
    print(show(load(args.experiment), args.scale, args.seeds))
    return 0


def _prepare(args: argparse.Namespace) -> int:
    from repro.corpus.prepare import prepared

    if corpus_named(args.corpus).hub:
        print(_prepared_text(args))
        return 0
    options.refuse(args, _TEXT_OPTIONS, f"only {' and '.join(PUBLISHED)} take this, not {args.corpus}")
    print(prepared(args.corpus, args.vocab, args.cache))
    return 0


def _prepared_text(args: argparse.Namespace) -> Path:
    from repro.cores import cores
    from repro.corpus.preparing import progress_bar
    from repro.corpus.web.build import TextRequest, describe_folder, prepare_text

    if args.tokenizer in (None, "train"):
        options.refuse(args, ("eos_piece",), "a tokenizer that is trained ends its documents itself")
    elif not hub_of(args.corpus).held_out_per_mille:
        options.refuse(args, ("seed",), f"{args.corpus} has a split of its own, and no tokenizer is trained")
    given = {name: getattr(args, name) for name in _TEXT_OPTIONS if getattr(args, name) is not None}
    workers = given.pop("workers") if "workers" in given else len(cores())
    with progress_bar() as progress:
        folder = prepare_text(TextRequest(args.corpus, vocab=args.vocab, **given), args.cache, workers, progress)
    print(describe_folder(folder), file=sys.stderr)
    return folder


def _build(args: argparse.Namespace) -> int:
    from analysis.pages.report import build_item, unused
    from repro.runs.folder import runs_root

    options.refuse(args, unused(args.experiment), f"{args.experiment} is made without")
    of = args.paper
    print(
        build_item(
            args.experiment, args.scale, args.seeds, runs_root(args.root), args.out, args.eval, own=args.own, of=of
        )
    )
    return 0


def _report(args: argparse.Namespace) -> int:
    from analysis.pages.page import build_page
    from repro.runs.folder import runs_root

    print(build_page(args.scale, args.seeds, runs_root(args.root), args.out, args.eval, own=args.own, of=args.paper))
    return 0


def _collect(args: argparse.Namespace) -> int:
    from repro.results.collected import archive_path, save
    from repro.results.read import collect
    from repro.runs.folder import existing
    from repro.spec.experiment import expand

    if args.to is not None and (args.to.suffix or args.to.is_file()):
        raise UserError(f"--to {args.to}: a folder is needed, in which {args.scale}.json will stand.")
    existing(args.root)
    path = archive_path(args.scale, args.to) if args.to else archive_path(args.scale)
    refused = 0
    for experiment in options.chosen(args):
        runs = expand(experiment, args.scale, args.seeds)
        collected = save(collect(runs, args.root, args.eval, syncs=experiment.syncs), path)
        print(f"{path}, {experiment.name}: {collected.sentence}")
        refused += len(collected.refused)
    return EXIT_USER_ERROR if refused else 0


def _diff(args: argparse.Namespace) -> int:
    from repro.runs.folder import find_run
    from repro.spec.identity import differences

    differing = differences(*(find_run(args.root, name).config() for name in args.run))
    if not differing:
        print("the same run")
    for name, left, right in differing:
        print(f"{name}: {left} -> {right}")
    return 0
