"""Table 4 and the accounts of Tables 1 and 7, simulated and counted beside the published cells.

Nothing here is trained or fitted (but for what `finite` names so). Only NumPy is imported: `make table4`
answers at once, and the figures, which need matplotlib, live in `analysis.figures.simulated`.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.paper.published import Published, by_place, load_cells, printed_interval, verdict
from analysis.render import Document, Grid, Notes, csv_text, terminal_text, write
from experiments.streaming.base import OUTER, TOKENS_PER_PARAMETER, model
from experiments.streaming.table4 import EXPERIMENT as TABLE4
from repro.files import write_bytes
from repro.network.account import (
    memory,
    printed_terabytes,
    rule_bits,
    steps_of,
    training_hours,
    true_terabytes,
)
from repro.network.methods import BASELINE_BITS, FP4_BITS, Method, Network, method
from repro.network.scenario import (
    FITTED_FIRST_FRAGMENT,
    FITTED_STEPS,
    PAPER_GRID,
    fitted_curve,
    grid_reading,
    least_bandwidth,
    paper_curve,
    paper_cycle,
    printed_reading,
)
from repro.network.simulate import Link, utilisation

COLUMNS = ("row", "column", "ours", "spread", "n", "paper", "tolerance", "verdict", "runs")
EVERY = 100  # H of Tables 1 and 7


@dataclass(frozen=True)
class Cell:
    """One cell of Table 4. `crossing` is where the target is truly reached; `nearest` the utilisation that
    the steady state has at the published bandwidth's grid point.
    """

    row: str
    column: str
    text: str
    crossing: float
    paper: Published

    @property
    def verdict(self) -> str:
        """Printed text against printed text: no tolerance."""
        ours = None if self.text == "-" else float(self.text)
        return verdict(self.paper, ours, 0.0, "paper")


@dataclass(frozen=True)
class Account:
    """One counted cell: in the paper's reckoning (`ours`, compared) and in true units where these differ."""

    row: str
    column: str
    ours: float
    true: str
    paper: Published

    @property
    def verdict(self) -> str:
        """Against the interval that prints as published: no tolerance."""
        return verdict(self.paper, self.ours, 0.0, "paper")


@cache
def table4_cells(finite: bool = False) -> tuple[Cell, ...]:
    """All 75 cells in printed order, from the steady state or (`finite`) from the fitted finite run."""
    places = by_place(load_cells(TABLE4.name))
    curve_of = fitted_curve if finite else paper_curve
    cells = []
    for network in TABLE4.networks:
        for how in TABLE4.methods:
            curve = curve_of(TABLE4, network, how)
            crossings = least_bandwidth(paper_cycle(network, how), (network.step_time_s,), TABLE4.targets)
            for target, crossing in zip(TABLE4.targets, crossings, strict=True):
                row, column = f"{network.name} | {how.label}", f"{target:.0%}"
                text = printed_reading(grid_reading(curve, target))
                cells.append(Cell(row, column, text, crossing, places[row, column]))
    return tuple(cells)


def table4_text(finite: bool = False) -> str:
    """Table 4 for a terminal: ours and the paper's, the true crossing below, what misses and why."""
    return _table4_lines(table4_cells(finite), finite)


def table4_json(finite: bool = False) -> str:
    """Its cells for scripts: printed text of ours and the paper's, the true crossing in Gbit/s, the verdict."""
    cells = table4_cells(finite)
    rows = [
        {
            "row": cell.row,
            "column": cell.column,
            "ours": cell.text,
            "gbit_per_s": cell.crossing,
            "paper": cell.paper.text,
            "verdict": cell.verdict,
        }
        for cell in cells
    ]
    return json.dumps({"fitted": finite, "cells": rows}, indent=1)


def build_table4(out: Path) -> str:
    """Write table4.{csv,md,tex,html} and table4-crossings.csv under `out`; the text to print."""
    cells = table4_cells()
    out.mkdir(parents=True, exist_ok=True)
    lines = csv_text(COLUMNS, [_line(c.row, c.column, c.text, c.paper, c.verdict) for c in cells])
    write_bytes(out / "table4.csv", lines.encode())
    crossings = [(cell.row, cell.column, f"{cell.crossing:.5g}") for cell in cells]
    write_bytes(out / "table4-crossings.csv", csv_text(("row", "column", "gbit_per_s"), crossings).encode())
    write(table4_document(cells), out / "table4")
    return _table4_lines(cells, finite=False)


