"""Laws of the scaling-law paper, refitted from the data file: its digits, exact laws, and independent arithmetic."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.laws import powers, tables
from analysis.laws.forms import FORMS, fit_form
from analysis.laws.published import DP, HALF_UNIT, OF, SIZES, diloco_label, law_parameters, printed_losses
from analysis.laws.slips import all_slips
from analysis.pages.report import build_item
from analysis.paper.published import by_place, items, load_cells
from repro.errors import UserError

METHODS = tables.METHODS
SIZES_N = (1e8, 3e8, 1e9, 4e9)


def test_every_table_of_the_paper_is_there_with_all_its_cells():
    counts = {"table3": 45, "table4": 63, "table5": 14, "table6": 93, "table7": 10, "table8": 10, "table9": 10}
    counts |= {"table10": 9, "table11": 30, "table12": 14, "table13": 4, "figure7": 28}
    assert {name: len(load_cells(name, OF)) for name in items(OF) if name != "statements"} == counts


@pytest.mark.parametrize("method", METHODS)
def test_table_7_is_refitted_to_its_digits(method: str):
    """By NumPy's own polynomial, which shares nothing with the fit but the losses."""
    law, cell = tables.independent_law(method), by_place(load_cells("table7", OF))
    assert abs(law.exponents[0] - cell[method, "α"].value) <= 0.00015
    assert law.factor == pytest.approx(cell[method, "A"].value, rel=0.002)
    slope, log_factor = np.polyfit(np.log([law_parameters(size) for size in SIZES]), np.log(printed_losses(method)), 1)
    assert law.exponents[0] == pytest.approx(slope, rel=1e-9) and law.factor == pytest.approx(math.exp(log_factor))


def test_table_10_is_refitted_to_its_digits():
    law, cell = tables.joint_law(SIZES), by_place(load_cells("table10", OF))
    assert all(abs(law.exponents[i] - cell["L", name].value) <= 0.0002 for i, name in enumerate(("α", "β")))
    assert law.factor == pytest.approx(cell["L", "A"].value, rel=0.002)


def test_table_11_and_the_first_three_tables_print_as_published(tmp_path: Path):
    """γ and B can't be refitted: the paper prints no best value of a size."""
    for name, decided in (("table7", 10), ("table10", 3), ("table11", 10)):
        build_item(f"scaling_laws_{name}", "mini", 1, tmp_path, tmp_path)
        with (tmp_path / f"scaling_laws_{name}.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert [(r["row"], r["column"], r["paper"]) for r in rows] == [
            (cell.row, cell.column, cell.text) for cell in load_cells(name, OF)
        ]
        verdicts = [row["verdict"] for row in rows]
        assert verdicts.count("reproduced") == decided
        assert set(verdicts) <= {"reproduced", "not decidable from the paper"}


def test_the_intervals_are_wider_than_what_lies_between_m_1_and_m_4():
    spans = [tables.exponent_interval(method) for method in METHODS]
    assert all(0.0035 < (high - low) / 2 < 0.006 for low, high in spans)
    gap = tables.independent_law(diloco_label(1)).exponents[0] - tables.independent_law(diloco_label(4)).exponents[0]
    assert gap < min(high - low for low, high in spans) / 2
    assert f"{gap:.4f} between M = 1 and M = 4" in tables.sentence_on_intervals()


def test_the_forms_of_table_13_from_few_starts():
    points = [
        (law_parameters(s), float(m), tables.printed_loss(s, diloco_label(m))) for s in SIZES for m in (1, 2, 4, 8)
    ]
    fits = {form.name: fit_form(form, points[:24], points[24:], starts=2) for form in FORMS}
    residuals = [fits[form.name].residual for form in FORMS]
    assert residuals == pytest.approx([0.01200, 0.00356, 0.00321, 0.00472], abs=2e-5)
    assert all(fit.reached == fit.starts for fit in fits.values())
    printed = [cell.value for cell in load_cells("table13", OF)]
    assert sorted(range(4), key=residuals.__getitem__) == sorted(range(4), key=printed.__getitem__)


