"""What was compiled, as a document of tables and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from analysis.render import Document, Grid, Notes
from repro.compile import GIB, Compiled, Program, Topology, versions
from repro.experiment import PlannedRun
from repro.plan import BYTE_UNITS, short
from repro.resources import Resources

Results = Sequence[tuple[PlannedRun, Compiled]]


def document(title: str, on: Topology, results: Results) -> Document:
    """Memory, bytes and overlap of each run, and what did not fit."""
    lead = (
        f"Compiled ahead of time for {on.slices} slices {on.name} ({on.kind}, {on.chips} chips a slice, "
        f"{on.hbm_bytes / GIB:g} GiB each) with "
        + ", ".join(f"{name} {version}" for name, version in versions().items())
        + ". Nothing was run.",
    )
    fitting = [(run, found) for run, found in results if found.fits]
    grids = (_programs(on, fitting), _bytes(fitting), _transfers(fitting))
    unfit = Notes("Did not fit", tuple(line for run, found in results for line in _unfit(run, found)))
    notes = Notes("How to read it", NOTES)
    sections = tuple(grid for grid in grids if grid.rows)
    return Document(title, lead, (*sections, *([unfit] if unfit.lines else []), notes))


NOTES = (
    "Memory is that of one chip: arguments (parameters, both moments of Adam, outer state, tokens), temporaries "
    "(gradients, activations, buffers), resting (outer state of fragments that the program doesn't name), and the "
    "sum with code and outputs that take no argument's place. Host: "
    "arguments and temporaries in pinned memory of the host.",
    "A cycle is H steps (one step where nothing synchronises); bytes are those of one replica, of one slice for "
    "Data-Parallel. Rule: the paper's account, N parameters of 4 or 16 bits. Payload: codes and scales, all "
    "parameters. HLO: what the compiled programs' own transfers between slices give. Moved: what these collectives "
    "take through the link, (M - 1) times as much for a gather and 2 (M - 1) / M for a ring.",
    "Positions are those of instructions in the program's schedule. Overlaps: the transfer starts before the first "
    "instruction of the forward pass and is awaited after the last one of the inner update.",
)


def as_json(on: Topology, results: Results) -> dict[str, Any]:
    """All numbers."""
    return {
        "topology": on.name,
        "slices": on.slices,
        "chips_a_slice": on.chips,
        "chip": on.kind,
        "hbm_bytes": on.hbm_bytes,
        "versions": versions(),
        "runs": [{"run": run.run_id, "row": run.row, **_run_json(found)} for run, found in results],
    }


def _run_json(found: Compiled) -> dict[str, Any]:
    programs = [
        {
            **asdict(program),
            "total_bytes": program.memory.total,
            "overlaps": [program.schedule.overlaps(t) for t in program.schedule.transfers],
            "cross_slice_bytes_per_chip": program.schedule.bytes,
        }
        for program in found.programs
    ]
    return {**asdict(found), "programs": programs, "fits": found.fits}


def _programs(on: Topology, results: Results) -> Grid:
    head = (
        "run",
        "placement",
        "program",
        "steps",
        "compile s",
        "arguments",
        "temporary",
        "resting",
        "total",
        "of HBM",
        "host",
    )
    rows = []
    for run, found in results:
        for program in found.programs:
            memory = program.memory
            sizes = (memory.arguments, memory.temporaries, memory.resting, memory.total)
            rows.append(
                (
                    run.run_id,
                    placement(found.resources),
                    program.name,
                    f"{program.steps} of {found.cycle}",
                    f"{program.seconds:.1f}",
                    *(f"{size / GIB:.3f}" for size in sizes),
                    f"{memory.total / on.hbm_bytes:.1%}",
                    f"{memory.host / GIB:.3f}",
                )
            )
    return Grid("Memory of one chip, GiB", head, tuple(rows), left=3)


def placement(resources: Resources) -> str:
    """replica × data × fsdp and what differs from the defaults."""
    words = [f"{resources.replica}x{resources.data}x{resources.fsdp}"]
    words += [f"remat={resources.remat}"] * (resources.remat != "none")
    words += ["no fence"] * (not resources.fence)
    words += ["outer on host"] * resources.outer_on_host
    return ", ".join(words)


def _bytes(results: Results) -> Grid:
    head = ("run", "cycle", "rule", "payload", "HLO", "HLO/payload", "moved", "GFLOP a chip and step")
    rows = []
    for run, found in results:
        assert found.bytes is not None
        b = found.bytes
        cells = (short(b.rule, BYTE_UNITS), short(b.payload, BYTE_UNITS), short(b.hlo, BYTE_UNITS))
        ratio = f"{b.hlo / b.payload:.5f}"
        moved = short(b.moved, BYTE_UNITS)
        rows.append((run.run_id, str(found.cycle), *cells, ratio, moved, f"{found.flops_per_chip / 1e9:,.0f}"))
    return Grid("Bytes between slices in a cycle", head, tuple(rows))


def _transfers(results: Results) -> Grid:
    head = ("run", "program", "transfers", "a chip gives", "starts", "forward", "updated", "awaited", "of", "overlaps")
    rows = tuple(
        (run.run_id, program.name, *_transfer_cells(program)) for run, found in results for program in found.programs
    )
    return Grid("Transfers in the schedule", head, rows, left=2)


def _transfer_cells(program: Program) -> tuple[str, ...]:
    schedule = program.schedule
    transfers = schedule.transfers
    marks = (str(schedule.forward), str(schedule.updated))
    if not transfers:
        return "none", "0", "", *marks, "", str(schedule.length), ""
    kinds = sorted({f"{t.operation} {t.dtype}" for t in transfers})
    overlapping = sum(map(schedule.overlaps, transfers))
    return (
        f"{len(transfers)} {', '.join(kinds)}",
        f"{schedule.bytes:,}",
        _span([t.start for t in transfers]),
        *marks,
        _span([t.done for t in transfers]),
        str(schedule.length),
        {0: "no", len(transfers): "yes"}.get(overlapping, f"{overlapping} of {len(transfers)}"),
    )


def _span(positions: Sequence[int]) -> str:
    low, high = min(positions), max(positions)
    return str(low) if low == high else f"{low} to {high}"


def _unfit(run: PlannedRun, found: Compiled) -> list[str]:
    lines = [f"{run.run_id}, {placement(resources)}: {reason}" for resources, reason in found.tried]
    if found.tried and found.fits:
        lines[-1] += f". It fits as {placement(found.resources)}."
    if found.tried and not found.fits:
        lines[-1] += ". Nothing tried fits: take a topology with more chips a slice."
    return lines
