"""Claims about compute utilisation, each decided by the simulator: §3.1, §3.3.2, the appendix. Nothing is trained."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np

from analysis.claims.judging import Finding, as_printed, computed
from analysis.paper.simulated import EVERY, hours_at, table4_cells
from analysis.paper.statements import cell, value
from experiments.streaming.base import TOKENS_PER_PARAMETER, model
from experiments.streaming.figure7 import EXPERIMENT as FIGURE7
from experiments.streaming.figure9 import EXPERIMENT as FIGURE9
from experiments.streaming.figure14 import EXPERIMENT as FIGURE14
from experiments.streaming.figure15 import EXPERIMENT as FIGURE15
from experiments.streaming.figure16 import EXPERIMENT as FIGURE16
from experiments.streaming.table4 import EXPERIMENT as TABLE4
from experiments.streaming.table4 import NETWORKS
from repro.network.account import steps_of
from repro.network.methods import METHODS, Method, Network, method
from repro.network.scenario import PAPER_GRID, least_bandwidth, paper_cycle, paper_period
from repro.network.simulate import Link, Times, trace, utilisation

DP, FP4 = method("data-parallel"), method("streaming-fp4")
DILOCO, STREAMING, OVERLAP = method("diloco"), method("streaming"), method("streaming-overlap")
HUNDRED = NETWORKS[2]
BIN = float(PAPER_GRID[1] / PAPER_GRID[0])
ROUNDING = 1e-9  # of floating-point sums of node times
CLOSE = 0.95  # our reading of "close to 100 %": the level of Figure 4's caption
TWO_ORDERS = 100.0


@cache
def crossings(network: Network, how: Method, every: int = EVERY) -> dict[float, float]:
    """Gbit/s at which each of Table 4's targets is truly reached."""
    cycle = paper_cycle(network, how, every)
    return dict(zip(TABLE4.targets, least_bandwidth(cycle, (network.step_time_s,), TABLE4.targets), strict=True))


@cache
def curve(network: Network, how: Method) -> Times:
    """Compute utilisation over the paper's grid."""
    return used(network, how, PAPER_GRID)


def used(network: Network, how: Method, gbit_per_s: Times | float, latency_s: float = 0.0) -> Times:
    """Compute utilisation at any bandwidths, by the paper's schedule."""
    return utilisation(paper_cycle(network, how), (network.step_time_s,), Link.of(gbit_per_s, latency_s))


def table4() -> Finding:
    """All cells of Table 4 as printed; how far the others are off, in bins of the paper's grid."""
    cells = table4_cells()
    ratios = [float(c.text) / (c.paper.value or 1.0) for c in cells]
    same = sum(c.verdict == "reproduced" for c in cells)
    furthest = max(ratios, key=lambda r: abs(np.log(r)))
    return as_printed(
        same,
        len(cells),
        "below" if furthest < 1 else "above",
        [("cells that print as published", same), ("of", len(cells)), ("furthest ratio", furthest)],
        f"{same} of {len(cells)} cells print as published; the others stand one bin of the grid low, a factor of "
        f"{BIN:.3f} before both are rounded to one decimal.",
    )


def figure4_ours() -> Finding:
    """The bandwidth of 95 % with overlapped FP4 lies between the two printed ones at all three sizes."""
    needed = [(n.name, crossings(n, FP4)[0.95]) for n in NETWORKS]
    low, high = (value("statements", "our method | Figure 4", f"{which} Gbit/s") for which in ("Least", "Most"))
    off = "below" if min(g for _, g in needed) < low else "above"
    holds = all(low <= g <= high for _, g in needed)
    return computed(holds, off, needed, f"{low:g} to {high:g}", "stated in the text", "Gbit/s where 95 % is reached.")


def figure4_dp() -> Finding:
    """The bandwidth of 95 % with data-parallel, against the three of the caption."""
    needed = [(n.name, crossings(n, DP)[0.95]) for n in NETWORKS]
    stated = [value("statements", f"Data-Parallel | Figure 4 | {n.name}", "Gbit/s") for n in NETWORKS]
    at = [float(used(n, DP, g)) for n, g in zip(NETWORKS, stated, strict=True)]
    cells = ", ".join(cell("table4", f"{n.name} | Data-Parallel", "95%").text for n in NETWORKS)
    return computed(
        all(g / s < BIN and s / g < BIN for (_, g), s in zip(needed, stated, strict=True)),
        "above",
        needed,
        f"a factor of {BIN:.3f}",
        "grid bin",
        f"Gbit/s where 95 % is reached; Table 4 prints {cells}. At the caption's bandwidths utilisation is "
        f"{', '.join(f'{u:.0%}' for u in at)}.",
    )


