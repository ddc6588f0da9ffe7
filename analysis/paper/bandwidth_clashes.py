"""Where the paper's bandwidths contradict each other, each with the calculation that shows it."""

from analysis.paper.clash import Inconsistency, printed_text
from analysis.paper.published import by_place, load_cells
from analysis.paper.simulated import table4_cells
from experiments.streaming.table4 import EXPERIMENT as TABLE4
from repro.network.methods import Method, Network, method
from repro.network.scenario import PAPER_GRID, grid_reading, paper_cycle, paper_period, printed_reading
from repro.network.simulate import Cycle, Link, Send, Times, utilisation

KINDS = ("data-parallel", "streaming-fp4")  # whose bandwidths are compared


def _fragment_period() -> Inconsistency:
    places, counts, gaps = by_place(load_cells(TABLE4.name)), [], []
    for shift in (0, -1):
        same = 0
        for network in TABLE4.networks:
            for how in (m for m in TABLE4.methods if m.sends == "fragments"):
                curve = _curve_with_gap(network, how, shift)
                row = f"{network.name} | {how.label}"
                same += sum(
                    printed_reading(grid_reading(curve, t)) == places[row, f"{t:.0%}"].text for t in TABLE4.targets
                )
        counts.append(same)
        gaps.append(", ".join(str(paper_period(-(-n.layers // 3)) + shift) for n in TABLE4.networks))
    said = ", ".join(printed_text(f"fragment period | {n.name}", "Steps") for n in TABLE4.networks)
    total = 3 * len(TABLE4.networks) * len(TABLE4.targets)
    return Inconsistency(
        title="Steps between two fragments",
        where='Supplementary Materials, "Compute utilization"; Table 4',
        one=f"{said} (text)",
        other=f"{gaps[0]} (the simulation behind Table 4)",
        calculation=f"floor(100 / (P + 1)) is {gaps[1]}. Of Table 4's {total} streaming cells {counts[0]} "
        "print as published "
        f"with {gaps[0]} steps and {counts[1]} with {gaps[1]}.",
    )


def _below_target() -> Inconsistency:
    cells = table4_cells()
    short = sum((cell.paper.value or 0) < cell.crossing for cell in cells)
    worst = max(cells, key=lambda cell: cell.crossing / (cell.paper.value or 1))
    return Inconsistency(
        title='"Gbit/s to reach" that don\'t reach',
        where="Table 4",
        one="the bandwidth to reach a compute utilisation",
        other="the last of 50 grid points below it",
        calculation=f"{short} of {len(cells)} printed bandwidths lie below the true crossing; furthest "
        f"off is {worst.row} at "
        f"{worst.column}: {worst.paper.text} printed, {worst.crossing:.3g} needed.",
    )


def _largest_bandwidths() -> Inconsistency:
    places = by_place(load_cells(TABLE4.name))
    target = f"{printed_text('utilisation | Figure 4', 'CU (%)')}%"
    captions = [printed_text(f"Data-Parallel | Figure 4 | {n.name}", "Gbit/s") for n in TABLE4.networks]
    cells = [places[f"{n.name} | {method(KINDS[0]).label}", target] for n in TABLE4.networks]
    ratios = [(cell.value or 0.0) / float(text) for cell, text in zip(cells, captions, strict=True)]
    return Inconsistency(
        title="What Data-Parallel requires",
        where="Figure 4, caption; Table 4",
        one=f"{', '.join(captions)} Gbit/s (caption)",
        other=f"{', '.join(cell.text for cell in cells)} Gbit/s for {target} (table)",
        calculation=f"The table's are {', '.join(f'{ratio:.2f}' for ratio in ratios)} times the caption's, for one "
        "simulation and the utilisation that the caption names.",
    )


def _less_bandwidth() -> Inconsistency:
    places = by_place(load_cells(TABLE4.name))
    pairs = {
        f"{n.name} at {t:.0%}": [places[f"{n.name} | {method(kind).label}", f"{t:.0%}"].value or 0.0 for kind in KINDS]
        for n in TABLE4.networks
        for t in TABLE4.targets
    }
    ratios = {place: plain / ours for place, (plain, ours) in pairs.items()}
    least, most = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    plain, ours = map(method, KINDS)
    fewer = TABLE4.every * plain.bits / ours.bits
    times = printed_text("bandwidth | section 5", "Reduction, ratio")
    return Inconsistency(
        title="Bits that are called bandwidth",
        where="section 5; Table 1, caption; Table 4",
        one=f"{times}× less bandwidth (section 5)",
        other=f"{ratios[least]:.0f}× to {ratios[most]:.0f}× less (Table 4)",
        calculation=f"Of Table 4's printed bandwidths Data-Parallel's over our method's are {ratios[least]:.1f} "
        f"({least}) to {ratios[most]:.1f} ({most}), none of {len(ratios)} as much as {times}. So many times fewer are "
        f"the bits exchanged (Table 1, caption): H = {TABLE4.every} and {plain.bits:g} bits over {ours.bits:g} make "
        f"{fewer:g}.",
    )


def _curve_with_gap(network: Network, how: Method, shift: int) -> Times:
    cycle = paper_cycle(network, how)
    gap = cycle.steps // len(cycle.sends) + shift
    sends = tuple(Send(i * gap, s.layers, s.bits) for i, s in enumerate(cycle.sends))
    moved = Cycle(cycle.layers, gap * len(sends), sends, cycle.delays)
    return utilisation(moved, (network.step_time_s,), Link.of(PAPER_GRID))


BANDWIDTHS = (_largest_bandwidths, _fragment_period, _below_target, _less_bandwidth)
