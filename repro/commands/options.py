"""What the options of all commands share: their ranges, one sentence for a wrong one, and none without an effect."""

import argparse
import difflib
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

from experiments.papers import DEFAULT, paper, papers
from experiments.registry import trained
from repro.disk import local
from repro.errors import EXIT_USER_ERROR, UserError
from repro.files import folder_at
from repro.runs.folder import RUNS
from repro.spec.config import MOST_STEPS, SCALES, Seed
from repro.spec.experiment import MOST_SEEDS, Experiment
from repro.values import Address, Seconds, one_of, option, text, whole

scale = option(Annotated[str, one_of(*SCALES)])
count = option(Annotated[int, whole(1)])
step = option(Annotated[int, whole(1, MOST_STEPS)])
seed = option(Seed)
seeds = option(Annotated[int, whole(1, MOST_SEEDS)])
per_mille = option(Annotated[int, whole(1, 999)])
process = option(Annotated[int, whole()])
devices = option(Annotated[int, whole(1, 4096)])
seconds = option(Seconds)
address = option(Address)
T = TypeVar("T")

run_id = option(Annotated[str, text("[a-z0-9-]+", "an id or its beginning, of small letters, digits and dashes")])


def add_root(parser: argparse.ArgumentParser) -> None:
    """Where run folders lie."""
    parser.add_argument("--root", type=folder_at, default=RUNS, help="where run folders lie (default runs)")


def add_cache(parser: argparse.ArgumentParser, holds: str = "tokens and compiled programs") -> None:
    """Where what can be made again lies."""
    parser.add_argument("--cache", type=local, default=Path("cache"), help=f"{holds} (default cache)")


def add_scale(parser: argparse._ActionsContainer, of: str = "", default: str = "mini") -> None:
    """--scale of an experiment, or `of` which others."""
    *others, last = (f"{name} (default)" if name == default else name for name in SCALES)
    parser.add_argument("--scale", type=scale, default=default, help=f"{of}{', '.join(others)} or {last}")


def add_paper(parser: argparse.ArgumentParser) -> None:
    """--paper: which paper `all` is."""
    parser.add_argument("--paper", type=lambda name: paper(name).name, default=DEFAULT, help=f"of all: {_papers()}")


def _papers() -> str:
    """The names there are."""
    return ", ".join(f"{each.name} (default)" if each.name == DEFAULT else each.name for each in papers())


def chosen(args: argparse.Namespace) -> tuple[Experiment, ...]:
    """The experiment that is named, or all that a paper trains; UserError for what trains nothing."""
    if args.experiment != "all":
        refuse(args, ("paper",), f"{args.experiment} is of one paper, whichever is named")
    return trained(args.experiment, args.paper)


def add_run_choice(parser: argparse._ActionsContainer) -> None:
    """Some of an experiment's runs."""
    text = "only runs whose id begins so (repeatable)"
    parser.add_argument("--run", action="append", type=run_id, metavar="ID", help=text)


def add_seeds(parser: argparse._ActionsContainer, of: str = "", default: str = "default 1") -> None:
    """How many; seed 0 alone by default."""
    parser.add_argument("--seeds", type=seeds, default=1, help=f"{of}seeds 0 .. N-1 ({default})")


class Parser(argparse.ArgumentParser):
    """argparse whose errors are sentences as any other, each of the command that was called."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does; a command refuses what it doesn't know itself, where argparse leaves that to its parent."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown[0])}")
        return parsed, unknown

    def _meant(self, word: str) -> str:
        near = difflib.get_close_matches(word.partition("=")[0], self._option_string_actions, n=1, cutoff=0.8)
        return f" (is {near[0]} meant?)" if near else ""

    def error(self, message: str) -> NoReturn:
        """UserError for what argparse refuses."""
        raise UserError(f"{message.removeprefix('argument ')}; see `{self.prog} --help`.")


def do_each(items: Iterable[T], act: Callable[[T], object]) -> int:
    """Print what `act` returns for each; 2 where it refused some, which are named and hold up none of the others."""
    code = 0
    for item in items:
        try:
            print(act(item), flush=True)
        except UserError as error:
            print(f"repro: {error}", file=sys.stderr, flush=True)
            code = EXIT_USER_ERROR
    return code


def remember(parser: argparse.ArgumentParser) -> None:
    """Let the arguments say in `usual` how each option is written and what it is when it isn't given: for `refuse`."""
    options = [action for action in parser._actions if action.option_strings]
    usual = {option.dest: (option.option_strings[-1], parser.get_default(option.dest)) for option in options}
    parser.set_defaults(usual=usual)


def refuse(args: argparse.Namespace, names: Sequence[str], reason: str) -> None:
    """UserError for those of the options that have another value than the usual one, as they have no effect."""
    usual = {name: args.usual[name] for name in names}
    words = [word for name, (word, value) in usual.items() if getattr(args, name) != value]
    if words:
        raise UserError(f"{', '.join(words)} without effect: {reason}.")
