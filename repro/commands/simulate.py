"""`python -m repro simulate`: what a link between sites costs, for any model, method and link.

Three forms: a model on a link (`--params 70e9 --layers 80 --step-time 6.5 --bandwidth 5`), the same with
`--target 0.95` for the least bandwidth, the least τ and the largest payload, and `--table4 [--finite]`. As
the parser of every command is built at once, nothing heavy is imported at the top.
"""

import argparse
from typing import Annotated

from repro.commands import options
from repro.disk import local
from repro.errors import UserError
from repro.network import methods
from repro.network.methods import METHODS
from repro.values import number, option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `simulate`."""
    add = parser.add_argument
    add("--params", type=option(methods.Amount), help="parameters of the model, e.g. 70e9")
    add("--layers", type=option(methods.Layers), help="transformer layers")
    add(
        "--step-time",
        type=options.seconds,
        nargs="+",
        help="seconds of pure compute a step; one, or one for each replica",
    )
    add("--bandwidth", type=option(methods.Rate), help="Gbit/s between the sites")
    add(
        "--method",
        default="streaming-fp4",
        help=f"one of {', '.join(m.key for m in METHODS)} (default: %(default)s)",
    )
    add(
        "--tau",
        type=option(methods.Delay),
        nargs="+",
        help="inner steps that overlap; one, or one for each replica (default: the method's)",
    )
    add(
        "--every",
        type=option(methods.Period),
        default=100,
        help="H, steps between two syncs of a fragment (default: %(default)s)",
    )
    add("--fragment-layers", type=option(methods.Layers), default=3, help="layers a fragment (default: %(default)s)")
    add("--pattern", choices=("strided", "sequential"), default="strided", help="default: %(default)s")
    add("--bits", type=option(methods.Bits), help="bits a parameter sent (default: the method's, 16 or 4)")
    add(
        "--embedding-params",
        type=option(Annotated[float, number(least=0, most=1e18)]),
        default=0.0,
        help="parameters of the embedding, its own fragment (default: none)",
    )
    add("--replicas", type=option(methods.Replicas), default=2, help="M (default: %(default)s)")
    add(
        "--collective",
        choices=("none", "ring", "all-gather"),
        help="what moves: the payload once, a ring all-reduce, an all-gather of packed codes (default: "
        "all-gather for streaming-fp4, ring otherwise; none with --paper)",
    )
    add("--latency", type=option(methods.Latency), default=0.0, help="seconds of link latency (default: %(default)s)")
    add(
        "--batch-tokens",
        type=option(methods.Amount),
        default=2**20,
        help="tokens a step over all replicas (default: 2^20)",
    )
    add("--tokens", type=option(methods.Amount), help="token budget, for hours")
    add("--target", type=option(methods.Share), help="a compute utilisation to solve for, e.g. 0.95")
    add("--paper", action="store_true", help="the schedule behind Table 4 instead of the trainer's")
    add("--json", action="store_true", help="print JSON")
    add("--plot", type=local, metavar="FILE", help="also draw utilisation over bandwidth (.png, .svg or .pdf)")
    add("--table4", action="store_true", help="print Table 4 beside the paper's")
    add("--finite", action="store_true", help="with --table4: a finite run, fitted to the published cells")


def main(args: argparse.Namespace) -> int:
    """Run `simulate`; UserError for what can't be simulated."""
    if args.finite and not args.table4:
        raise UserError("--finite belongs to --table4: add it, or drop --finite.")
    if args.table4:
        others = [name for name in args.usual if name not in ("table4", "finite", "json", "help")]
        options.refuse(args, others, "--table4 is the paper's table, whose cells are given")
        from analysis.paper.simulated import table4_json, table4_text

        print((table4_json if args.json else table4_text)(finite=args.finite))
        return 0
    from repro.commands.simulate_report import answer

    print(answer(args))
    return 0
