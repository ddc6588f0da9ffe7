"""The fits of loss on compute: the paper's own cells, exact lines, and numpy's polynomial fit."""

import math

import numpy as np
import pytest

from analysis.paper import fits, published

STREAMING_H100 = "Streaming DiLoCo with overlapped FP4 com., H=100"


@pytest.mark.parametrize(
    ("method", "slope", "exponent"),
    [("Data-Parallel", -0.13148, -0.0466), (STREAMING_H100, -0.13554, -0.0476)],
)
def test_slopes_of_table_5(method: str, slope: float, exponent: float):
    points = fits.published_points(published.load_cells("table5"), method)
    assert len(points) == 7
    assert round(fits.loss_slope(points), 5) == slope
    assert round(fits.power_law(points).slope, 4) == exponent


@pytest.mark.parametrize(
    ("method", "row"),
    [
        ("Data-Parallel", "scaling slope | Data-Parallel"),
        (STREAMING_H100, "scaling slope | Streaming DiLoCo"),
    ],
)
def test_the_printed_slopes_lie_within_the_rounding_of_the_losses(method: str, row: str):
    printed = published.by_place(published.load_cells("statements"))[row, "Slope"].value
    assert printed is not None
    points = fits.published_points(published.load_cells("table5"), method)
    slack = fits.slope_rounding(points, half_unit=0.005)
    assert round(slack, 4) == 0.0014
    assert abs(fits.loss_slope(points) - printed) < slack < abs(fits.power_law(points).slope - printed)


def test_slope_rounding_is_attained_and_not_passed():
    points = fits.published_points(published.load_cells("table5"), "Data-Parallel")
    middle = sum(math.log(flops) for flops, _ in points) / len(points)
    tilted = [(flops, loss + math.copysign(0.005, math.log(flops) - middle)) for flops, loss in points]
    moved = fits.loss_slope(tilted) - fits.loss_slope(points)
    assert moved == pytest.approx(fits.slope_rounding(points, 0.005))


def test_exact_lines_are_recovered():
    flops = [1e17, 3e18, 2e20, 5e21]
    line = fits.semi_log([(f, 9 - 0.13 * math.log(f)) for f in flops])
    assert (line.slope, line.intercept) == pytest.approx((-0.13, 9))
    assert line.at(1e19) == pytest.approx(9 - 0.13 * math.log(1e19))
    law = fits.power_law([(f, 25 * f**-0.05) for f in flops])
    assert law.slope == pytest.approx(-0.05)
    assert math.exp(law.at(1e19)) == pytest.approx(25 * 1e19**-0.05)


def test_scattered_points_against_numpy():
    points = [(1e15, 5.0), (2e15, 4.9), (9e15, 4.2), (8e16, 4.4)]
    slope, intercept = np.polyfit(np.log([f for f, _ in points]), [loss for _, loss in points], 1)
    line = fits.semi_log(points)
    assert (line.slope, line.intercept) == pytest.approx((slope, intercept))


def test_one_number_of_flops_has_no_slope():
    with pytest.raises(ValueError, match="needs two different"):
        fits.loss_slope([(1e17, 3.0), (1e17, 3.1)])


def test_sizes_without_a_loss_are_left_out():
    points = fits.published_points(published.load_cells("table5"), "DiLoCo H=30")
    assert [flops for flops, _ in points] == [1.5e17, 9.4e17, 4e18, 1.4e19, 4.7e19, 1.9e20]