def two_orders() -> Finding:
    """Data-parallel's bandwidth over ours at equal utilisation, all of Table 4's targets."""
    ratios = [crossings(n, DP)[t] / crossings(n, FP4)[t] for n in NETWORKS for t in TABLE4.targets]
    return computed(
        min(ratios) >= TWO_ORDERS,
        "below",
        [("least ratio", min(ratios)), ("greatest ratio", max(ratios))],
        f"at least {TWO_ORDERS:g}",
        "our reading",
        f"Bandwidth for the same utilisation, {', '.join(f'{t:.0%}' for t in TABLE4.targets)} at three sizes.",
    )


def streaming_improves() -> Finding:
    """Streaming over DiLoCo with exactly as many bits a step."""
    gains = []
    for network in NETWORKS:
        streaming, whole = paper_cycle(network, STREAMING), paper_cycle(network, DILOCO)
        equal = streaming.scaled(whole.bits / whole.steps / (streaming.bits / streaming.steps))
        step, link = (network.step_time_s,), Link.of(PAPER_GRID)
        gains.append((network.name, utilisation(equal, step, link) - utilisation(whole, step, link)))
    least = min(float(g.min()) for _, g in gains)
    return computed(
        least >= -ROUNDING,
        "below",
        [(f"{name}, largest gain", float(g.max())) for name, g in gains] + [("least gain", least)],
        "0",
        "stated in the text",
        "Utilisation of Streaming less DiLoCo's on the 50 bandwidths of the paper's grid, both sending the same bits "
        f"a step (the simulation's fragments recur every {', '.join(str(_period(n)) for n in NETWORKS)} steps).",
    )


def only_overlap_full() -> Finding:
    """Full utilisation at 1000 Gbit/s with overlap, and never without."""
    best = float(PAPER_GRID[-1])
    best_use = [(f"{m.label}", max(float(used(n, m, best)) for n in NETWORKS)) for m in METHODS]
    full = [name for name, u in best_use if u >= 1 - ROUNDING]
    return computed(
        full == [OVERLAP.label, FP4.label],
        "above",
        [(name, 100 * max(1 - u, 0.0) if u < 1 - ROUNDING else 0.0) for name, u in best_use],
        "0",
        "stated in the text",
        f"Percent of the time lost at {best:g} Gbit/s; without overlap the last reduction is always waited for.",
    )


def bandwidth_falls_with_size() -> Finding:
    """With overlap the bandwidth of 95 % falls from size to size, with data-parallel it rises."""
    needed = {m.label: [crossings(n, m)[0.95] for n in NETWORKS] for m in (OVERLAP, FP4)}
    rises = [crossings(n, FP4)[0.5] for n in NETWORKS]
    return computed(
        all(a > b for line in needed.values() for a, b in pairwise(line)),
        "above",
        [(f"{n.name}, {label}", g) for label, line in needed.items() for n, g in zip(NETWORKS, line, strict=True)],
        "0",
        "stated in the text",
        f"Gbit/s where 95 % is reached. At 50 % it rises: {', '.join(f'{g:.3g}' for g in rises)} Gbit/s with FP4.",
    )


def overlap_same_bytes() -> Finding:
    """Overlap sends what Streaming sends, and utilisation rises."""
    bits = [paper_cycle(HUNDRED, m).bits for m in (STREAMING, OVERLAP)]
    gain = curve(HUNDRED, OVERLAP) - curve(HUNDRED, STREAMING)
    holds = bits[0] == bits[1] and float(gain.min()) >= -ROUNDING and float(gain.max()) > 0
    numbers = [("bits with over without", bits[1] / bits[0]), ("largest gain in utilisation", float(gain.max()))]
    return computed(holds, "below", numbers, "0", "stated in the text", "At 100B, over the paper's grid.")


