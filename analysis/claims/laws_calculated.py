"""Statements of the scaling-law paper (arXiv 2503.09799) that its own cells, the simulator or an account decide."""

from collections.abc import Callable

from analysis.claims.judging import Finding, computed, not_decidable
from analysis.laws import powers, tables
from analysis.laws.forms import FORMS
from analysis.laws.published import (
    DP,
    EXTRAPOLATED,
    HALF_UNIT,
    HELD_OUT,
    OF,
    SIZES,
    diloco_label,
    law_parameters,
    printed_cell,
    printed_loss,
)
from analysis.laws.wallclock import timed_points
from analysis.paper.bandwidth import EXACT, NEAR, OFF, bandwidth_readings
from analysis.paper.published import load_cells, printed_interval
from experiments.scaling_laws.table6 import EVERY_STEP, h_schedules

FEW_PERCENT = 5.0  # our reading of "a few percentage points"
SETTLED = SIZES[3:]  # from 335M on
AT_TARGET = "80%"


def law_exponents() -> Finding:
    """Table 7's, each within what the rounding of its losses allows."""
    numbers, slacks, holds = [], [], True
    for method in tables.METHODS:
        ours = tables.independent_law(method).exponents[0]
        slack = powers.rounding_slack([[*map(law_parameters, SIZES)]], tables.printed_losses(method), HALF_UNIT)[1][0]
        low, high = printed_interval(printed_cell("table7", method, "α"))
        holds &= low - slack <= ours <= high + slack
        numbers.append((method, ours))
        slacks.append(slack)
    return computed(holds, "below", numbers, f"{max(slacks):.2g}", "rounding", tables.sentence_on_intervals())


def law_joint() -> Finding:
    """Table 10's exponents of the loss."""
    law = tables.joint_law(SIZES)
    cells = [printed_cell("table10", "L", name) for name in ("α", "β")]
    slacks = (0.0001, 0.0001)
    holds = all(
        printed_interval(cell)[0] - slack <= ours <= printed_interval(cell)[1] + slack
        for cell, ours, slack in zip(cells, law.exponents, slacks, strict=True)
    )
    numbers = zip(("α", "β"), law.exponents, strict=True)
    return computed(holds, "below", numbers, f"{slacks[0]:g}", "rounding", f"A is {law.factor:.3f}.")


def laws_equal_on_loss() -> Finding:
    """The mean residuals of both kinds of fit, which print alike."""
    numbers = [
        (kind, sum(tables.left_out_residual(m, kind) for m in (1, 2, 4, 8)) / 4) for kind in ("Independent", "Joint")
    ]
    gap = abs(numbers[0][1] - numbers[1][1])
    sentence = f"They differ by {gap:.5f} on the mean over M, and by up to a factor of two for single M (Table 11)."
    return computed(gap < HALF_UNIT, "above", numbers, f"{HALF_UNIT:g}", "rounding", sentence)


def laws_better_on_rates() -> Finding:
    """It needs the best rates."""
    return not_decidable(
        "The best inner rates of each size aren't printed; section 6.3 says the contrary of its Table 11."
    )


def laws_extrapolate() -> Finding:
    """What the refitted laws say of 4B and 10B, beside the losses trained there."""
    numbers = []
    for size in EXTRAPOLATED:
        n = law_parameters(size)
        for m in (1, 2, 4):
            predicted = tables.joint_law(SIZES).at(n, m)
            numbers.append((f"{size}, M = {m}", 100 * (predicted / printed_loss(size, diloco_label(m)) - 1)))
        predicted = tables.independent_law(DP).at(n)
        numbers.append((f"{size}, {DP}", 100 * (predicted / printed_loss(size, DP) - 1)))
    holds = all(abs(percent) <= FEW_PERCENT for _, percent in numbers)
    sentence = "Predicted over trained, less 1, percent; every law lies below, the further the larger the model."
    return computed(holds, "below", numbers, f"{FEW_PERCENT:g} %", "our reading", sentence)


def third_form_best() -> Finding:
    """The order of the four residuals, and the least one against its cell."""
    residuals = {name: fit.residual for name, fit in tables.fitted_forms().items()}
    best = min(residuals, key=residuals.__getitem__)
    cell = printed_cell("table13", FORMS[2].name, "Average Residual")
    slack = HALF_UNIT / printed_loss(HELD_OUT, DP)
    holds = best == FORMS[2].name and residuals[best] <= printed_interval(cell)[1] + slack
    sentence = " ".join(tables.notes_on_forms())
    return computed(holds, "above", residuals.items(), f"{slack:.2g}", "rounding", sentence)


