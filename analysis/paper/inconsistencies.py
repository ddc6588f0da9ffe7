"""Where the paper contradicts itself, each with the calculation that shows it.

Not a list of faults to enjoy: whoever reproduces the paper meets each of these and must choose. Every
printed number is read from data/papers/2501.18512, every other is computed here.
"""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from analysis.paper.bandwidth_clashes import BANDWIDTHS
from analysis.paper.clash import Inconsistency, printed_number, printed_text
from analysis.paper.fits import loss_slope, power_law, published_points
from analysis.paper.published import by_place, load_cells, printed_interval
from analysis.paper.simulated import account_cells, claim_cells
from analysis.render import Document, Grid, write
from experiments.streaming.base import OUTER, SIZES, TOKENS_PER_PARAMETER, model, streaming
from experiments.streaming.table4 import EXPERIMENT as TABLE4
from repro.network.account import memory, printed_terabytes, rule_bits, steps_of, training_hours, true_terabytes
from repro.network.methods import BASELINE_BITS
from repro.spec.schedule import events, offsets, sync_steps

SPARSE = 100  # H of the sparser main runs
ARC_QUESTIONS = 570  # ARC-Easy's validation split
PCIE_LANES, PCIE_GBIT_PER_LANE, PCIE_CODING = 16, 32, 128 / 130  # PCIe 5.0 x16, one direction


def inconsistencies() -> tuple[Inconsistency, ...]:
    """All of them, in the order of the paper."""
    return tuple(find() for find in _FINDERS)


def build_inconsistencies(out: Path) -> str:
    """Write inconsistencies.{md,tex,html} under `out`; the same as text for a terminal."""
    clashes = inconsistencies()
    listed = inconsistencies_document(clashes)
    write(listed, out / "inconsistencies")
    return "\n\n".join([listed.title, *(_paragraph(i, x) for i, x in enumerate(clashes, 1))])


def inconsistencies_document(clashes: Sequence[Inconsistency]) -> Document:
    """One row for each."""
    rows = tuple((str(i), x.title, x.one, x.other, x.calculation, x.where) for i, x in enumerate(clashes, 1))
    head = ("", "What", "One statement", "The other", "Calculation", "Where")
    return Document("What the paper says twice, differently", (), (Grid("", head, rows, left=len(head)),))


def _paragraph(number: int, clash: Inconsistency) -> str:
    lines = (f"one:  {clash.one}", f"other: {clash.other}", clash.calculation, f"({clash.where})")
    wrapped = [textwrap.fill(line, 112, initial_indent="    ", subsequent_indent="    ") for line in lines]
    return "\n".join([f"{number:>2}. {clash.title}", *wrapped])


def _offset_sign() -> Inconsistency:
    sync, every, count = streaming(100), 100, 3
    first = {s: sync_steps(replace(sync, offset_sign=s), count, 1, 3 * every)[0] for s in (-1, 1)}
    halves = offsets(every, 2)[1]
    return Inconsistency(
        title="When a fragment is due",
        where="section 2.2; Algorithm 2, line 14",
        one="t + t_p mod H = 0 (text)",
        other="t - t_p mod H = 0 (Algorithm 2)",
        calculation=f"With H = {every} and three fragments, t_p = {offsets(every, count)[1]} for the "
        "second, which first "
        f"syncs at {first[-1]} by the algorithm and at {first[1]} by the text. The example of two "
        "fragments (t_p = "
        f"{halves}) can't tell: -{halves} and +{halves} are the same modulo {every}. The suite follows "
        "Algorithm 2.",
    )


def _overlapped_steps() -> Inconsistency:
    (delay,) = streaming(SPARSE).delays
    sync, count = streaming(SPARSE), 3
    sent = sync_steps(sync, count, 0, 2 * SPARSE)[0]
    merged = next(t for t in range(sent, 2 * SPARSE) if events(sync, count, 1, t).applies)
    return Inconsistency(
        title="Inner steps that hide a message",
        where="section 2.3; Algorithm 2, lines 14 and 18",
        one="the fragment is waited for after τ - 1 inner steps (text)",
        other="it is received once t - t_p - τ mod H = 0, after τ inner steps (Algorithm 2)",
        calculation=f"With H = {SPARSE} and τ = {delay} the first fragment is sent after step {sent} and, by the "
        f"algorithm, merged after step {merged}: {merged - sent} inner step lies between. By the text there would be "
        f"{delay - 1}, so that the main runs would overlap nothing. The suite follows Algorithm 2.",
    )


