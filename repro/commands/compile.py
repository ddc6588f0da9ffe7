"""`python -m repro compile`: runs compiled for TPU slices, on any machine.

As the parser of every command is built at once, nothing heavy is imported at the top.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.commands import options
from repro.diloco.jax_settings import pin
from repro.disk import local
from repro.errors import UserError

if TYPE_CHECKING:
    from repro.machines.placement import Overrides, Placement
    from repro.spec.experiment import PlannedRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `compile`."""
    add = parser.add_argument
    add("experiment", metavar="EXPERIMENT|RUN|all", help="a module of experiments/, a run's id in --root, or all specs")
    add("--topology", help="chips of one slice, such as v5e:4x4 (default: by the rule, docs/compile.md)")
    add("--slices", type=options.count, help="slices, joined by the data-center network (default: one a replica)")
    options.add_paper(parser)
    options.add_scale(parser, default="paper")
    options.add_run_choice(parser)
    add("--missing", action="store_true", help="only runs that neither an earlier call nor data/results holds")
    add(
        "--fsdp",
        type=options.count,
        help="chips that share one copy of the parameters (default: a replica's in a slice)",
    )
    add("--microbatches", type=options.count, help="parts of a batch, one after the other (default: what fits)")
    add("--remat", choices=("none", "dots", "full"), help="what the backward pass recomputes (default: what fits)")
    add("--attention", choices=("xla", "flash"), help="the kernel (default: flash where it takes the model)")
    add("--outer-on-host", action="store_true", help="the outer state in the host's memory (§2.5)")
    add("--no-fence", action="store_true", help="let XLA start transfers when it thinks best (docs/overlap.md)")
    add("--rule", action="store_true", help="print what the rule chooses, and compile nothing")
    add("--json", action="store_true", help="for scripts")
    options.add_root(parser)
    add("--out", type=local, default=Path("build"), help="where the table goes (default build)")
    options.add_cache(parser, "what compiled programs were like, for the next time")


def main(args: argparse.Namespace) -> int:
    """Compile, show, and leave compile-<name>[-<slices>x<topology>].md and .json; exit 1 when a run does not fit.

    With --run what those files say of other runs stays.
    """
    planned = _planned(args)
    runs = _chosen(args, planned)
    if args.missing:
        runs = _missing(args, runs)
    placed = [_placement(args, run) for run in runs]
    if args.rule:
        options.refuse(args, ("cache",) if args.missing else ("cache", "out"), "--rule compiles and writes nothing")
        print(_rule(runs, placed, as_json=args.json))
        return 0
    return _compile(args, _batches(planned), runs, placed)


def _batches(planned: "tuple[PlannedRun, ...]") -> dict[str, int]:
    """Tokens a step, by run."""
    return {run.run_id: run.config.batch * run.config.model.seq_len for run in planned}


def _compile(
    args: argparse.Namespace, planned: dict[str, int], runs: "tuple[PlannedRun, ...]", placed: "list[Placement]"
) -> int:
    pin()
    from analysis import render
    from analysis.pages.compiled import compiled_document, compiled_json, merge_compiled
    from repro.files import read_json, write_bytes, write_json
    from repro.machines.compile import compile_run, topology
    from repro.machines.programs import Programs, versions
    from repro.runs.provenance import commit

    pods = {(p.topology, p.slices): topology(p.topology, p.slices) for p in placed}
    known, results, entries = Programs(args.cache / "compiled"), [], {}
    stem = _stem(args)
    earlier = _known(args) if args.missing else read_json(stem.with_suffix(".json"))
    for run, place in zip(runs, placed, strict=True):
        print(f"compiling {run.run_id} for {place.slices} x {place.topology}", file=sys.stderr, flush=True)
        on = pods[place.topology, place.slices]
        results.append((run, place, compile_run(run.config, place, on, known)))
        new = compiled_json(results, {**commit(), "versions": versions()})
        entries = merge_compiled(earlier, new, list(planned))
        page = compiled_document(f"{args.experiment} at scale {args.scale}, compiled", entries, planned)
        write_json(stem.with_suffix(".json"), entries)
        write_bytes(stem.with_suffix(".md"), render.markdown(page).encode())
    print(json.dumps(entries, indent=1) if args.json else render.terminal_text(page))
    return 0 if all(compiled.fits for _, _, compiled in results) else 1


def _stem(args: argparse.Namespace) -> Path:
    """The path without suffix of the files that a call leaves."""
    where = f"-{args.slices}x{args.topology.replace(':', '-')}" if args.topology else ""
    return args.out / f"compile-{args.experiment}{where}"