def overlap_saves_time() -> Finding:
    """Hours at 1 Gbit/s of Table 1's smallest budget, without and with overlap."""
    steps = steps_of(TOKENS_PER_PARAMETER * model("1B").params_by_rule)
    hours = [(how.label, hours_at(NETWORKS[0], how, 1.0, steps)) for how in (STREAMING, OVERLAP)]
    holds = hours[1][1] < hours[0][1]
    return computed(holds, "above", hours, "0", "stated in the text", "Hours of the 1B model at 1 Gbit/s.")


def latency() -> Finding:
    """With τ = 1 the link may take a whole compute step; without overlap that costs utilisation."""
    lost = [(n.name, 1 - float(used(n, FP4, float("inf"), n.step_time_s))) for n in NETWORKS]
    dp = [1 - float(used(n, DP, float("inf"), n.step_time_s)) for n in NETWORKS]
    return computed(
        max(loss for _, loss in lost) < 0.001,
        "above",
        [(f"{name}, lost (%)", 100 * loss) for name, loss in lost],
        "0.1 %",
        "our reading",
        f"Utilisation lost to a latency of one compute step at infinite bandwidth; data-parallel loses "
        f"{', '.join(f'{loss:.0%}' for loss in dp)}.",
    )


def nodes() -> Finding:
    """Nodes of one step with all layers reduced, for three depths."""
    per_layer = value("statements", "simulator", "Nodes a layer")
    counts = []
    for network in NETWORKS:
        step = trace(paper_cycle(network, DP), (network.step_time_s,), 1.0, 1)
        counts.append((f"L = {network.layers}", len(step), per_layer * network.layers - 1))
    holds = all(n == wanted for _, n, wanted in counts)
    return computed(
        holds, "above", [(name, n) for name, n, _ in counts], "0", "stated in the text", "Nodes of one step."
    )


def larger_delay() -> Finding:
    """The bandwidth of 95 % at 100B for τ = 1, 2 and 5."""
    needed = [(m.label, crossings(HUNDRED, m)[0.95]) for m in FIGURE9.methods if m.delay in (1, 2, 5)]
    holds = all(a > b for (_, a), (_, b) in pairwise(needed))
    return computed(holds, "above", needed, "0", "stated in the text", "Gbit/s where 95 % is reached at 100B.")


def little_after_five() -> Finding:
    """What τ = 10 gains over τ = 5 at 100B, beside what 5 gains over 1."""
    delays = {m.delay: m for m in FIGURE9.methods}
    late = float((curve(HUNDRED, delays[10]) - curve(HUNDRED, delays[5])).max())
    early = float((curve(HUNDRED, delays[5]) - curve(HUNDRED, delays[1])).max())
    late = late if late > ROUNDING else 0.0
    return computed(
        late < early / 10,
        "above",
        [("largest gain from 5 to 10", late), ("largest gain from 1 to 5", early)],
        "a tenth of the gain from 1 to 5",
        "our reading",
        "Utilisation at 100B over the paper's grid: beyond τ = 5 the link, not the wait, is what limits.",
    )


def strided_utilisation() -> Finding:
    """Figure 7: strided less sequential, without and with overlap."""
    how = {m.key: m for m in FIGURE7.methods}
    gaps = [
        (how[key].label, curve(HUNDRED, how[key]) - curve(HUNDRED, how[key.replace("strided", "sequential")]))
        for key in ("strided", "strided-overlap")
    ]
    return computed(
        all(float(g.min()) >= -ROUNDING and float(g.max()) > 0 for _, g in gaps),
        "below",
        [(f"{name}, largest", float(g.max())) for name, g in gaps],
        "0",
        "stated in the text",
        "Utilisation of strided fragments less that of sequential ones, over the paper's grid.",
    )


def early_layers_apart() -> Finding:
    """Neither the drawing nor Table 4's networks send two of the first P layers together when strided."""
    worst = 0
    for network in NETWORKS:
        sends = paper_cycle(network, STREAMING).sends
        worst = max(worst, *(sum(layer <= len(sends) for layer in send.layers) for send in sends))
    step, link = (FIGURE14.network.step_time_s,), Link.of(FIGURE14.gbit_per_s)
    sequential, strided = (float(utilisation(cycle, step, link)) for _, cycle in FIGURE14.schedules)
    return computed(
        worst == 1 and strided > sequential,
        "above",
        [("most of the first P layers sent together", worst), ("strided", strided), ("sequential", sequential)],
        "0",
        "stated in the text",
        "P fragments: of its first P layers a network sends one at a time; utilisation of Figure 14's two schedules.",
    )


