"""`python -m repro extend`: more steps for a finished run, as a run of its own."""

import argparse
import sys

from repro.commands import options
from repro.runs.extend import extend


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("run", type=options.run_id, help="the id of a finished run, or its beginning")
    parser.add_argument("--steps", type=options.step, required=True, help="how many more")
    options.add_root(parser)
    options.add_cache(parser)
    text = "make the new run's folder and print its config's path, for `python -m repro train` in several processes"
    parser.add_argument("--prepare-only", action="store_true", help=text)


def main(args: argparse.Namespace) -> int:
    """Make the folder of the longer run and train it in this process; exits as `train` does."""
    from repro.commands import train

    folder = extend(args.root, args.run, args.steps, args.cache)
    path = folder.path / "config.json"
    if args.prepare_only:
        print(path)
        return 0
    print(f"{folder.run_id} goes on from {args.run}", file=sys.stderr)
    parser = options.Parser()
    train.add_arguments(parser)
    options.remember(parser)
    return train.main(parser.parse_args([str(path), "--root", str(args.root), "--cache", str(args.cache)]))
