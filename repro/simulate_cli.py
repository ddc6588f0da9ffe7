"""`python -m repro simulate`: what a link between sites costs, for any model, method and link.

python -m repro simulate --params 70e9 --layers 80 --step-time 6.5 --bandwidth 5 --method streaming-fp4 --tau 2
python -m repro simulate ... --target 0.95        the least bandwidth, the least tau, the largest payload
python -m repro simulate --table4 [--finite]      Table 4 beside the paper's
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from analysis.simulated import build_simulated_figures, build_table4, table4_text
from repro.errors import UserError
from repro.forecast import Forecast, Question, Solution, forecast, solve
from repro.payload import FORMATS
from repro.scenario import METHODS, Network, method

__all__ = ["add_arguments", "build_simulated_figures", "build_table4", "main"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `simulate`."""
    add = parser.add_argument
    add("--params", type=float, help="parameters of the model, e.g. 70e9")
    add("--layers", type=int, help="transformer layers")
    add(
        "--step-time",
        type=float,
        nargs="+",
        help="seconds of pure compute a step; one, or one for each replica",
    )
    add("--bandwidth", type=float, help="Gbit/s between the sites")
    add(
        "--method",
        default="streaming-fp4",
        help=f"one of {', '.join(m.key for m in METHODS)} (default: %(default)s)",
    )
    add(
        "--tau",
        type=int,
        nargs="+",
        help="inner steps that overlap; one, or one for each replica (default: the method's)",
    )
    add(
        "--every",
        type=int,
        default=100,
        help="H, steps between two syncs of a fragment (default: %(default)s)",
    )
    add("--fragment-layers", type=int, default=3, help="layers a fragment (default: %(default)s)")
    add("--pattern", choices=("strided", "sequential"), default="strided", help="default: %(default)s")
    add("--bits", type=float, help="bits a parameter sent (default: the method's, 16 or 4)")
    add(
        "--embedding-params",
        type=float,
        default=0.0,
        help="parameters of the embedding, its own fragment (default: none)",
    )
    add("--replicas", type=int, default=2, help="M (default: %(default)s)")
    add(
        "--collective",
        choices=("none", "ring", "all-gather"),
        help="what moves: the payload once, a ring all-reduce, an all-gather of packed codes (default: all-gather for "
        "streaming-fp4, ring otherwise; none with --paper)",
    )
    add("--latency", type=float, default=0.0, help="seconds of link latency (default: %(default)s)")
    add("--batch-tokens", type=float, default=2**20, help="tokens a step over all replicas (default: 2^20)")
    add("--tokens", type=float, help="token budget, for hours")
    add("--target", type=float, help="a compute utilisation to solve for, e.g. 0.95")
    add("--paper", action="store_true", help="the schedule behind Table 4 instead of the trainer's")
    add("--json", action="store_true", help="print JSON")
    add("--plot", type=Path, metavar="FILE", help="also draw utilisation over bandwidth (.png, .svg or .pdf)")
    add("--table4", action="store_true", help="print Table 4 beside the paper's")
    add("--finite", action="store_true", help="with --table4: a finite run, fitted to the published cells")


def main(args: argparse.Namespace) -> int:
    """Run `simulate`; UserError for what can't be simulated."""
    if args.finite and not args.table4:
        raise UserError("--finite belongs to --table4: add it, or drop --finite.")
    if args.table4:
        print(table4_text(finite=args.finite))
        return 0
    question = _question(args)
    answer = forecast(question)
    solution = None if args.target is None else solve(question, args.target)
    if args.plot is not None:
        plot_forecast(question, answer, args.plot)
    print(_as_json(question, answer, solution) if args.json else _as_text(question, answer, solution))
    return 0


def _question(args: argparse.Namespace) -> Question:
    missing = [
        f"--{name}" for name in ("params", "layers", "step-time", "bandwidth") if _value(args, name) is None
    ]
    if missing:
        raise UserError(
            f"{', '.join(missing)} missing: simulate needs a model, its step time and a bandwidth."
        )
    how = method(args.method)
    if how.sends == "fragments":
        how = type(how)(how.key, how.label, how.sends, how.bits, how.delay, args.pattern)
    usual = "all-gather" if how.bits < FORMATS["bfloat16"].bits else "ring"
    times = tuple(args.step_time)
    return Question(
        network=Network(f"{args.params:.4g} parameters", args.params, args.layers, times[0]),
        method=how,
        gbit_per_s=args.bandwidth,
        step_times_s=times,
        delays=tuple(args.tau) if args.tau is not None else (how.delay,),
        bits=how.bits if args.bits is None else args.bits,
        every=args.every,
        fragment_layers=args.fragment_layers,
        embedding_params=args.embedding_params,
        replicas=args.replicas,
        collective=args.collective or ("none" if args.paper else usual),
        latency_s=args.latency,
        batch_tokens=args.batch_tokens,
        tokens=args.tokens,
        paper_schedule=args.paper,
    )


def _value(args: argparse.Namespace, name: str) -> object:
    return getattr(args, name.replace("-", "_"))


def _as_json(question: Question, answer: Forecast, solution: Solution | None) -> str:
    content = {"question": asdict(question), "forecast": asdict(answer)}
    if solution is not None:
        content["solution"] = asdict(solution)
    return json.dumps(content, indent=2)


def _as_text(question: Question, answer: Forecast, solution: Solution | None) -> str:
    tau = ", ".join(map(str, question.delays))
    where = "the paper's schedule" if question.paper_schedule else "the trainer's schedule"
    lines = [
        f"{question.method.label}: {question.network.name}, {question.network.layers} layers, "
        f"{question.gbit_per_s:g} Gbit/s, τ = {tau}, {question.bits:g} bits, {where}, "
        f"M = {question.replicas}, collective {question.collective}",
        f"  compute utilisation   {answer.compute_utilisation:9.4f}",
        f"  time a step           {answer.step_seconds:9.4g} s",
        f"  tokens a second       {answer.tokens_per_second:9.4g}   lost to the link {answer.tokens_per_second_lost:.4g}",
        f"  link use              {answer.mean_link_use:9.1%}   in the busiest step {answer.peak_link_use:.1%}",
        f"  mean rate             {answer.mean_link_gbit_per_s:9.4g} Gbit/s",
        f"  largest send          {answer.largest_send_gbit:9.4g} Gbit",
    ]
    if answer.hours is not None:
        lines.append(
            f"  hours                 {answer.hours:9.4g}   without a link {answer.hours_without_link:.4g}"
        )
    if solution is not None:
        lines += _solution_lines(question, solution)
    return "\n".join(lines)


def _solution_lines(question: Question, solution: Solution) -> list[str]:
    def show(value: float | None, unit: str, otherwise: str) -> str:
        return otherwise if value is None else f"{value:.4g} {unit}".rstrip()

    return [
        f"to reach {solution.target:g}, one change at a time:",
        f"  least bandwidth       {show(solution.least_gbit_per_s, 'Gbit/s', 'no bandwidth reaches it')}",
        f"  least τ               {show(solution.least_tau, '', 'no τ below the period reaches it')}",
        f"  largest payload       {show(solution.largest_bits, 'bits a parameter', 'no payload reaches it')}"
        f" (at {question.gbit_per_s:g} Gbit/s)",
    ]
