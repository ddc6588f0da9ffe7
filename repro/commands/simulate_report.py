"""The command line's questions to `repro.network.forecast`, and its answers as text or JSON."""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from repro.commands import options
from repro.errors import UserError
from repro.network.forecast import Forecast, Question, Solution, forecast, solve
from repro.network.methods import BASELINE_BITS, Network, method

PLOT_SUFFIXES = (".png", ".svg", ".pdf")


def answer(args: argparse.Namespace) -> str:
    """Forecast, and solution if there is a target, as text or JSON; draws a plot where one is asked for."""
    question = ask(args)
    if args.plot is not None:
        _check_plot(args.plot)
    answers = forecast(question)
    solution = None if args.target is None else solve(question, args.target)
    if args.plot is not None:
        from analysis.figures.simulated import plot_forecast  # matplotlib: only where a plot is asked for

        plot_forecast(question, answers, args.plot)
    return _as_json(question, answers, solution) if args.json else _as_text(question, answers, solution)


def ask(args: argparse.Namespace) -> Question:
    """The question that the options of `simulate` put; UserError for what is missing or makes no sense."""
    missing = [f"--{name}" for name in ("params", "layers", "step-time", "bandwidth") if _value(args, name) is None]
    if missing:
        raise UserError(f"{', '.join(missing)} missing: simulate needs a model, its step time and a bandwidth.")
    how = method(args.method)
    if how.sends == "fragments":
        how = replace(how, pattern=args.pattern)
    else:
        options.refuse(args, ("pattern", "fragment_layers"), f"{how.key} sends the whole model at once")
    if how.sends == "gradients":
        options.refuse(args, ("every",), f"{how.key} sends at every step")
    if args.tau is None and how.delay >= args.every:
        raise UserError(
            f"--every {args.every} leaves no room for the method's τ = {how.delay}: give more steps than τ, or --tau 0."
        )
    usual = "all-gather" if how.bits < BASELINE_BITS else "ring"
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


def _check_plot(path: Path) -> None:
    if path.suffix not in PLOT_SUFFIXES:
        raise UserError(f"--plot {path}: a plot is one of {', '.join(PLOT_SUFFIXES)}.")
    if not path.parent.is_dir():
        raise UserError(f"--plot {path}: there is no folder {path.parent}; make it first.")


def _value(args: argparse.Namespace, name: str) -> Any:
    return getattr(args, name.replace("-", "_"))


def _as_json(question: Question, answer: Forecast, solution: Solution | None) -> str:
    # Its bits and τ may be the caller's, which the question holds: of the method only its name is told.
    content = {"question": asdict(question) | {"method": question.method.key}, "forecast": asdict(answer)}
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
        f"  tokens a second       {answer.tokens_per_second:9.4g}"
        f"   lost to the link {answer.tokens_per_second_lost:.4g}",
        f"  link use              {answer.mean_link_use:9.1%}   in the busiest step {answer.peak_link_use:.1%}",
        f"  mean rate             {answer.mean_link_gbit_per_s:9.4g} Gbit/s",
        f"  largest send          {answer.largest_send_gbit:9.4g} Gbit",
    ]
    if answer.hours is not None:
        lines.append(f"  hours                 {answer.hours:9.4g}   without a link {answer.hours_without_link:.4g}")
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
