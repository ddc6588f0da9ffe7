"""Claims that arithmetic decides: bits, memory, hours, the schedule, and the cut into fragments. Nothing is trained."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise

from analysis.claims.judging import REPRODUCED, Finding, Number, as_printed, computed
from analysis.paper.inconsistencies import PCIE_CODING, PCIE_GBIT_PER_LANE, PCIE_LANES
from analysis.paper.published import Published, printed_interval
from analysis.paper.simulated import Account, account_cells, claim_cells
from analysis.paper.statements import cell, value
from experiments.streaming.base import ABLATED, LADDER, OUTER, TOKENS_PER_PARAMETER, dolma, model, streaming
from experiments.streaming.figure6 import SIZES as FRAGMENT_SIZES
from experiments.streaming.table4 import EXPERIMENT as TABLE4
from experiments.streaming.table4 import NETWORKS
from experiments.streaming.table7 import BUDGETS
from repro.network.account import memory, run_bytes, send_bytes
from repro.network.methods import Network, method
from repro.network.scenario import paper_cycle, paper_period
from repro.spec.config import FragmentConfig
from repro.spec.experiment import Side, vary
from repro.spec.formats import FORMATS
from repro.spec.fragments import cut
from repro.spec.schedule import offsets, sync_steps

LAYERS = TABLE4.fragment_layers
NEGLIGIBLE = 0.01  # of the compute between two transfers: our reading


def compression() -> Finding:
    """400 by the rule; the trainer's own payload beside it."""
    ours, dp = dolma(20, streaming(100)), dolma(20, None, replicas=1)
    real = run_bytes(dp) / run_bytes(ours)
    return _account(
        "compression",
        "Bits exchanged, ratio",
        f"With scales and all, the trainer's payload of a whole run gives {real:.0f}.",
    )


def peak() -> Finding:
    """Eight, from 24 layers and fragments of 3."""
    shape = model("1B")
    whole = vary(streaming(100), fragments=FragmentConfig("whole", 1, "merged"))
    real = send_bytes(shape, whole)[0] / max(send_bytes(shape, streaming(100)))
    note = f"With the embedding as a fragment of its own the trainer's largest payload shrinks by {real:.1f}."
    return _account("peak bandwidth", "Reduction, ratio", note)


def peak_factor() -> Finding:
    """|p| / L, for every network of Table 4."""
    shares = [(n.name, _largest(n, "streaming") / _largest(n, "diloco"), LAYERS / n.layers) for n in NETWORKS]
    return computed(
        all(abs(a / b - 1) < 1e-9 for _, a, b in shares),
        "above",
        [(name, share) for name, share, _ in shares],
        "0",
        "stated in the text",
        f"Largest send over the whole model's, fragments of {LAYERS} layers.",
    )


def smaller_fragments() -> Finding:
    """The largest send of layers grows with the fragment, at the ablations' size."""
    shape, shares, embedding = model(ABLATED), [], 0
    for layers in FRAGMENT_SIZES:
        sync = vary(streaming(100), fragments=FragmentConfig("strided", layers, "own"))
        pieces = zip(cut(sync.fragments, shape.layers), send_bytes(shape, sync), strict=True)
        sizes = {piece.embed: size for piece, size in pieces}
        embedding = sizes[True]
        shares.append((f"{layers} layer{'s' if layers > 1 else ''}", sizes[False] / 1e6))
    return computed(
        all(a < b for (_, a), (_, b) in pairwise(shares)),
        "above",
        shares,
        "0",
        "stated in the text",
        f"Largest send of layers in MB with E3M0; the embedding's own fragment sends {embedding / 1e6:.1f} MB.",
    )


def memory_copies() -> Finding:
    """3 copies against 5."""
    return _joined([("memory", "Data-Parallel, copies"), ("memory", "DiLoCo, copies")], "Copies of the parameters.")


def memory_overhead() -> Finding:
    """66 %."""
    return _account("memory", "Overhead (%)", "")


def memory_100b() -> Finding:
    """2 %, 20 over 1,117."""
    row = "memory | 100B"
    cells = [(row, "Base (GB)"), (row, "Additional (GB)"), (row, "Increase (%)")]
    return _joined(cells, "In GiB, which the paper calls GB: " + ", ".join(_claims()[c].true for c in cells[:2]) + ".")


def pcie() -> Finding:
    """The transfer at the stated speed and at that of the bus."""
    hundred = NETWORKS[2]
    added = memory(int(hundred.params), round(hundred.params * LAYERS / hundred.layers), OUTER).added_in_hbm
    stated = 1e3 * added / (value("statements", "PCIe", "Bandwidth (TB/s)") * 1e12)
    bus = 1e3 * added / (PCIE_LANES * PCIE_GBIT_PER_LANE * PCIE_CODING / 8 * 1e9)
    limit = value("statements", "PCIe", "Transfer below (ms)")
    return computed(
        stated < limit,
        "above",
        [("ms at the stated speed", stated), (f"ms over PCIe 5.0 x{PCIE_LANES}", bus)],
        f"below {limit:g} ms",
        "stated in the text",
        f"{added / 1e9:.1f} GB: the outer state of {LAYERS} of {hundred.layers} layers in float32, one way, unsharded.",
    )


