"""The gap to Data-Parallel over N: the line, its interval and its verdicts, from made-up losses with a known answer."""

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path

import fabricated
import numpy as np
import pytest
from scipy import stats

from analysis.laws.gap import COMPARED, Gap, GapLine, gap_over_params, own_gaps, printed_gap
from analysis.pages.report import build_item
from experiments.registry import load
from experiments.streaming.base import DP
from experiments.streaming.table5 import STREAM_30
from repro.results.read import Result
from repro.spec.experiment import expand

N_35M = 12 * 512**2 * 6 + 32_000 * 512
Log = Callable[[int, int], float]  # of the ratio, by N and seed


def made_up(log_ratio: Log, seeds: int = 3) -> Callable[..., list[Result]]:
    """Results of every planned run, each method at this ratio to a Data-Parallel that is a power law."""

    def results(name: str, at: str = "mini") -> list[Result]:
        done = []
        for run in expand(load(name), at, seeds if at == "mini" else 1):
            n = run.config.model.params_by_rule
            loss = 18.1 * n**-0.0953
            loss *= 1.0 if run.labels[1] == DP else math.exp(log_ratio(n, run.config.seed))
            done.append(Result(run, fabricated.summary(run.config, loss)))
        return done

    return results


def closing(n: int, seed: int) -> float:
    """To 0.0057, the paper's at 35M for Streaming with H = 30, and 0.001 more an e-fold below; seeds 1e-6 apart."""
    return math.log(3.53 / 3.51) + 0.001 * math.log(N_35M / n) + 1e-6 * (seed - 1)


def lines(log_ratio: Log, seeds: int = 3) -> dict[str, tuple[str, ...]]:
    """What the CSV has of the line at 35M, by method."""
    cells = gap_over_params(load("gap"), made_up(log_ratio, seeds)).lines
    return {line[0].partition(" | ")[2]: line for line in cells if line[0].startswith("35M | ")}


def test_the_line_comes_to_the_gap_that_the_losses_have() -> None:
    """Six sizes of both ladders, and within the margin of the paper's 0.57 %."""
    by_method = lines(closing)
    assert set(by_method) == set(COMPARED)
    for line in by_method.values():
        assert float(line[2]) == pytest.approx(100 * (3.53 / 3.51 - 1), abs=0.006) and line[4] == "6"
    assert by_method[STREAM_30][7] == "agrees"
    sizes = {run.split("-")[1] for run in by_method[STREAM_30][8].split()}
    assert sizes == {"45k", "70k", "118k", "250k", "500k", "1m"}


def test_what_lies_beyond_the_margin_disagrees_and_what_scatters_is_undecided() -> None:
    assert lines(lambda n, seed: closing(n, seed) + 0.02)[STREAM_30][7] == "disagrees"
    assert lines(lambda n, seed: closing(n, seed) - 0.02)[STREAM_30][7] == "disagrees"
    scattered = lines(lambda n, seed: closing(n, seed) + 0.01 * math.sin(n))[STREAM_30]
    assert scattered[7] == "undecided" and float(scattered[3]) > 1
    noisy = lines(lambda n, seed: closing(n, seed) + 0.02 * (seed - 1))[STREAM_30]
    assert noisy[7] == "undecided" and float(noisy[3]) > 1


def gaps(sizes: int, seeds: int) -> tuple[Gap, ...]:
    """Points of so many sizes and seeds, drawn."""
    draw = np.random.default_rng(3)
    counts = np.geomspace(4.5e4, 1e6, sizes)
    return tuple(
        Gap("mini", f"{n:.0f}", int(n), tuple(0.05 - 0.003 * math.log(n) + draw.normal(0, 0.002, seeds)), ())
        for n in counts
    )


def test_both_errors_are_those_of_least_squares() -> None:
    """By matrices, and the one from seeds by drawing them again 20,000 times."""
    line = GapLine(gaps(5, 3))
    x = np.log([gap.params for gap in line.gaps])
    design, at = np.stack([np.ones(5), x], 1), np.array([1, math.log(N_35M)])
    means = np.array([gap.mean for gap in line.gaps])
    fitted, (squares,), *_ = np.linalg.lstsq(design, means, rcond=None)
    assert line.at(N_35M) == pytest.approx(at @ fitted)
    (scatter, sizes), (spread, seeds) = line.errors(N_35M)
    assert scatter == pytest.approx(math.sqrt(squares / 3 * (at @ np.linalg.inv(design.T @ design) @ at)))
    assert (sizes, seeds) == (3, 10)
    pooled = math.sqrt(np.mean([np.var(gap.by_seed, ddof=1) for gap in line.gaps]))
    draws = np.random.default_rng(0).normal(0, pooled, (20_000, 5, 3)).mean(2)
    assert spread == pytest.approx((draws @ np.linalg.pinv(design).T @ at).std(), rel=0.03)
    halves = stats.t.ppf(0.975, 3) * scatter, stats.t.ppf(0.975, 10) * spread
    assert line.half_width(N_35M) == pytest.approx(max(halves))


@pytest.mark.parametrize(("sizes", "seeds"), [(2, 3), (5, 1)], ids=["two sizes", "one seed"])
def test_without_three_sizes_or_a_second_seed_nothing_is_decided(sizes: int, seeds: int) -> None:
    line = GapLine(gaps(sizes, seeds))
    assert line.half_width(N_35M) is None
    assert line.judged(N_35M, -1, 1).verdict == "undecided"


def test_the_papers_gap_is_that_of_its_printed_losses() -> None:
    """3.53 and 3.51 at 35M, each to half of its last digit."""
    wanted = (3.53 / 3.51, 3.525 / 3.515, 3.535 / 3.505)
    assert printed_gap(STREAM_30, "35M") == pytest.approx(tuple(map(math.log, wanted)))


def test_a_seed_without_data_parallel_is_no_pair() -> None:
    results = made_up(closing)("table5")
    results = [each for each in results if each.run.labels[1] != DP or each.run.config.seed == 0]
    assert {len(gap.by_seed) for gap in own_gaps(results, STREAM_30)} == {1}


def test_the_item_leaves_its_figure_and_its_csv(tmp_path: Path) -> None:
    """From run folders, as many seeds as there are at each scale."""
    fabricated.finish_all(tmp_path / "runs", "mini", 2)
    fabricated.finish_all(tmp_path / "runs", "small", 1)
    text = build_item("gap", "mini", None, tmp_path / "runs", tmp_path, own=True)
    assert "Our line at the paper's sizes" in text and (tmp_path / "gap.png").stat().st_size > 10_000
    rows = list(csv.DictReader(io.StringIO((tmp_path / "gap.csv").read_text(encoding="utf-8"))))
    ours = {row["row"]: row for row in rows if row["verdict"].startswith("no verdict")}
    assert {name.partition(" | ")[0]: row["n"] for name, row in ours.items()} == dict.fromkeys(
        ("45k", "70k", "118k"), "2"
    ) | {"250k": "3", "500k": "1", "1M": "1"}


def test_nothing_run_is_said_and_drawn(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    text = build_item("gap", "smoke", None, tmp_path / "runs", tmp_path, own=True)
    assert text.count("not run") == 9 and (tmp_path / "gap.svg").exists()
