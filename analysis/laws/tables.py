"""Tables 7, 10, 11, 12 and 13 of the scaling-law paper (arXiv 2503.09799), refitted from the losses that it prints.

Beside its numbers stand ours with their intervals; under Table 7 and 10 the same fits of our own runs. What would need
numbers that the paper doesn't print, the best rates and batches of each size, is listed as such and never guessed.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from analysis.calculated import Calculated, Line, Results, cell_line
from analysis.laws import powers
from analysis.laws.forms import FORMS, HUBER, STARTS, Fitted, fit_form
from analysis.laws.powers import PowerLaw
from analysis.laws.published import (
    DP,
    HALF_UNIT,
    HELD_OUT,
    OF,
    READING,
    REPLICAS,
    SIZES,
    diloco_label,
    law_parameters,
    printed_cell,
    printed_loss,
    printed_losses,
)
from analysis.paper.published import load_cells
from analysis.render import Document, Grid, Notes
from repro.results.read import Result
from repro.spec.experiment import Calculation

METHODS = (DP, *map(diloco_label, REPLICAS))
UNPRINTED = "not decidable from the paper"
WHY_UNPRINTED = "γ and B: the paper prints laws of the best rates and batches, not the best ones of each size."
FITTED = SIZES[:-1]  # of Tables 11 and 13
Points = Mapping[str, Sequence[tuple[float, float]]]  # (N, loss) by method


def refit_table7(spec: Calculation, results: Results) -> Calculated:
    """A and α of each method on the printed losses, with intervals, and α of our own runs."""
    rows, lines = [], []
    for method in METHODS:
        law, (low, high) = independent_law(method), exponent_interval(method)
        slack = powers.rounding_slack([_sizes(SIZES)], printed_losses(method), HALF_UNIT)
        cells = [printed_cell("table7", method, column) for column in ("A", "α")]
        ours = (f"{law.factor:.3f}", f"{law.exponents[0]:.5f}")
        of_cells = (
            cell_line(cells[0], ours[0], tolerance=law.factor * slack[0]),
            cell_line(cells[1], ours[1], slack[1][0]),
        )
        lines += of_cells
        spans = f"{low:.4f} to {high:.4f}"
        rows.append((method, ours[0], cells[0].text, ours[1], spans, cells[1].text, of_cells[1][7]))
    head = ("Method", "A", "Paper: A", "α", "95 % of a bootstrap over sizes", "Paper: α", "Verdict")
    notes = Notes("How to read it", (sentence_on_intervals(), _tolerances(), READING))
    sections = (Grid("L ≈ A N^α on the printed losses", head, tuple(rows)), *_own(spec, results), notes)
    return Calculated(_document(spec, sections), tuple(lines))


def refit_table10(spec: Calculation, results: Results) -> Calculated:
    """A, α and β of the joint law on the printed losses."""
    law, spans = joint_law(SIZES), joint_intervals()
    slack = powers.rounding_slack(_joint_variables(SIZES), _joint_losses(SIZES), HALF_UNIT)
    numbers = {"A": (law.factor, law.factor * slack[0])}
    numbers |= dict(zip(("α", "β"), zip(law.exponents, slack[1], strict=True), strict=True))
    by_name: dict[str, powers.Interval] = dict(zip(("α", "β"), spans, strict=True))
    lines, rows = [], []
    for cell in load_cells("table10", OF):
        if cell.row == "L":
            value, tolerance = numbers[cell.column]
            ours = f"{value:.3f}" if cell.column == "A" else f"{value:.5f}"
            lines.append(cell_line(cell, ours, tolerance=tolerance))
        else:
            lines.append(cell_line(cell, "", word=UNPRINTED))
        span = by_name.get(cell.column) if cell.row == "L" else None
        rows.append(
            (*lines[-1][:3], "" if span is None else f"{span[0]:.4f} to {span[1]:.4f}", cell.text, lines[-1][7])
        )
    head = ("Of", "Number", "Ours", "95 % of a bootstrap over sizes", "Paper", "Verdict")
    notes = Notes("How to read it", (WHY_UNPRINTED, _tolerances(), READING))
    sections = (
        Grid("f ≈ A N^α M^β on the printed losses", head, tuple(rows), left=2),
        *_own_joint(spec, results),
        notes,
    )
    return Calculated(_document(spec, sections), tuple(lines))


def refit_table11(spec: Calculation, results: Results) -> Calculated:
    """Residuals at 2.4B of laws fitted to the sizes below it; losses alone."""
    ours = {f"M = {m} | {kind}": left_out_residual(m, kind) for kind in ("Independent", "Joint") for m in REPLICAS}
    for kind in ("Independent", "Joint"):
        ours[f"Average over M | {kind}"] = statistics.fmean(ours[f"M = {m} | {kind}"] for m in REPLICAS)
    slack = 2 * HALF_UNIT / printed_loss(HELD_OUT, DP)  # of the loss and of its prediction
    lines = [
        cell_line(cell, f"{ours[cell.row]:.5f}", tolerance=slack)
        if cell.column == "L"
        else cell_line(cell, "", word=UNPRINTED)
        for cell in load_cells("table11", OF)
    ]
    notes = Notes(
        "How to read it",
        (f"|ln y − ln ŷ| at {HELD_OUT}, fitted to {FITTED[0]} … {FITTED[-1]}.", WHY_UNPRINTED, READING),
    )
    return Calculated(_document(spec, (_beside(lines), notes)), tuple(lines))


def refit_table12(spec: Calculation, results: Results) -> Calculated:
    """What the laws of 35M to 2.4B say of 4B and 10B, beside the losses there: the paper's own test of them."""
    lines, rows = [], []
    for cell in load_cells("table12", OF):
        size, method, kind = cell.row.split(" | ")
        law = joint_law(SIZES) if kind == "Joint" else independent_law(method)
        replicas = () if kind != "Joint" else (int(method.rpartition(" ")[2]),)
        predicted = law.at(law_parameters(size), *replicas)
        assert cell.value is not None
        word = f"the law is {100 * (predicted / cell.value - 1):+.1f} % off"
        lines.append(cell_line(cell, f"{predicted:.3f}", word=word))
        rows.append((size, method, kind, f"{predicted:.3f}", cell.text, word))
    head = (
        "Size",
        "Method",
        "Settings by the law",
        "Ours: the loss by that law",
        "Paper: the loss trained",
        "Difference",
    )
    notes = Notes(
        "How to read it",
        (
            "The paper trains these models with settings of either law and prints their losses; ours are what the laws "
            "of the losses, refitted up to 2.4B, predict. No run stands behind ours.",
            READING,
        ),
    )
    return Calculated(_document(spec, (Grid("", head, tuple(rows), left=3, last_left=True), notes)), tuple(lines))


