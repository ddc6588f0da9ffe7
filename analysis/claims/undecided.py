"""What no run, simulation or account can decide: statements that need what the paper doesn't give, or that clash."""

from collections.abc import Callable

from analysis.claims.judging import Finding, not_decidable
from analysis.paper.published import load_cells
from analysis.paper.statements import cell, value
from experiments.streaming.base import SIZES, TOKENS_PER_PARAMETER, model
from experiments.streaming.table4 import NETWORKS


def scales() -> Finding:
    """Six in the text, seven in the table."""
    sizes = {c.row.split(" | ")[0] for c in load_cells("table5")}
    return not_decidable(f"Table 5 has {len(sizes)} sizes: text and table disagree.")


def largest_m() -> Finding:
    """Eight in the text, four in the caption."""
    other = cell("statements", "replicas | Figure 12", "Largest M").text
    return not_decidable(f"The caption of Figure 12 says {other}; the figure's values aren't printed.")


def mfu_text() -> Finding:
    """40 % in §3.1."""
    return _mfu("MFU | Table 4")


def mfu_table4() -> Finding:
    """60 % under Table 4."""
    return _mfu("MFU | section 3.1")


def _mfu(other: str) -> Finding:
    times = ", ".join(f"{n.name} {n.step_time_s:g} s" for n in NETWORKS)
    return not_decidable(
        f"Elsewhere it is {cell('statements', other, 'MFU (%)').text} %; the step times ({times}) follow from it only "
        "with chips and batch, which aren't given."
    )


def step_times() -> Finding:
    """0.1, 0.8 and 4.9 s."""
    first, *rest = NETWORKS
    work = [n.params / first.params for n in rest]
    return not_decidable(
        "Chips, batch and chip type aren't given. With one batch and one number of chips FLOPs would make them "
        f"{' and '.join(f'{first.step_time_s * w:g}' for w in work)} s after {first.step_time_s:g} s."
    )


def chinchilla() -> Finding:
    """Tokens a parameter behind Table 2's budgets."""
    ratios = {size: value("table2", size, "Token budget") / model(size).params_by_rule for size in SIZES}
    low, high = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    return not_decidable(
        f"No ratio is stated. The printed budgets are {ratios[low]:.1f} ({low}) to {ratios[high]:.1f} ({high}) tokens "
        f"a parameter; the FLOPs of Table 5 follow {TOKENS_PER_PARAMETER}."
    )


def trade_off() -> Finding:
    """Three layers a fragment."""
    return not_decidable(
        "Figure 6 has no printed numbers and no rule weighs loss against bandwidth; its parts are claims of their own."
    )


def fits_memory() -> Finding:
    """The fragment fits when nothing else is live."""
    return not_decidable("It depends on a device, a sharding and activations that the paper doesn't give.")


def estimates() -> Finding:
    """Step times of Llama 405B and DeepSeek-V3."""
    return not_decidable(
        "Both are estimates from other papers, 'the most charitable' of several; how they were made isn't said."
    )


def early_m() -> Finding:
    """Ties with more replicas."""
    return not_decidable("A surmise of the paper, without runs.")


CLAIMS: dict[str, Callable[[], Finding]] = {
    "memory-fits": fits_memory,
    "mfu-text": mfu_text,
    "chinchilla-budget": chinchilla,
    "fragment-trade-off": trade_off,
    "ties-with-more-replicas": early_m,
    "largest-m": largest_m,
    "mfu-table4": mfu_table4,
    "step-times": step_times,
    "step-times-of-others": estimates,
    "six-scales": scales,
}