def table4_document(cells: Sequence[Cell]) -> Document:
    """Every cell beside the paper's, with where the target is truly reached, what misses and why."""
    heads = ("Model", "Method", *(f"{target:.0%}" for target in TABLE4.targets))
    rows = []
    for start in range(0, len(cells), len(TABLE4.targets)):
        group = cells[start : start + len(TABLE4.targets)]
        size, label = group[0].row.split(" | ")
        rows.append((size, label, *(f"{_pair(cell)} ({_three(cell.crossing)})" for cell in group)))
    notes = ("Each cell: ours = the paper's (where the target is truly reached), Gbit/s.", _score(cells))
    sections = (Grid("", heads, tuple(rows), left=len(heads)), Notes("", (*notes, *_notes(cells))))
    return Document(f"Table 4: {TABLE4.title}", (), sections)


def account_cells(item: str) -> tuple[Account, ...]:
    """The counted cells of `table1` (hours and terabytes) or `table7` (terabytes), in printed order."""
    return accounts_of(load_cells(item))


def accounts_of(cells: Iterable[Published]) -> tuple[Account, ...]:
    """Those of the published cells that are counted: hours and terabytes of Tables 1 and 7."""
    return tuple(account for cell in cells if (account := _account(cell)) is not None)


def build_accounts(out: Path) -> str:
    """Write accounts.{csv,md,tex,html} under `out`; the text to print."""
    accounts = all_accounts()
    out.mkdir(parents=True, exist_ok=True)
    lines = [(item, *_line(a.row, a.column, f"{a.ours:.6g}", a.paper, a.verdict), a.true) for item, a in accounts]
    write_bytes(out / "accounts.csv", csv_text(("item", *COLUMNS, "true"), lines).encode())
    document = accounts_document(accounts)
    write(document, out / "accounts")
    return terminal_text(document)


def all_accounts() -> tuple[tuple[str, Account], ...]:
    """(file of data/papers/2501.18512, account): Tables 1 and 7 and the claims of §2.5."""
    tables = [(item, account) for item in ("table1", "table7") for account in account_cells(item)]
    return (*tables, *(("statements", account) for account in claim_cells()))


def accounts_document(accounts: Sequence[tuple[str, Account]]) -> Document:
    """Each account beside the paper's number, and how it is counted."""
    rows = [(item, a.row, a.column, f"{a.ours:.4g}", a.paper.text, a.verdict, a.true) for item, a in accounts]
    head = ("Item", "Row", "Column", "Ours", "Paper", "Verdict", "In true units")
    sections = (Grid("", head, tuple(rows), left=len(head)), Notes("", _account_notes(accounts)))
    return Document("Bytes, hours and memory", (), sections)


def claim_cells() -> tuple[Account, ...]:
    """400 times fewer bits, 8 times less peak bandwidth, 3 against 5 copies, and the 100B example of §2.5."""
    places = by_place(load_cells("statements"))
    one, hundred = TABLE4.networks[0], TABLE4.networks[2]
    dp, ours = _cycle_bits(one, method("data-parallel")), _cycle_bits(one, method("streaming-fp4"))
    ratio = rule_bits(1, BASELINE_BITS, EVERY) / rule_bits(1, FP4_BITS, EVERY, EVERY)
    peak = _largest(one, "diloco") / _largest(one, "streaming")
    held = memory(int(hundred.params), round(hundred.params * TABLE4.fragment_layers / hundred.layers), OUTER)
    unit = 4 * int(hundred.params)
    accounts = (
        (
            "compression",
            "Bits exchanged, ratio",
            ratio,
            f"{dp / ours:.4g} with the simulator's 96 steps for H",
        ),
        ("peak bandwidth", "Reduction, ratio", peak, ""),
        ("memory", "Data-Parallel, copies", held.data_parallel / unit, ""),
        ("memory", "DiLoCo, copies", held.diloco / unit, ""),
        ("memory", "Overhead (%)", 100 * held.overhead, ""),
        ("memory | 100B", "Base (GB)", held.data_parallel / 2**30, f"{held.data_parallel / 1e9:.4g} GB"),
        ("memory | 100B", "Additional (GB)", held.added_in_hbm / 2**30, f"{held.added_in_hbm / 1e9:.4g} GB"),
        ("memory | 100B", "Increase (%)", 100 * held.added_in_hbm / held.data_parallel, ""),
    )
    return tuple(Account(row, col, value, true, places[row, col]) for row, col, value, true in accounts)


def hours_at(network: Network, how: Method, gbit_per_s: float, steps: float) -> float:
    """Hours of `steps` steps at a bandwidth, by the paper's schedule (infinite bandwidth: compute alone)."""
    cycle = paper_cycle(network, how, EVERY)
    used = float(utilisation(cycle, (network.step_time_s,), Link.of(gbit_per_s)))
    return training_hours(steps, network.step_time_s, used)