def refit_table13(spec: Calculation, results: Results) -> Calculated:
    """Mean residuals at 2.4B of the four forms."""
    fits = fitted_forms()
    slack = HALF_UNIT / printed_loss(HELD_OUT, DP)
    lines = [cell_line(cell, f"{fits[cell.row].residual:.5f}", tolerance=slack) for cell in load_cells("table13", OF)]
    rows = [
        (name, f"{fit.residual:.5f}", cell[5], f"{fit.reached} of {fit.starts}", cell[7])
        for (name, fit), cell in zip(fits.items(), lines, strict=True)
    ]
    head = ("L(N, M) ≈", "Ours", "Paper", "Starts that reach the minimum", "Verdict")
    notes = Notes("How to read it", (*notes_on_forms(), READING))
    return Calculated(_document(spec, (Grid("Mean |ln f − ln L| over M", head, tuple(rows)), notes)), tuple(lines))


def unprinted_laws(spec: Calculation, results: Results) -> Calculated:
    """Tables 8 and 9: laws of settings, kept as printed."""
    lines = [cell_line(cell, "", word=UNPRINTED) for cell in load_cells(spec.name.removeprefix("scaling_laws_"), OF)]
    notes = Notes("How to read it", (WHY_UNPRINTED, "The specs at paper scale take their settings from these laws."))
    return Calculated(_document(spec, (_beside(lines), notes)), tuple(lines))


def independent_law(method: str, sizes: Sequence[str] = SIZES) -> PowerLaw:
    """A N^α of one method on its printed losses."""
    return powers.fit_power_law([_sizes(sizes)], printed_losses(method, sizes))


def exponent_interval(method: str) -> powers.Interval:
    """The bootstrap interval of α over the seven sizes."""
    return powers.bootstrap_intervals([_sizes(SIZES)], printed_losses(method), SIZES)[0]


def joint_law(sizes: Sequence[str]) -> PowerLaw:
    """A N^α M^β on the printed losses of DiLoCo."""
    return powers.fit_power_law(_joint_variables(sizes), _joint_losses(sizes))


def joint_intervals() -> tuple[powers.Interval, ...]:
    """The bootstrap intervals of α and β over the seven sizes."""
    groups = [size for size in SIZES for _ in REPLICAS]
    return powers.bootstrap_intervals(_joint_variables(SIZES), _joint_losses(SIZES), groups)


def left_out_residual(replicas: int, kind: str) -> float:
    """The residual at 2.4B of a law (`Independent` or `Joint`) that hasn't seen that size."""
    n = law_parameters(HELD_OUT)
    law = joint_law(FITTED) if kind == "Joint" else independent_law(diloco_label(replicas), FITTED)
    predicted = law.at(n, replicas) if kind == "Joint" else law.at(n)
    return powers.log_residual(predicted, printed_loss(HELD_OUT, diloco_label(replicas)))


@cache
def fitted_forms() -> dict[str, Fitted]:
    """The four forms on the printed losses up to 1.3B, by name: seconds, so each is fitted once."""
    points = [(law_parameters(size), float(m), printed_loss(size, diloco_label(m))) for size in SIZES for m in REPLICAS]
    count = len(FITTED) * len(REPLICAS)
    return {form.name: fit_form(form, points[:count], points[count:], STARTS) for form in FORMS}