def _memory_units() -> Inconsistency:
    claims = {account.column: account for account in claim_cells() if account.row == "memory | 100B"}
    base, added = claims["Base (GB)"], claims["Additional (GB)"]
    return Inconsistency(
        title="GB that are GiB",
        where=base.paper.where,
        one=f"{added.paper.text} GB in addition to {base.paper.text} GB",
        other="100 billion parameters of 4 bytes, 3 copies; 3 of 108 layers, 2 copies",
        calculation=f"12 bytes each are {base.true}, or {base.ours:.1f} GiB; the fragment's 8 bytes each "
        f"are {added.true}, "
        f"or {added.ours:.1f} GiB. The digits are those of GiB.",
    )


def _pcie() -> Inconsistency:
    hundred = TABLE4.networks[2]
    added = memory(int(hundred.params), round(hundred.params * 3 / hundred.layers), OUTER).added_in_hbm
    stated = added / (printed_number("PCIe", "Bandwidth (TB/s)") * 1e12)
    bus = PCIE_LANES * PCIE_GBIT_PER_LANE * PCIE_CODING / 8 * 1e9
    return Inconsistency(
        title="PCIe at memory speed",
        where="section 2.5",
        one=f"PCIe with {printed_text('PCIe', 'Bandwidth (TB/s)')} TB/s",
        other=f"the transfer takes less than {printed_text('PCIe', 'Transfer below (ms)')} ms",
        calculation=f"At the stated speed {added / 1e9:.1f} GB take {stated * 1e3:.1f} ms, already more. "
        "PCIe 5.0 with 16 "
        f"lanes carries {bus / 1e9:.0f} GB/s: {added / bus * 1e3:.0f} ms without sharding.",
    )


def _utilisation_of_flops() -> Inconsistency:
    low, high = printed_number("MFU | section 3.1", "MFU (%)"), printed_number("MFU | Table 4", "MFU (%)")
    ratio = high / low
    return Inconsistency(
        title="Model FLOPs utilisation behind the step times",
        where="section 3.1; Table 4, caption",
        one=f"{low:g} %",
        other=f"{high:g} %",
        calculation=f"Step time is proportional to 1 / MFU, so the two differ by a factor of {ratio:g}; "
        "utilisation depends "
        "on bits / (bandwidth · step time) only, so every bandwidth of Table 4 at 10B and 100B would "
        f"move by {ratio:g} too.",
    )


def _hours_and_bytes() -> Inconsistency:
    shape, budget = model("1B"), printed_number("1B", "Token budget", "table2")
    real = TOKENS_PER_PARAMETER * shape.params_by_rule
    hours = [training_hours(steps_of(tokens), 0.1) for tokens in (budget, real)]
    bits = [rule_bits(shape.params_by_rule, BASELINE_BITS, steps_of(tokens)) for tokens in (budget, real)]
    row = "Data-Parallel | 25B"
    return Inconsistency(
        title="Token budget of Table 1",
        where="Table 1",
        one=f"hours ({_cell('table1', row, 'Hours spent w/ +inf Gbits/s')}) from {real / 1e9:.2f} billion tokens",
        other=f"bytes ({_cell('table1', row, 'Terabytes exchanged')}) from {budget / 1e9:g} billion tokens",
        calculation=f"In batches of 2^20 tokens at 0.1 s a step: {budget / 1e9:g} billion give "
        f"{hours[0]:.3f} h and "
        f"{printed_terabytes(bits[0]):.1f} in the table's unit; {real / 1e9:.2f} billion give "
        f"{hours[1]:.3f} h and "
        f"{printed_terabytes(bits[1]):.1f}. Only hours from the second and bytes from the first print as "
        "published.",
    )


def _tebibits() -> Inconsistency:
    cells = [account for account in account_cells("table7") if account.verdict == "reproduced"]
    first = cells[0]
    shape = model("1B")
    bits = rule_bits(shape.params_by_rule, BASELINE_BITS, steps_of(25e9))
    return Inconsistency(
        title="Terabytes that are tebibits",
        where="Tables 1 and 7",
        one=f"{first.paper.text} terabytes for Data-Parallel at 25B",
        other=f"{first.paper.text} tebibits, with the batch that the hours imply",
        calculation=f"{shape.params_by_rule} parameters · 16 bits · {steps_of(25e9):.0f} steps = "
        f"{bits:.4g} bits = "
        f"{printed_terabytes(bits):.1f} · 2^40 bits = {true_terabytes(bits):.1f} TB. All {len(cells)} "
        "cells of Table 7 "
        "follow this rule. The ratio of 400 is untouched.",
    )


