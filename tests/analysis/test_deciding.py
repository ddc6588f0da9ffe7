"""The rule by which differences over seeds decide, against scipy.stats and the share of true nulls that it decides."""

import math

import numpy as np
import pytest
from scipy import stats

from analysis.paper import deciding
from analysis.paper.deciding import Judgement, Lent, holm, judge, judge_all, judge_order, judge_parity, seeds_needed

VALUES = [0.12, 0.08, 0.2, 0.1]


def test_an_order_is_the_paired_t_test():
    ours, theirs = judge_order(VALUES), stats.ttest_1samp(VALUES, 0.0)
    assert ours.p_for == pytest.approx(theirs.pvalue) and ours.degrees == 3 and ours.seeds == 4
    assert ours.standard_error == pytest.approx(stats.sem(VALUES)) and ours.verdict == "agrees"
    turned = judge_order([-v for v in VALUES])
    assert turned.p_against == pytest.approx(theirs.pvalue) and turned.verdict == "disagrees"


def test_a_parity_is_two_one_sided_tests():
    values = [0.01, -0.004, 0.006, 0.002]
    one = stats.ttest_1samp(values, -0.02, alternative="greater").pvalue
    other = stats.ttest_1samp(values, 0.02, alternative="less").pvalue
    assert judge_parity(values, 0.02).p_for == pytest.approx(2 * max(one, other))
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (judge_parity(values, 0.02).verdict == "agrees") == (low > -0.02 and high < 0.02)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0.3, 0.31, 0.32], "disagrees"), ([-0.3, -0.31, -0.32], "disagrees"), ([0.0, 0.01, -0.01], "undecided"),
     ([0.001, 0.0, 0.002], "agrees"), ([0.02, 0.019, 0.021], "undecided"), ([0.0, 0.0], "agrees"),
     ([math.nan, 1.0], "undecided"), ([0.0], "undecided"), ([], "not run")],
)  # fmt: skip
def test_a_parity_is_decided_both_ways_and_left_open_at_its_edge(values: list[float], expected: str):
    assert judge_parity(values, 0.02).verdict == expected


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_of_equal_methods_one_in_twenty_is_decided(seeds: int):
    """Two standard errors would decide 18 % of three seeds and 30 % of two."""
    draws = np.random.default_rng(0).normal(size=(4_000, seeds)).tolist()
    share = np.mean([judge_order(row).verdict != "undecided" for row in draws])
    assert share == pytest.approx(0.05, abs=0.012)


def test_one_seed_decides_nothing_and_shows_what_is_lent():
    lent = judge_order([0.5], Lent(0.01, 4))
    assert (lent.verdict, lent.standard_error, lent.degrees) == ("undecided", 0.01, 4)
    assert lent.p_for == pytest.approx(2 * stats.t.sf(50, 4))
    assert judge_order([0.5]).p is None
    assert judge_order([1.0, 2.0, 3.0], Lent(99.0, 9)) == judge_order([1.0, 2.0, 3.0])


def test_all_parts_must_agree_and_one_refutes_after_bonferroni():
    sure, against, open_ = judge_order(VALUES), judge_order([-0.1, -0.101, -0.102]), judge_order([0.1, -0.2, 0.3])
    assert judge_all([sure, sure]) == ("agrees", sure.p_for)
    agreement, p = judge_all([sure, against])
    assert agreement == "disagrees" and p == pytest.approx(2 * (against.p_against or 0))
    assert judge_all([sure, open_])[0] == "undecided"
    assert judge_all([sure, judge_order([0.1], Lent(1e-6, 9))])[0] == "undecided"
    assert judge_all([sure, Judgement()])[0] == "not run" == judge_all([])[0]
    assert judge_all([judge_order([1.0])]) == ("undecided", None)


def test_holm_is_that_of_the_textbook():
    """0.01·4, 0.02·3, 0.03·2, 0.9."""
    adjusted = holm({"d": 0.9, "a": 0.01, "c": 0.028, "b": 0.02})
    assert adjusted == pytest.approx({"a": 0.04, "b": 0.06, "c": 0.06, "d": 0.9})  # c's own 0.056 may not go below b's


def test_the_seeds_needed_are_the_fewest_that_would_decide():
    part = judge_order([0.0, 0.1, 0.2])  # mean and spread 0.1
    needed = seeds_needed([part])
    assert needed == next(n for n in range(2, 50) if n**0.5 >= stats.t.ppf(0.975, n - 1))
    more = seeds_needed([part], tests=5)
    assert more == next(n for n in range(2, 50) if n**0.5 >= stats.t.ppf(0.995, n - 1))
    assert seeds_needed([judge_order([0.1], Lent(0.1, 2))]) == needed
    assert seeds_needed([judge_order([0.1])]) is None and seeds_needed([judge_order([1e-9, -1.0, 1.0])]) is None


def test_a_new_value_is_expected_within_t_of_the_mean():
    """95 % of normal draws lie within the interval that three others give."""
    draws = np.random.default_rng(1).normal(size=(6_000, 4))
    halves = [deciding.slack(spread, 3) for spread in draws[:, :3].std(axis=1, ddof=1).tolist()]
    assert np.mean(abs(draws[:, 3] - draws[:, :3].mean(axis=1)) <= halves) == pytest.approx(0.95, abs=0.01)
    with pytest.raises(ValueError, match="1 seeds: a spread needs two"):
        deciding.slack(0.1, 1)


def test_bounds_may_be_anywhere():
    assert judge([0.05, 0.051, 0.052], 0.0, 0.1).verdict == "agrees"
    assert judge([0.25, 0.251, 0.252], 0.0, 0.1).verdict == "disagrees" == judge([-0.1, -0.11], high=-0.5).verdict