def roughly_every() -> Finding:
    """Steps after which a fragment is sent again."""
    steps_between = [(n.name, float(_period(n))) for n in NETWORKS]
    return computed(
        all(abs(steps / EVERY - 1) <= 0.1 for _, steps in steps_between),
        "below",
        steps_between,
        "10 %",
        "our reading",
        "Steps between two sends of one fragment in the simulation behind Table 4; by the text's own periods they "
        f"are {', '.join(str(_fragments(n) * (paper_period(_fragments(n)) - 1)) for n in NETWORKS)}.",
    )


def larger_h() -> Finding:
    """The bandwidth of 95 % of DiLoCo at 1B for H = 30, 100 and 500."""
    needed = [(f"H = {h}", crossings(NETWORKS[0], DILOCO, h)[0.95]) for h in (30, 100, 500)]
    holds = all(a > b for (_, a), (_, b) in pairwise(needed))
    return computed(holds, "above", needed, "0", "stated in the text", "Gbit/s where DiLoCo reaches 95 % at 1B.")


def longer_steps() -> Finding:
    """Figure 15: utilisation never falls as the step gets longer, for any method and bandwidth."""
    lines = [[used(n, m, PAPER_GRID[::3]) for n in FIGURE15.networks] for m in METHODS]
    gains = [float((b - a).min()) for line in lines for a, b in pairwise(line)]
    return computed(
        min(gains) >= -ROUNDING,
        "below",
        [("least gain", min(gains))],
        "0",
        "stated in the text",
        f"Five methods, steps of {', '.join(f'{n.step_time_s:g}' for n in FIGURE15.networks)} s, every third "
        "bandwidth of the paper's grid.",
    )


def deepseek_ours() -> Finding:
    """Overlapped FP4 on DeepSeek-V3 at the printed bandwidth."""
    at = value("statements", "DeepSeek-V3", "Gbit/s for close to 100%")
    return _deepseek(FP4, at, f"Data-parallel has {float(used(FIGURE16.networks[1], DP, at)):.1%} there.")


def deepseek_dp() -> Finding:
    """Data-parallel on DeepSeek-V3 at the printed bandwidth."""
    return _deepseek(DP, 1000 * value("statements", "DeepSeek-V3 | Data-Parallel", "Tbit/s for close to 100%"), "")


def _deepseek(how: Method, gbit_per_s: float, note: str) -> Finding:
    reached = float(used(FIGURE16.networks[1], how, gbit_per_s))
    sentence = f"Utilisation in percent at {gbit_per_s:g} Gbit/s, with 61 layers, which the paper doesn't give. {note}"
    return computed(
        reached >= CLOSE, "below", [(how.label, 100 * reached)], f"{CLOSE:.0%}", "our reading", sentence.strip()
    )


def _fragments(network: Network) -> int:
    return -(-network.layers // TABLE4.fragment_layers)


def _period(network: Network) -> int:
    return paper_cycle(network, STREAMING).steps


CLAIMS: dict[str, Callable[[], Finding]] = {
    "two-orders-of-bandwidth": two_orders,
    "overlap-saves-time": overlap_saves_time,
    "figure4-ours": figure4_ours,
    "figure4-data-parallel": figure4_dp,
    "nodes": nodes,
    "overlap-same-bytes": overlap_same_bytes,
    "streaming-improves-utilisation": streaming_improves,
    "only-overlap-full": only_overlap_full,
    "bandwidth-falls-with-size": bandwidth_falls_with_size,
    "latency-of-a-step": latency,
    "strided-utilisation": strided_utilisation,
    "larger-delay-less-bandwidth": larger_delay,
    "little-gain-after-five": little_after_five,
    "larger-h-less-bandwidth": larger_h,
    "early-layers-apart": early_layers_apart,
    "roughly-every-h": roughly_every,
    "table4": table4,
    "longer-steps": longer_steps,
    "deepseek-ours": deepseek_ours,
    "deepseek-data-parallel": deepseek_dp,
}