def _rounding() -> Inconsistency:
    dp, ours = (f"{name} | {size}" for name, size in (("Data-Parallel", "25B"), ("Our method, M=2", "100B")))
    accounts = {account.row: account for account in account_cells("table7")}
    return Inconsistency(
        title="Rounded or truncated",
        where="Table 7",
        one=f"{accounts[dp].ours:.2f} printed as {accounts[dp].paper.text} (truncated)",
        other=f"{accounts[ours].ours:.3f} printed as {accounts[ours].paper.text} (rounded)",
        calculation="Both follow from one formula (bits / 2^40), so no single rule prints the whole column.",
    )


def _scales() -> Inconsistency:
    sizes = {cell.row.split(" | ")[0] for cell in load_cells("table5")}
    return Inconsistency(
        title="Number of model scales",
        where='Supplementary Materials, "Scaling performance"; Table 5',
        one=f"{printed_text('model scales', 'Scales')} scales (text)",
        other=f"{len(sizes)} sizes (table)",
        calculation=f"Table 5 has rows for {', '.join(size for size in SIZES if size in sizes)}.",
    )


def _slopes() -> Inconsistency:
    labels = ("Data-Parallel", "Streaming DiLoCo with overlapped FP4 com., H=100")
    points = [published_points(load_cells("table5"), label) for label in labels]
    semi, powers = [loss_slope(p) for p in points], [power_law(p).slope for p in points]
    names = ("Data-Parallel", "Streaming DiLoCo")
    said = [printed_text(f"scaling slope | {name}", "Slope") for name in names]
    return Inconsistency(
        title='"Scaling law slope"',
        where="section 3.2.1; Table 5",
        one=f"slopes of scaling laws: {' and '.join(said)}",
        other="slopes of the loss on ln(FLOPs)",
        calculation=f"Least squares over Table 5: loss on ln(FLOPs) gives {semi[0]:.5f} and "
        f"{semi[1]:.5f}; a power law (ln "
        f"loss on ln FLOPs) gives {powers[0]:.4f} and {powers[1]:.4f}.",
    )


def _flops() -> Inconsistency:
    off, fine = "", []
    for size in SIZES:
        cell = by_place(load_cells("table5"))[size, "Flops"]
        count = model(size).params_by_rule
        flops = 6.0 * count * TOKENS_PER_PARAMETER * count
        low, high = printed_interval(cell)
        if low <= flops <= high:
            fine.append(size)
        else:
            off += f" {size}: {flops:.3g} against {cell.text}."
    return Inconsistency(
        title="FLOPs of Table 5",
        where="Table 5",
        one="6 N · 20 N for " + ", ".join(fine),
        other="something else at 500M",
        calculation="6 N · 20 N with N = 12 d² L + V d prints as published at "
        f"{len(fine)} of {len(SIZES)} sizes; not at{off}",
    )


def _replicas() -> Inconsistency:
    return Inconsistency(
        title="Replicas in Figure 12",
        where='Supplementary Materials, "Number of replicas"; Figure 12, caption',
        one=f"M from 2 to {printed_text('replicas | text', 'Largest M')} (text)",
        other=f"M from 2 to {printed_text('replicas | Figure 12', 'Largest M')} (caption)",
        calculation="Two statements about one figure; there is nothing to compute.",
    )


def _arc_easy() -> Inconsistency:
    cells = [cell for item in ("table1", "table7") for cell in load_cells(item) if cell.column == "Arc Easy"]
    scores = [100 * k / ARC_QUESTIONS for k in range(ARC_QUESTIONS + 1)]
    odd = [c for c in cells if not any(low <= s <= high for s in scores for low, high in [_either(c.text)])]
    value = odd[0].value or 0.0
    below, above = max(s for s in scores if s <= value), min(s for s in scores if s >= value)
    return Inconsistency(
        title="ARC-Easy of Data-Parallel at 25B",
        where="Tables 1 and 7",
        one=f"{odd[0].text} %",
        other=f"scores are k / {ARC_QUESTIONS}",
        calculation=f"The neighbours are {below:.3f} and {above:.3f}: neither rounds nor truncates to "
        f"{odd[0].text}. "
        f"{len(cells) - len(odd)} of the {len(cells)} ARC-Easy cells of the two tables are scores of "
        f"{ARC_QUESTIONS} questions.",
    )


def _either(text: str) -> tuple[float, float]:
    """What may round or truncate to two printed decimals."""
    return float(text) - 0.005, float(text) + 0.01


def _cell(item: str, row: str, column: str) -> str:
    return by_place(load_cells(item))[row, column].text


_FINDERS: tuple[Callable[[], Inconsistency], ...] = (
    _offset_sign,
    _overlapped_steps,
    _memory_units,
    _pcie,
    _utilisation_of_flops,
    _hours_and_bytes,
    _tebibits,
    _rounding,
    *BANDWIDTHS,
    _slopes,
    _scales,
    _flops,
    _replicas,
    _arc_easy,
)