def _known(args: argparse.Namespace) -> dict[str, Any]:
    """What an earlier call left, else what is committed."""
    from analysis.pages.compiled import COMPILED
    from repro.files import read_json
    from repro.results.collected import archive_path

    return read_json(_stem(args).with_suffix(".json")) or read_json(archive_path(COMPILED)) or {}


def _missing(args: argparse.Namespace, runs: "tuple[PlannedRun, ...]") -> "tuple[PlannedRun, ...]":
    from analysis.pages.compiled import of_another_batch

    if args.topology is not None:
        raise UserError("--missing goes with the slices of the rule: what is committed was compiled for them.")
    batches = _batches(runs)
    have = {run["run"] for run in _known(args).get("runs", ()) if not of_another_batch(run, batches)}
    left = tuple(run for run in runs if run.run_id not in have)
    if not left:
        raise UserError(f"all {len(runs)} runs of {args.experiment} are compiled: leave --missing out to do it again.")
    return left


def _rule(runs: "tuple[PlannedRun, ...]", placed: "list[Placement]", *, as_json: bool) -> str:
    from dataclasses import asdict

    from analysis.pages.compiled import placement
    from repro.machines.placement import GIB, days, estimate
    from repro.words import aligned

    head = ("run", "slices", "placement", "estimate GiB", "days")
    rows = [
        (
            run.run_id,
            f"{place.slices} x {place.topology}",
            placement(asdict(place.resources)),
            f"{estimate(run.config, place.resources) / GIB:.2f}",
            f"{days(run.config, place.topology, place.slices):.2g}",
        )
        for run, place in zip(runs, placed, strict=True)
    ]
    if as_json:
        return json.dumps([dict(zip(head, row, strict=True)) for row in rows], indent=1)
    return "\n".join(aligned(head, rows, left=3))


def _asked(args: argparse.Namespace) -> "Overrides":
    from repro.machines.placement import Overrides

    return Overrides(
        args.fsdp, args.microbatches, args.remat, args.attention, args.outer_on_host or None, not args.no_fence
    )


def _placement(args: argparse.Namespace, run: "PlannedRun") -> "Placement":
    from repro.machines.placement import place

    if args.topology is None:
        if args.slices is not None or args.fsdp is not None:
            raise UserError("--slices and --fsdp go with a --topology: the rule chooses all three.")
        placed = place(run.config, _asked(args))
    else:
        placed = _on(args, run)
    placed.resources.check(run.config)
    return placed


def _on(args: argparse.Namespace, run: "PlannedRun") -> "Placement":
    """On the slices that are asked for."""
    from repro.machines.placement import Placement, chips_of, place, resources_for

    slices = args.slices if args.slices is not None else place(run.config).slices
    if slices < 1:
        raise UserError(f"slices={slices}: at least one is needed.")
    resources = resources_for(run.config, chips_of(args.topology), slices, args.topology, _asked(args))
    return Placement(args.topology, slices, resources)


def _planned(args: argparse.Namespace) -> "tuple[PlannedRun, ...]":
    """Every run of the experiment, of all specs, or the one run of --root that is named."""
    from experiments.registry import experiment_names
    from repro.files import listing
    from repro.runs.folder import find_run
    from repro.spec.experiment import PlannedRun, expand, unique

    if args.experiment in (*experiment_names(), "all"):
        options.refuse(args, ("root",), "it says where a run lies, and an experiment is named")
    elif any(name.startswith(args.experiment) for name in listing(args.root)):
        options.refuse(args, ("paper", "scale"), "they say which runs an experiment has, and a run is named")
        folder = find_run(args.root, args.experiment)
        config = folder.config()
        return (PlannedRun((folder.run_id,), folder.run_id, config, folder.run_id),)
    runs = unique(run for spec in options.chosen(args) for run in expand(spec, args.scale))
    if not runs:
        raise UserError(f"{args.experiment} trains nothing at scale {args.scale}: there is nothing to compile.")
    return runs


def _chosen(args: argparse.Namespace, planned: "tuple[PlannedRun, ...]") -> "tuple[PlannedRun, ...]":
    """Those that --run names."""
    if args.run is None:
        return planned
    unknown = [name for name in args.run if not any(run.run_id.startswith(name) for run in planned)]
    if unknown:
        raise UserError(f"no run of {args.experiment} at scale {args.scale} begins with {unknown[0]!r}: see its plan.")
    return tuple(run for run in planned if run.run_id.startswith(tuple(args.run)))
