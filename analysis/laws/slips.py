"""What follows from the scaling-law paper's own digits (arXiv 2503.09799), and where it disagrees with itself.

Every printed number is read from data/papers, every other is computed here; no run stands behind any.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from analysis.calculated import Calculated, Line, Results, cell_line
from analysis.laws.forms import FORMS
from analysis.laws.published import DP, EXTRAPOLATED, OF, SIZES, diloco_label, printed_cell, printed_loss
from analysis.paper.published import Published, by_place, load_cells
from analysis.render import Document, Grid, Notes
from experiments.papers import DEFAULT
from repro.spec.experiment import Calculation

TOKENS_PER_PARAMETER = 20
RELATIVE, BUDGET, RESIDUAL = "Relative (%)", "Token Budget", "Average Residual"
TARGETS = ("50%", "80%", "90%", "95%", "99%")
SUFFIX = {"M": 1e6, "B": 1e9}
TEN = "Chinchilla 10B"


@dataclass(frozen=True)
class Slip:
    """A place where printed numbers can't both be right, with both."""

    place: str
    prints: str
    against: str


def paper_accounts(spec: Calculation, results: Results) -> Calculated:
    """Budgets of Table 3 and percentages of Tables 4 and 5, each from the paper's own digits."""
    lines = [*_budgets(), *_percentages()]
    rows = tuple((x[0], x[1], x[2], x[5], x[7]) for x in lines)
    notes = Notes(
        "How they are counted",
        (
            f"Tokens: {TOKENS_PER_PARAMETER} times the number in the size's name. Percentages: of the printed losses, "
            "which are rounded to three decimals, so that a percentage may move by 0.04.",
        ),
    )
    head = ("Row", "Column", "Ours", "Paper", "Verdict")
    grid = Grid("", head, rows, left=2, last_left=True)
    return Calculated(Document(f"{spec.title} ({spec.place})", (), (grid, notes)), tuple(lines))


def paper_slips(spec: Calculation, results: Results) -> Calculated:
    """All of them, a sentence each."""
    slips = tuple(all_slips())
    notes = Notes("", tuple(f"{slip.place}: {slip.prints}. But {slip.against}." for slip in slips))
    lines = tuple((slip.place, "", slip.against, "", "", slip.prints, "", "disagree", "") for slip in slips)
    return Calculated(Document(f"{spec.title} ({spec.place})", (), (notes,)), lines)


def all_slips() -> Iterator[Slip]:
    """Each is computed: one that the cells no longer bear out would not be listed."""
    for row, column, ours, _, _, paper, _, word, _ in (*_budgets(), *_percentages()):
        if word != "reproduced":
            table = "Table 3" if column == BUDGET else "Table 5" if row.split(" | ")[0] in EXTRAPOLATED else "Table 4"
            yield Slip(f"{table}, {row}, {column}", paper, f"it is {ours} by the paper's own digits")
    yield from _other_tables()
    yield from _residuals()
    yield from _text()


def _budgets() -> Iterator[Line]:
    for cell in load_cells("table3", OF):
        if cell.column == BUDGET:
            tokens = TOKENS_PER_PARAMETER * float(cell.row[:-1]) * SUFFIX[cell.row[-1]]
            word = (
                "reproduced" if tokens == cell.value else "deviates above" if tokens > _of(cell) else "deviates below"
            )
            yield cell_line(cell, f"{tokens / 1e9:g}B" if tokens >= 1e9 else f"{tokens / 1e6:g}M", word=word)


def _percentages() -> Iterator[Line]:
    for item in ("table4", "table5"):
        for cell in load_cells(item, OF):
            if cell.column == RELATIVE:
                size, method = cell.row.split(" | ")
                least = printed_loss(size, DP)
                relative = 100 * (printed_loss(size, method) / least - 1)
                yield cell_line(cell, f"{relative:+.3f}", tolerance=0.1 / least)  # 0.0005 of both losses


def _other_tables() -> Iterator[Slip]:
    """Rows of Table 6 that another simulated table of the same group prints differently, or of another model."""
    theirs = by_place(load_cells("table4", DEFAULT))
    ours = [printed_cell("table6", f"{TEN} | DiLoCo, H = 100", column).text for column in TARGETS]
    if ours == [theirs["1B | Vanilla DiLoCo", column].text for column in TARGETS]:
        ten = " ".join(theirs["10B | Vanilla DiLoCo", column].text for column in TARGETS)
        yield Slip(
            f"Table 6, {TEN}, DiLoCo with H = 100",
            " ".join(ours),
            f"Table 4 of 2501.18512 prints these for Vanilla DiLoCo at 1B, and {ten} for it at 10B",
        )
    data_parallel = [printed_cell("table6", f"{TEN} | {DP}", column).text for column in TARGETS]
    other = [theirs[f"10B | {DP}", column].text for column in TARGETS]
    if data_parallel != other:
        yield Slip(
            f"Table 6, {TEN}, {DP}",
            " ".join(data_parallel),
            f"Table 4 of 2501.18512 prints {' '.join(other)} for 10B at the same step time, by the same simulator",
        )


def _residuals() -> Iterator[Slip]:
    joint, form = (
        printed_cell("table11", "Average over M | Joint", "L"),
        printed_cell("table13", FORMS[0].name, RESIDUAL),
    )
    if _of(joint) > 2 * _of(form):
        yield Slip(
            f"Table 13, {FORMS[0].name}",
            form.text,
            f"Table 11 prints {joint.text} for the same law, held-out size and measure (average over M, joint, L)",
        )


def _text() -> Iterator[Slip]:
    """Sentences against tables."""
    averages = {kind: printed_cell("table11", f"Average over M | {kind}", "γ") for kind in ("Independent", "Joint")}
    if _of(averages["Joint"]) < _of(averages["Independent"]):
        yield Slip(
            "Section 6.3",
            "the independent fit is significantly better at predicting the inner learning rate",
            f"Table 11: its residual is {averages['Independent'].text}, that of the joint fit {averages['Joint'].text}",
        )
    one, two = (printed_cell("table12", f"4B | {diloco_label(m)} | Joint", "Eval Loss") for m in (1, 2))
    if _of(one) < _of(two):
        yield Slip(
            "Section 6.4",
            "at 4B and 10B M = 2 outperforms Data-Parallel and M = 1 by either fit",
            f"Table 12: at 4B by the joint fit M = 1 has {one.text} and M = 2 {two.text}",
        )
    trained = {cell.row for cell in load_cells("table3", OF)}
    for size in SIZES:
        if size not in trained:
            yield Slip(f"Table 4, {size}", f"a model of {size}", "Table 3 has none of that name, and one of 330M")


def _of(cell: Published) -> float:
    assert cell.value is not None
    return cell.value