def _table4_lines(cells: Sequence[Cell], finite: bool) -> str:
    width = max(len(how.label) for how in TABLE4.methods) + 2
    heads = "".join(f"{f'{target:.0%}':>15}" for target in TABLE4.targets)
    lines = [f"Table 4: {TABLE4.title}. Ours = the paper's; below, where the target is truly reached.", ""]
    for network in TABLE4.networks:
        title = f"{network.name}, {network.layers} layers, {network.step_time_s:g} s"
        lines.append(f"{title:<{width}}{heads}")
        for how in TABLE4.methods:
            row = [cell for cell in cells if cell.row == f"{network.name} | {how.label}"]
            pairs = "".join(f"{_pair(cell):>15}" for cell in row)
            lines.append(f"{how.label:<{width}}{pairs}")
            lines.append(" " * width + "".join(f"{_three(cell.crossing):>15}" for cell in row))
        lines.append("")
    return "\n".join([*lines, _score(cells), *_notes(cells, finite)])


def _account(cell: Published) -> Account | None:
    name, budget = cell.row.split(" | ")
    ours = name != "Data-Parallel"
    how = method("streaming-fp4" if ours else "data-parallel")
    shape = model("1B")
    if cell.column.startswith("Hours"):
        steps = steps_of(TOKENS_PER_PARAMETER * shape.params_by_rule) * _tokens(budget) / _tokens("25B")
        rate = float("inf") if "+inf" in cell.column else 1.0
        return Account(cell.row, cell.column, hours_at(TABLE4.networks[0], how, rate, steps), "", cell)
    if cell.column == "Terabytes exchanged":
        steps = steps_of(_tokens(budget)) / (2 if name.endswith("M=4") else 1)
        bits = rule_bits(shape.params_by_rule, how.bits, steps, EVERY if ours else 1)
        return Account(cell.row, cell.column, printed_terabytes(bits), f"{true_terabytes(bits):.4g} TB", cell)
    return None


def _account_notes(accounts: Sequence[tuple[str, Account]]) -> tuple[str, ...]:
    off = [
        f"{a.row}: {a.ours:.4g} against {a.paper.text} ({_gap(a):+.1%} from the nearest value that prints so)"
        for _, a in accounts
        if a.verdict != "reproduced"
    ]
    return (
        "Terabytes as printed are tebibits: N · bits · steps / 2^40, N = 12 d² L + V d, 16 bits every "
        "step or 4 bits every 100, batches of 2^20 tokens. True terabytes stand beside them.",
        "Hours: 20 N tokens (× 4, × 10) in batches of 2^20 at 0.1 s a step, over the simulated compute "
        "utilisation of 1e9 parameters.",
        "Outside the printed interval: " + ("; ".join(off) if off else "none") + ".",
    )


def _gap(account: Account) -> float:
    low, high = printed_interval(account.paper)
    return account.ours / (low if account.ours < low else high) - 1


def _tokens(budget: str) -> float:
    return float(budget.removesuffix("B")) * 1e9


def _cycle_bits(network: Network, how: Method) -> float:
    cycle = paper_cycle(network, how)
    return cycle.bits / cycle.steps


def _largest(network: Network, key: str) -> float:
    return paper_cycle(network, method(key)).largest_send_bits


def _pair(cell: Cell) -> str:
    return f"{cell.text} {'=' if cell.text == cell.paper.text else '≠'} {cell.paper.text}"


def _three(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _score(cells: Sequence[Cell]) -> str:
    same = sum(cell.text == cell.paper.text for cell in cells)
    return f"{same} of {len(cells)} cells print as published."


def _notes(cells: Sequence[Cell], finite: bool = False) -> Iterator[str]:
    yield from TABLE4.assumptions
    if finite:
        yield (
            f"Fitted, not derived: a run of {FITTED_STEPS} steps with a sync at step 0, starting with "
            f"fragment {FITTED_FIRST_FRAGMENT}, to its last reduction. Other lengths and orders print the "
            "same cells."
        )
    for cell in cells:
        if cell.text != cell.paper.text:
            yield _reason(cell)


def _reason(cell: Cell) -> str:
    """Why a cell stands where it does: the steady state's utilisation at the point that the paper prints."""
    size, label = cell.row.split(" | ")
    network = next(n for n in TABLE4.networks if n.name == size)
    how = next(m for m in TABLE4.methods if m.label == label)
    point = min(PAPER_GRID, key=lambda g: abs(g - (cell.paper.value or 0)))
    reached = float(utilisation(paper_cycle(network, how), (network.step_time_s,), Link.of(point)))
    return (
        f"{cell.row}, {cell.column}: the steady state crosses at {cell.crossing:.3f} Gbit/s and has "
        f"{reached:.2%} at the grid point {point:.3f} that the paper prints as still below; a run that "
        "also pays for "
        "its start stays under it."
    )


def _line(row: str, column: str, ours: str, paper: Published, judged: str) -> tuple[str, ...]:
    return (row, column, ours, "", "", paper.text, "0", judged, "")