def notes_on_forms() -> Iterator[str]:
    """What differs from the paper's Table 13, and where the paper disagrees with itself."""
    first, *_ = fitted_forms().values()
    elsewhere = printed_cell("table11", "Average over M | Joint", "L").text
    least_squares = statistics.fmean(left_out_residual(m, "Joint") for m in REPLICAS)
    here = printed_cell("table13", FORMS[0].name, "Average Residual").text
    yield (
        f"Huber losses of logarithms with δ = {HUBER:g} (the paper gives none), {first.starts} random starts of "
        f"L-BFGS, all sizes but {HELD_OUT} fitted, of the minima the one that fits {HELD_OUT} best."
    )
    yield (
        f"The first form is the joint law of Table 10, whose mean residual at the same held-out size is {elsewhere} in "
        f"Table 11 and {here} here: the paper disagrees with itself. Our starts end in one minimum and least squares "
        f"give {least_squares:.4f}, so that smaller residuals must be those of fits that stopped short of it. The "
        "order of the four forms is the paper's."
    )


def sentence_on_intervals() -> str:
    """How wide the intervals are beside the difference between methods: what Table 7 can't say."""
    halves = [(high - low) / 2 for low, high in map(exponent_interval, METHODS)]
    gap = abs(independent_law(diloco_label(4)).exponents[0] - independent_law(diloco_label(1)).exponents[0])
    return (
        f"Drawn anew over the seven sizes, the exponents move by ±{min(halves):.4f} to ±{max(halves):.4f}: more than "
        f"the {gap:.4f} between M = 1 and M = 4, so that seven sizes don't tell these exponents from each other."
    )


def _document(spec: Calculation, sections: Sequence[Grid | Notes]) -> Document:
    return Document(f"{spec.title} ({spec.place})", (), tuple(sections))


def _beside(lines: Sequence[Line]) -> Grid:
    head = ("Row", "Column", "Ours", "Paper", "Verdict")
    return Grid("", head, tuple((x[0], x[1], x[2], x[5], x[7]) for x in lines), left=2, last_left=True)


def _tolerances() -> str:
    return "Tolerance: how far the rounding of the printed losses to three decimals can move a number."


def _sizes(sizes: Sequence[str]) -> list[float]:
    return list(map(law_parameters, sizes))


def _joint_variables(sizes: Sequence[str]) -> list[list[float]]:
    return [[law_parameters(size) for size in sizes for _ in REPLICAS], [float(m) for _ in sizes for m in REPLICAS]]


def _joint_losses(sizes: Sequence[str]) -> list[float]:
    return [printed_loss(size, diloco_label(m)) for size in sizes for m in REPLICAS]


def _read(spec: Calculation, results: Results) -> Points:
    return points_by_method([result for name in spec.reads for result in results(name)])


def points_by_method(results: Sequence[Result]) -> Points:
    """(N, mean loss over the seeds) of our finished runs, by method and size."""
    losses: dict[tuple[str, float], list[float]] = {}
    for result in results:
        if result.loss is not None:
            method = result.run.labels[1]
            losses.setdefault((method, result.run.config.model.params_by_rule), []).append(result.loss)
    points: dict[str, list[tuple[float, float]]] = {}
    for (method, n), seeds in losses.items():
        points.setdefault(method, []).append((n, statistics.fmean(seeds)))
    return points


def _own(spec: Calculation, results: Results) -> Iterator[Grid | Notes]:
    """The paper's fits on our own runs; never held against the paper's, whose sizes are others."""
    rows = []
    for method, points in _read(spec, results).items():
        if len(points) < 2:
            continue
        sizes, values = zip(*points, strict=True)
        law = powers.fit_power_law([sizes], values)
        span = powers.bootstrap_intervals([sizes], values, sizes)[0] if len(points) > 2 else None
        words = "" if span is None else f"{span[0]:.4f} to {span[1]:.4f}"
        rows.append((method, f"{law.factor:.3f}", f"{law.exponents[0]:.5f}", words, str(len(points))))
    if rows:
        head = ("Method", "A", "α", "95 % of a bootstrap over sizes", "Sizes")
        yield Grid("The same fits of our own runs, at other sizes: never compared", head, tuple(rows))


def _own_joint(spec: Calculation, results: Results) -> Iterator[Grid | Notes]:
    points = [
        (n, float(method.rpartition(" ")[2]), value)
        for method, by_size in _read(spec, results).items()
        if method != DP
        for n, value in by_size
    ]
    if len({n for n, _, _ in points}) < 2 or len({m for _, m, _ in points}) < 2:
        return
    sizes, replicas, values = zip(*points, strict=True)
    law = powers.fit_power_law([sizes, replicas], values)
    alpha, beta = law.exponents
    row = (f"{law.factor:.3f}", f"{alpha:.5f}", f"{beta:.5f}", str(len(points)))
    yield Grid(
        "The same fit of our own runs, at other sizes: never compared", ("A", "α", "β", "Points"), (row,), left=0
    )