def forms_with_constant() -> Finding:
    """The two of which the paper says so are the two worst here, too."""
    residuals = {name: fit.residual for name, fit in tables.fitted_forms().items()}
    power, constant, exponent, additive = (residuals[form.name] for form in FORMS)
    holds = min(power, additive) > max(constant, exponent)
    sentence = "Residuals of one held-out size have no spread, so nothing says how significant the difference is."
    return computed(holds, "below", residuals.items(), "0", "our reading", sentence)


def outer_rate_by_m() -> Finding:
    """Figure 7's printed values."""
    best = {}
    for m in (1, 2, 4, 8):
        best[m] = {
            printed_cell("figure7", f"{size} | {diloco_label(m)}", "Best outer learning rate").value for size in SETTLED
        }
    rates = [min(values) for values in best.values() if None not in values]  # type: ignore[type-var]
    holds = all(len(values) == 1 for values in best.values()) and rates == sorted(rates) and rates[0] < rates[-1]
    sentence = (
        "The grid has steps of 0.2; M = 2 and M = 4 print the same. At 35M to 180M the best rates differ by one step."
    )
    numbers = [(f"M = {m}", rate) for m, rate in zip(best, rates, strict=True)]
    return computed(holds, "below", numbers, "0", "stated in the text", sentence)  # type: ignore[arg-type]


def bandwidth_by_h() -> Finding:
    """Table 6 by the steady state, cell by cell."""
    readings = bandwidth_readings(h_schedules(), load_cells("table6", OF))
    words = [r.verdict for r in readings if not r.cell.row.endswith(EVERY_STEP)]
    numbers = [("exact", words.count(EXACT)), ("within one bin", words.count(NEAR)), ("off", words.count(OFF))]
    sentence = (
        f"Of {len(words)} cells; those that differ are all above the paper's. `build scaling_laws_table6` has each."
    )
    return computed(words.count(OFF) == 0, "above", numbers, "one bin", "grid bin", sentence)


def longer_h_less() -> Finding:
    """Every printed utilisation of Table 6, from H to the next longer one."""
    rows: dict[str, list[float]] = {}
    for reading in bandwidth_readings(h_schedules(), load_cells("table6", OF)):
        network, method = reading.cell.row.split(" | ")
        if method != EVERY_STEP:
            rows.setdefault(f"{network}, {reading.cell.column}", []).append(float(reading.text.rstrip("+")))
    holds = all(needed == sorted(needed, reverse=True) and needed[0] > needed[-1] for needed in rows.values())
    numbers = [(name, needed[0] / needed[-1]) for name, needed in rows.items() if name.endswith(AT_TARGET)]
    sentence = "Data-Parallel's Gbit/s over those of H = 300, which lie ever lower from H to H in all columns."
    return computed(holds, "below", numbers, "one bin", "grid bin", sentence)


def faster_everywhere() -> Finding:
    """Idealised hours of Data-Parallel over those of M = 1 and 2, at the batches of the laws."""
    points = {(p.size, p.network, p.replicas): p.closed_s for p in timed_points()}
    numbers = []
    for m in (1, 2):
        times = [points[size, name, 0] / seconds for (size, name, replicas), seconds in points.items() if replicas == m]
        numbers += [(f"M = {m}, least", min(times)), (f"M = {m}, most", max(times))]
    holds = all(ratio > 1 for _, ratio in numbers)
    sentence = "Seconds of Data-Parallel over those of DiLoCo; batches by Table 9's laws, a chip for each sequence."
    return computed(holds, "below", numbers, "1", "our reading", sentence)


CLAIMS: dict[str, Callable[[], Finding]] = {
    "law-exponents": law_exponents,
    "law-joint": law_joint,
    "laws-equal-on-loss": laws_equal_on_loss,
    "laws-joint-better-on-rates": laws_better_on_rates,
    "laws-extrapolate": laws_extrapolate,
    "forms-third-best": third_form_best,
    "forms-with-constant": forms_with_constant,
    "outer-rate-by-m": outer_rate_by_m,
    "bandwidth-by-h": bandwidth_by_h,
    "longer-h-less-bandwidth": longer_h_less,
    "faster-everywhere": faster_everywhere,
}
