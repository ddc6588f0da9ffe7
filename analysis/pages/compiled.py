"""What was compiled, as JSON, and that JSON as a document of tables: the command's, and docs/compile.md's."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from analysis.paper.assumptions import power_of_two
from analysis.render import Document, Grid, Notes
from repro.machines.placement import GIB, Placement, chip, days
from repro.spec.experiment import PlannedRun
from repro.words import BYTE_UNITS, counted, short

Json = Mapping[str, Any]
Frame = Any  # of pandas, which is imported where a document is made
COMPILED = "compiled"  # data/results/compiled.json

NOTES = (
    "Memory is that of one chip: arguments (parameters, what the inner optimiser keeps, outer state, tokens), "
    "temporaries (gradients, activations, buffers), resting (outer state of fragments that the program doesn't name), "
    "and the sum with code and outputs that take no argument's place, beside the part of what the compiler may give "
    "out and what the rule had estimated. Host: arguments and temporaries in pinned memory of the host.",
    "A cycle is H steps (one step where nothing synchronises); bytes are those of one replica, of one slice for "
    "Data-Parallel. Rule: the paper's account, N parameters of 4 or 16 bits, the part of them that is kept "
    "where values are dropped. Payload: codes, scales and masks, all parameters. HLO: what the compiled programs' own "
    "transfers between slices give. A collective of the payload moves (M - 1) times as much for a gather and "
    "2 (M - 1) / M for a ring, by the account and by the programs.",
    "Positions are those of instructions in the program's schedule. Overlaps: the transfer starts before the first "
    "instruction of the forward pass and is awaited after the last one of the inner update.",
    "Placement is replica x data x fsdp; a sequence on N: N chips share one. Batch: tokens a step over all replicas.",
)


def compiled_json(results: Sequence[tuple[PlannedRun, Placement, Any]], source: Mapping[str, Any]) -> dict[str, Any]:
    """All numbers, each program once; `source` tells the commit and the versions of each run."""
    programs = {p.key: _program_json(p) for _, _, compiled in results for p in compiled.programs}
    return {
        "programs": programs,
        "runs": [{**_run_json(run, placed, compiled), **source} for run, placed, compiled in results],
    }


def merge_compiled(earlier: Json | None, record: Json, order: Sequence[str]) -> dict[str, Any]:
    """What was compiled, now and by an earlier call of other runs of the same spec, in the order of these ids."""
    runs = {run["run"]: run for run in (*(earlier["runs"] if earlier else ()), *record["runs"])}
    kept = [runs[name] for name in order if name in runs]
    programs = {**(earlier["programs"] if earlier else {}), **record["programs"]}
    used = {used["program"] for run in kept for used in run["programs"]}
    return {"programs": {key: programs[key] for key in programs if key in used}, "runs": kept}


def _program_json(program: Any) -> dict[str, Any]:
    kept = {"name": program.name, "seconds": round(program.seconds, 1), "schedule": asdict(program.schedule)}
    return kept | {"overlaps": [program.schedule.overlaps(t) for t in program.schedule.transfers]}


def _run_json(run: PlannedRun, placed: Placement, compiled: Any) -> dict[str, Any]:
    used = [
        {
            "program": p.key,
            "steps": p.steps,
            "memory": asdict(p.memory) | {"total": p.memory.total},
            "cross_slice_bytes_per_chip": p.schedule.bytes,
        }
        for p in compiled.programs
    ]
    return {
        "run": run.run_id,
        "row": run.row,
        "batch_tokens": run.config.batch * run.config.model.seq_len,
        "topology": placed.topology,
        "slices": placed.slices,
        "usable_bytes": int(chip(placed.topology).usable_gib * GIB),
        "days": days(run.config, placed.topology, placed.slices),
        **asdict(compiled),
        "programs": used,
        "fits": compiled.fits,
    }


def of_another_batch(run: Json, planned: Mapping[str, int]) -> bool:
    """Whether a record is of a batch that its run has no longer; `planned`: tokens a step of the runs there are."""
    return run["batch_tokens"] != planned.get(run["run"], run["batch_tokens"])


def compiled_document(title: str, compiled: Json, planned: Mapping[str, int]) -> Document:
    """Memory, bytes and overlap of each run, and what did not fit; records of other batches than planned are marked."""
    import pandas as pd

    runs, programs = compiled["runs"], pd.DataFrame.from_dict(compiled["programs"], orient="index")
    versions = dict.fromkeys(", ".join(map(" ".join, run["versions"].items())) for run in runs)
    minutes = sum(program["seconds"] for program in compiled["programs"].values()) / 60
    lead = (
        f"Compiled ahead of time with {'; '.join(versions)}; nothing was run. {len(runs)} runs, "
        f"{len(programs)} programs, {minutes:.0f} minutes of compiling.",
    )
    if others := sum(of_another_batch(run, planned) for run in runs):
        lead += (
            f"{counted(others, 'run')} of these were compiled at a batch that they no longer have, and say so; what "
            "they send is the same, memory and work of a step are not.",
        )
    if missing := planned.keys() - {run["run"] for run in runs}:
        lead += (f"{counted(len(missing), 'run')} of the specs are not compiled yet: `make compile-paper MISSING=1`.",)
    sections: list[Grid | Notes] = [_placements(runs, planned)]
    if fitting := [run for run in runs if run["fits"]]:
        used = pd.json_normalize(fitting, "programs", ["run", "cycle", "usable_bytes"])
        used = used.merge(programs, left_on="program", right_index=True)
        sections += [_memory(used), _bytes(pd.json_normalize(fitting)), _transfers(used.drop_duplicates("program"))]
    if unfit := tuple(line for run in runs for line in _unfit(run)):
        sections.append(Notes("Did not fit", unfit))
    return Document(title, lead, (*sections, Notes("How to read it", NOTES)))


def _placements(runs: Sequence[Json], planned: Mapping[str, int]) -> Grid:
    head = (
        "run",
        "slices",
        "placement",
        "batch",
        "fits",
        "estimate",
        "largest program",
        "days",
        "GFLOP a chip and step",
    )
    rows = tuple(
        (
            run["run"],
            f"{run['slices']} x {run['topology']}",
            placement(run["resources"]),
            _batch(run, planned),
            "yes" if run["fits"] else "no",
            f"{run['estimate'] / GIB:.2f}",
            f"{max(p['memory']['total'] for p in run['programs']) / GIB:.2f}" if run["fits"] else "",
            f"{run['days']:.2g}",
            f"{run['flops_per_chip'] / 1e9:,.0f}",
        )
        for run in runs
    )
    return Grid("Placement; memory of one chip in GiB, days at 40 % of the peak", head, rows, left=3)


def _batch(run: Json, planned: Mapping[str, int]) -> str:
    tokens = power_of_two(run["batch_tokens"])
    if not of_another_batch(run, planned):
        return tokens
    return f"compiled at a batch of {tokens}, now {power_of_two(planned[run['run']])}"


def placement(resources: Json) -> str:
    """replica × data × fsdp and what differs from the plainest."""
    r = resources
    words = [f"{r['replica']}x{r['data']}x{r['fsdp']}"]
    words += [f"a sequence on {r['sequence']}"] * (r["sequence"] > 1)
    words += [f"{r['microbatches']} microbatches"] * (r["microbatches"] > 1)
    words += [f"remat={r['remat']}"] * (r["remat"] != "none")
    words += ["flash"] * (r["attention"] == "flash")
    words += ["no fence"] * (not r["fence"])
    words += ["outer on host"] * r["outer_on_host"]
    return ", ".join(words)


def _memory(used: Frame) -> Grid:
    """A line a run and program of it."""
    steps = used["steps"].astype(str) + " of " + used["cycle"].astype(str)
    columns = {"run": used["run"], "program": used["name"], "steps": steps}
    columns["compile s"] = used["seconds"].map("{:.0f}".format)
    for size in ("arguments", "temporaries", "resting", "total"):
        columns[size] = used[f"memory.{size}"].map(_gib)
    columns["of HBM"] = (used["memory.total"] / used["usable_bytes"]).map("{:.1%}".format)
    return _grid("Memory of one chip, GiB", columns | {"host": used["memory.host"].map(_gib)}, left=2)


def _bytes(runs: Frame) -> Grid:
    """A line a run."""
    size = {name: runs[f"bytes.{name}"].map(_short) for name in ("rule", "payload", "hlo", "collective", "moved")}
    columns = {"run": runs["run"], "cycle": runs["cycle"].map(str), "rule": size["rule"], "payload": size["payload"]}
    columns |= {"HLO": size["hlo"], "HLO/payload": (runs["bytes.hlo"] / runs["bytes.payload"]).map("{:.5f}".format)}
    columns |= {"moved, account": size["collective"], "moved, HLO": size["moved"]}
    return _grid("Bytes between slices in a cycle", columns)


def _transfers(used: Frame) -> Grid:
    """A line a program."""
    import pandas as pd

    head = ("transfers", "a chip gives", "starts", "forward", "updated", "awaited", "of", "overlaps")
    given = zip(used["schedule"], used["overlaps"], used["cross_slice_bytes_per_chip"], strict=True)
    cells = pd.DataFrame([_transfer_cells(*one) for one in given], columns=head)
    columns = {"run": used["run"], "program": used["name"]} | {name: cells[name] for name in head}
    return _grid("Transfers in the schedule of each program, at the first run that has it", columns, left=2)


def _grid(title: str, columns: Mapping[str, Any], left: int = 1) -> Grid:
    return Grid(title, tuple(columns), tuple(zip(*columns.values(), strict=True)), left)


def _gib(count: float) -> str:
    return f"{count / GIB:.3f}"


def _short(count: float) -> str:
    return short(count, BYTE_UNITS)


def _transfer_cells(schedule: Json, overlaps: Sequence[bool], given: int) -> tuple[str, ...]:
    transfers = schedule["transfers"]
    marks = (str(schedule["forward"]), str(schedule["updated"]))
    if not transfers:
        return "none", "0", "", *marks, "", str(schedule["length"]), ""
    kinds = sorted({f"{t['operation']} {t['dtype']}" for t in transfers})
    overlapping = sum(overlaps)
    return (
        f"{len(transfers)} {', '.join(kinds)}",
        f"{given:,}",
        _span([t["start"] for t in transfers]),
        *marks,
        _span([t["done"] for t in transfers]),
        str(schedule["length"]),
        {0: "no", len(transfers): "yes"}.get(overlapping, f"{overlapping} of {len(transfers)}"),
    )


def _span(positions: Sequence[int]) -> str:
    low, high = min(positions), max(positions)
    return str(low) if low == high else f"{low} to {high}"


def _unfit(run: Json) -> list[str]:
    lines = [f"{run['run']}, {placement(t['resources'])}: {t['reason']}" for t in run["tried"]]
    if lines and run["fits"]:
        lines[-1] += f". It fits as {placement(run['resources'])}."
    if lines and not run["fits"]:
        lines[-1] += ". Nothing tried fits: take a topology with more chips a slice."
    return lines
