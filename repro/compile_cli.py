"""`python -m repro compile`: an experiment's runs compiled for TPU slices, on any machine.

As the parser of every command is built at once, nothing heavy is imported at the top.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from repro.errors import UserError

if TYPE_CHECKING:
    from repro.experiment import PlannedRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `compile`."""
    add = parser.add_argument
    add("experiment", metavar="EXPERIMENT|RUN", help="a module of experiments/, or a run's id in --root")
    add("--topology", required=True, help="chips of one slice, such as v5e:4x4")
    add("--slices", type=int, required=True, help="slices, joined by the data-center network")
    add("--scale", default="paper", help="paper (default), mini or smoke")
    add("--run", action="append", metavar="ID", help="only runs whose id begins so (may be repeated)")
    add("--fsdp", type=int, help="chips that share one copy of the parameters (default: a replica's in a slice)")
    add("--remat", choices=("none", "dots", "full"), help="what the backward pass recomputes (default: what fits)")
    add("--outer-on-host", action="store_true", help="outer parameters and momentum in the host's memory (§2.5)")
    add("--no-fence", action="store_true", help="let XLA start transfers when it thinks best (docs/overlap.md)")
    add("--json", action="store_true", help="for scripts")
    add("--root", type=Path, default=Path("runs"), help="where run folders lie (default runs)")
    add("--out", type=Path, default=Path("build"), help="where the table goes (default build)")


def main(args: argparse.Namespace) -> int:
    """Compile, show, and leave compile-<name>-<slices>x<topology>.md and .json; exit 1 when a run does not fit."""
    from analysis import render
    from repro.compile import compile_run, topology
    from repro.compile_report import as_json, document
    from repro.store import write_json

    runs = _runs(args)
    on = topology(args.topology, args.slices)
    on.hbm_bytes  # noqa: B018  a chip that the table lacks is told before an hour of compiling
    results = []
    stem = args.out / f"compile-{args.experiment}-{args.slices}x{args.topology.replace(':', '-')}"
    for run in runs:
        print(f"compiling {run.run_id} for {args.slices} x {args.topology}", file=sys.stderr, flush=True)
        found = compile_run(run.config, on, args.fsdp, args.remat, args.outer_on_host, not args.no_fence)
        results.append((run, found))
        shown = document(f"{args.experiment} at scale {args.scale}, compiled", on, results)
        write_json(stem.with_suffix(".json"), as_json(on, results))
        stem.with_suffix(".md").write_text(render.markdown(shown))
    print(json.dumps(as_json(on, results), indent=1) if args.json else render.text(shown))
    return 0 if all(found.fits for _, found in results) else 1


def _runs(args: argparse.Namespace) -> "tuple[PlannedRun, ...]":
    from repro.config import RunConfig
    from repro.experiment import PlannedRun, expand, load, names, unique
    from repro.identity import from_json
    from repro.store import find_run, read_json

    if args.experiment not in names() and any(args.root.glob(f"{args.experiment}*/config.json")):
        folder = find_run(args.root, args.experiment)
        config = from_json(RunConfig, read_json(folder.path / "config.json"))
        return (PlannedRun((folder.run_id,), folder.run_id, config, folder.run_id),)
    runs = unique(expand(load(args.experiment), args.scale))
    if args.run is None:
        return runs
    unknown = [name for name in args.run if not any(run.run_id.startswith(name) for run in runs)]
    if unknown:
        raise UserError(f"no run of {args.experiment} at scale {args.scale} begins with {unknown[0]!r}: see its plan.")
    return tuple(run for run in runs if run.run_id.startswith(tuple(args.run)))