@pytest.mark.parametrize("form", FORMS[1:], ids=lambda form: form.name)
def test_an_exact_form_is_found_again(form):
    """Losses of a known form, held out ones included, leave no residual."""
    shape = {
        "A N^α M^β + C": lambda n, m: 30 * n**-0.2 * m**0.02 + 1.5,
        "A N^(α+βM) + C": lambda n, m: 30 * n ** (-0.2 + 0.001 * m) + 1.5,
        "A N^α + B M^β + C": lambda n, m: 30 * n**-0.2 + 0.1 * m**0.3 + 1.5,
    }[form.name]
    points = [(n, m, shape(n, m)) for n in SIZES_N for m in (1.0, 2.0, 4.0, 8.0)]
    assert fit_form(form, points[:12], points[12:], starts=3).residual < 2e-3


@settings(max_examples=20, deadline=None)
@given(st.floats(0.1, 1e3), st.floats(-2, 2), st.floats(-1, 1))
def test_an_exact_law_is_found_again_and_has_no_width(factor: float, alpha: float, beta: float):
    law = powers.PowerLaw(factor, (alpha, beta))
    sizes, replicas = [n for n in SIZES_N for _ in range(3)], [1.0, 2.0, 4.0] * len(SIZES_N)
    values = [law.at(n, m) for n, m in zip(sizes, replicas, strict=True)]
    found = powers.fit_power_law([sizes, replicas], values)
    assert (found.factor, *found.exponents) == pytest.approx((factor, alpha, beta), rel=1e-6, abs=1e-8)
    for (low, high), exponent in zip(
        powers.bootstrap_intervals([sizes, replicas], values, sizes, 50), law.exponents, strict=True
    ):
        assert low == pytest.approx(exponent, abs=1e-7) and high == pytest.approx(exponent, abs=1e-7)


def test_a_bootstrap_draws_whole_sizes():
    """By hand: every draw of three sizes out of three, fitted one by one."""
    sizes, values = [1.0, math.e, math.e**2], [math.exp(0.1), math.exp(0.3), math.exp(0.2)]
    low, high = powers.bootstrap_intervals([sizes], values, sizes, 4_000)[0]
    by_hand = []
    for draw in np.ndindex(3, 3, 3):
        if len(set(draw)) > 1:
            by_hand.append(np.polyfit(draw, [(0.1, 0.3, 0.2)[i] for i in draw], 1)[0])
    assert (low, high) == pytest.approx(tuple(np.percentile(by_hand, [2.5, 97.5])), abs=1e-9)


def test_rounding_is_reached_and_not_passed():
    sizes = [[law_parameters(size) for size in SIZES]]
    share, (slack,) = powers.rounding_slack(sizes, printed_losses(DP), HALF_UNIT)
    law = powers.fit_power_law(sizes, printed_losses(DP))
    middle = np.log(sizes[0]).mean()
    worst = [
        y + HALF_UNIT * (1 if math.log(n) > middle else -1) for n, y in zip(sizes[0], printed_losses(DP), strict=True)
    ]
    moved = powers.fit_power_law(sizes, worst)
    assert moved.exponents[0] - law.exponents[0] == pytest.approx(slack, rel=1e-3)
    assert law.factor / moved.factor - 1 == pytest.approx(share, rel=0.02)


def test_points_that_tell_nothing_are_refused():
    with pytest.raises(ValueError, match="2 points don't tell 2 numbers"):
        powers.fit_power_law([[5.0, 5.0]], [1.0, 2.0])
    with pytest.raises(UserError, match="a bootstrap over 2 sizes says nothing"):
        powers.bootstrap_intervals([[1.0, 2.0]], [1.0, 2.0], ["a", "b"])


def test_the_slips_of_the_paper_are_found_by_its_own_digits():
    slips = {slip.place: slip for slip in all_slips()}
    assert slips["Table 3, 35M, Token Budget"].against.startswith("it is 700M")
    assert "Vanilla DiLoCo at 1B" in slips["Table 6, Chinchilla 10B, DiLoCo with H = 100"].against
    assert slips["Table 5, 4B | DiLoCo, M = 4, Relative (%)"].prints == "+0.18"
    assert [place.split(",")[0] for place in slips] == [
        *("Table 3", "Table 5", "Table 6", "Table 6", "Table 13", "Section 6.3", "Section 6.4", "Table 4")
    ]


@pytest.mark.parametrize("name", ["accounts", "inconsistencies", "table8", "table12", "figure6"])
def test_every_other_item_is_built(name: str, tmp_path: Path):
    build_item(f"scaling_laws_{name}", "mini", 1, tmp_path, tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} >= {".md", ".tex", ".html", ".csv"}
    assert (tmp_path / "scaling_laws_figure6.png").exists() == (name == "figure6")