def transfer_negligible() -> Finding:
    """The transfer of a fragment beside the compute of the steps between two fragments at 100B, at the bus's speed."""
    hundred = NETWORKS[2]
    added = memory(int(hundred.params), round(hundred.params * LAYERS / hundred.layers), OUTER).added_in_hbm
    period = paper_period(-(-hundred.layers // LAYERS))
    compute = period * hundred.step_time_s
    stated = added / (value("statements", "PCIe", "Bandwidth (TB/s)") * 1e12) / compute
    bus = added / (PCIE_LANES * PCIE_GBIT_PER_LANE * PCIE_CODING / 8 * 1e9) / compute
    return computed(
        bus < NEGLIGIBLE,
        "above",
        [("% at the stated speed", 100 * stated), (f"% over PCIe 5.0 x{PCIE_LANES}", 100 * bus)],
        f"{NEGLIGIBLE:.0%}",
        "our reading",
        f"Of the {compute:.1f} s that {period} steps compute, unsharded. Judged at the speed of the bus, as the "
        "stated one is none of PCIe's (inconsistencies); the transfer can overlap the steps, too.",
    )


def four_bits() -> Finding:
    """One sign bit, three of exponent, none of mantissa."""
    parts = [value("statements", "E3M0", f"{name} bits") for name in ("Sign", "Exponent", "Mantissa")]
    bits = FORMATS["e3m0"].bits
    holds = bits == sum(parts) == value("statements", "E3M0", "Bits")
    note = "The code that the trainer packs; one byte of scale for each row of a matrix comes on top."
    return computed(holds, "above", [("bits a value", bits)], "0", "stated in the text", note)


def syncs_of_two() -> Finding:
    """The example of two fragments, by Algorithm 2."""
    every, count = int(value("statements", "example of section 2.2", "H")), 2
    sync = streaming(every)
    first, second = (sync_steps(sync, count, p, 3 * every)[:2] for p in (0, 1))
    row = "example of section 2.2 | t - t_p"
    wanted = [
        value("statements", "example of section 2.2", "H"),
        value("statements", row, "First fragment, second sync"),
    ]
    wanted += [value("statements", row, f"Second fragment, {which} sync") for which in ("first", "second")]
    numbers = [("first fragment", first[0]), ("again", first[1]), ("second fragment", second[0]), ("again", second[1])]
    holds = [n for _, n in numbers] == wanted
    note = f"Offsets {', '.join(map(str, offsets(every, count)))}; the text's t + t_p gives the same for two fragments."
    return computed(holds, "above", numbers, "0", "stated in the text", note)


def always_h_steps() -> Finding:
    """Steps between a fragment's syncs, over all fragments of Table 4's networks and H of the main runs."""
    gaps, first = set(), []
    for network in NETWORKS:
        count = _fragments(network)
        for every in (30, 100):
            for p in range(count):
                steps = sync_steps(streaming(every), count, p, 5 * every)
                gaps |= {(every, b - a) for a, b in pairwise(steps)}
                first.append(steps[0] - every)
    holds = all(every == gap for every, gap in gaps) and min(first) >= 0
    numbers = [(f"H = {every}", gap) for every, gap in sorted(gaps)]
    return computed(holds, "below", numbers, "0", "stated in the text", "Steps between two syncs of one fragment.")


def more_often() -> Finding:
    """Steps with a sync in a period of H: Streaming's against DiLoCo's one."""
    per_round = [(n.name, len({t % 100 for t in offsets(100, _fragments(n))})) for n in NETWORKS]
    holds = all(count > 1 for _, count in per_round)
    return computed(holds, "below", per_round, "0", "stated in the text", "Syncs in 100 steps, where DiLoCo has one.")


def fragment_counts() -> Finding:
    """8, 16 and 36 fragments."""
    return _exact("Fragments", "fragments", lambda n: _fragments(n), f"Fragments of {LAYERS} layers.")


def fragment_periods() -> Finding:
    """11, 5 and 2 steps."""
    note = "floor(100 / (P + 1)); the simulation behind Table 4 uses one step more."
    return _exact("Steps", "fragment period", lambda n: paper_period(_fragments(n)) - 1, note)


def frozen_layers() -> Finding:
    """All but one fragment's of the 18 layers are frozen."""
    layers = LADDER[ABLATED][0]
    pieces = cut(FragmentConfig("strided", LAYERS, "own"), layers)
    frozen = [layers - len(p.layers) for p in pieces if p.layers]
    percent = 100 * max(frozen) / layers
    holds = set(frozen) == {value("statements", "FedPart", "Layers frozen")}
    low, high = printed_interval(cell("statements", "FedPart", "Layers frozen (%)"))
    numbers = [("layers frozen", max(frozen)), ("percent", percent)]
    return computed(
        holds and low <= percent <= high, "above", numbers, "as printed", "rounding", f"Of {layers} layers."
    )


def flops_c4() -> Finding:
    """6 N · 20 N at both ends of Figure 5."""
    flops = [(size, 6 * TOKENS_PER_PARAMETER * model(size).params_by_rule ** 2) for size in ("35M", "4B")]
    cells = [cell("statements", f"Figure 5 | {size}", "Flops") for size, _ in flops]
    return _printed(flops, cells, "6 N · 20 N, N = 12 d² L + V d.")


def flops_dolma() -> Finding:
    """6 N · tokens at the three budgets of overtraining."""
    params = model("1B").params_by_rule
    flops = [(b, 6 * params * 1e9 * float(b.removesuffix("B"))) for b in BUDGETS]
    return _printed(flops, [cell("statements", f"overtraining | {b}", "Flops") for b in BUDGETS], "6 N · tokens at 1B.")


def hours() -> Finding:
    """All hours of Table 1."""
    accounts = [a for a in account_cells("table1") if a.column.startswith("Hours")]
    return _all_cells(accounts, "Hours")


def terabytes() -> Finding:
    """All terabytes of Table 7."""
    return _all_cells(account_cells("table7"), "Terabytes, in the paper's unit (tebibits)")


def twice_faster() -> Finding:
    """Steps of two replicas over those of four."""
    two, four = (dolma(20, streaming(100), replicas).steps for replicas in (2, 4))
    ratio = two / four
    note = "Steps at one budget with the local batch kept; a step takes as long."
    return computed(abs(ratio - 2) <= 0.01, "below", [("ratio", ratio)], "0.5 %", "our reading", note)


@cache
def _claims() -> Mapping[tuple[str, str], Account]:
    return {(a.row, a.column): a for a in claim_cells()}


def _account(row: str, column: str, note: str) -> Finding:
    account = _claims()[row, column]
    return Finding(account.verdict, (Number(column, account.ours),), "as printed", "rounding", (), note)


def _joined(places: Iterable[tuple[str, str]], note: str) -> Finding:
    """Several counted cells; the first that misses gives the verdict."""
    accounts = [_claims()[place] for place in places]
    worst = next((a.verdict for a in accounts if a.verdict != REPRODUCED), REPRODUCED)
    return Finding(worst, tuple(Number(a.column, a.ours) for a in accounts), "as printed", "rounding", (), note)


def _all_cells(accounts: Sequence[Account], what: str) -> Finding:
    off = [a for a in accounts if a.verdict != REPRODUCED]
    said = f"{what}: {len(accounts) - len(off)} of {len(accounts)} print as published"
    said += (
        "; not " + ", ".join(f"{a.row} at {a.column} ({a.ours:.4g}, printed {a.paper.text})" for a in off)
        if off
        else ""
    )
    numbers = [(f"{a.row}, {a.column}" if what == "Hours" else a.row, a.ours) for a in accounts]
    side: Side = "below" if off and off[0].ours < (off[0].paper.value or 0) else "above"
    return as_printed(len(accounts) - len(off), len(accounts), side, numbers, f"{said}.")


def _printed(numbers: Sequence[tuple[str, float]], cells: Sequence[Published], note: str) -> Finding:
    intervals = [printed_interval(printed) for printed in cells]
    holds = all(low <= number <= high for (_, number), (low, high) in zip(numbers, intervals, strict=True))
    return computed(holds, "above", numbers, "as printed", "rounding", note)


def _exact(column: str, row: str, count: Callable[[Network], int], note: str) -> Finding:
    counts = [(n.name, count(n)) for n in NETWORKS]
    holds = all(number == value("statements", f"{row} | {name}", column) for name, number in counts)
    return computed(holds, "above", counts, "0", "stated in the text", note)


def _fragments(network: Network) -> int:
    return -(-network.layers // LAYERS)


def _largest(network: Network, key: str) -> float:
    return paper_cycle(network, method(key)).largest_send_bits


CLAIMS: dict[str, Callable[[], Finding]] = {
    "each-fragment-h-steps": always_h_steps,
    "example-of-two-fragments": syncs_of_two,
    "communicates-more-often": more_often,
    "peak-factor": peak_factor,
    "four-bits": four_bits,
    "memory-copies": memory_copies,
    "memory-overhead": memory_overhead,
    "memory-100b": memory_100b,
    "pcie": pcie,
    "transfer-negligible": transfer_negligible,
    "flops-c4": flops_c4,
    "hours": hours,
    "compression": compression,
    "peak-reduction": peak,
    "flops-dolma": flops_dolma,
    "smaller-fragments-lower-peak": smaller_fragments,
    "frozen-layers": frozen_layers,
    "fragment-counts": fragment_counts,
    "fragment-periods": fragment_periods,
    "terabytes": terabytes,
    "twice-faster": twice_faster,
}
