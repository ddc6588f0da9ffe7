"""Batch, rate and steps at paper scale, recomputed from the published laws."""

import csv
import math
from collections import defaultdict
from pathlib import Path

import pytest

from analysis.paper.plan import plan, plan_text
from experiments.registry import load, trained
from repro.spec.config import RunConfig
from repro.spec.experiment import PlannedRun, expand
from repro.spec.laws import BATCHES, JOINT_BATCH, JOINT_RATE, RATES, Law, law_batch_tokens, law_rate, steps_for

PUBLISHED = Path(__file__).parents[2] / "data" / "papers" / "2503.09799"
N_35M, N_500M, N_4B = 35_258_368, 559_349_760, 4_175_429_632  # 12 d² L + 32,000 d
STREAMING = [run for spec in trained("all") for run in expand(spec, "paper")]


def printed(table: str, row: str) -> tuple[float, ...]:
    """A, α and of the joint fit β, as printed."""
    with (PUBLISHED / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(float(line["text"]) for line in csv.DictReader(file) if line["row"] == row)


def row_of(replicas: int) -> str:
    return f"DiLoCo, M = {replicas}" if replicas else "Data-Parallel"


def by_hand(table: str, joint: str, params: float, replicas: int) -> float:
    """A N^α, of M = 8 the joint A N^α M^β, in logarithms."""
    if replicas == 8:
        factor, alpha, beta = printed("table10", joint)
        return math.exp(math.log(factor) + alpha * math.log(params) + beta * math.log(8))
    factor, alpha = printed(table, row_of(replicas))
    return math.exp(math.log(factor) + alpha * math.log(params))


def method(config: RunConfig) -> int:
    return config.replicas if config.sync else 0


@pytest.mark.parametrize(
    ("laws", "joint", "table", "row"), [(RATES, JOINT_RATE, "table8", "γ"), (BATCHES, JOINT_BATCH, "table9", "B")]
)
def test_the_numbers_are_the_published_ones(laws: dict[int, Law], joint: Law, table: str, row: str):
    for replicas, law in laws.items():
        assert (law.factor, law.of_params) == printed(table, row_of(replicas)) and law.of_replicas == 0
    assert (joint.factor, joint.of_params, joint.of_replicas) == printed("table10", row)


def test_worked_examples():
    assert law_rate(N_35M, 0) == 0.011 and law_batch_tokens(N_35M, 0) == 2**16
    assert law_rate(N_35M, 2) == 0.0052 and law_batch_tokens(N_35M, 2) == 2**16
    assert law_rate(N_4B, 0) == 0.00022 and law_batch_tokens(N_4B, 0) == 2**18
    assert law_batch_tokens(N_4B, 2) == 2**19
    own = math.exp(math.log(618986) - 1.102 * math.log(N_500M))  # of M = 8: four times less than M = 4's
    assert own < law_rate(N_500M, 4) / 3.5 and law_rate(N_500M, 8) == 0.00078


def test_every_run_has_the_rate_of_its_law():
    """The grid of rates apart, which is powers of two times it."""
    for run in STREAMING:
        config = run.config
        rate = float(f"{by_hand('table8', 'γ', config.model.params_by_rule, method(config)):.1e}")
        times = math.log2(config.inner.learning_rate / rate)
        assert times == round(times) and (times == 0 or "inner x" in run.row or "rate x" in run.row), run.row


def test_every_run_has_the_batch_of_its_law():
    """The grids of batches apart, which are powers of two times it."""
    for run in STREAMING:
        of_grid = "batch x" in run.row
        times = math.log2(run.config.batch * run.config.model.seq_len / expected_batch(run))
        assert times == round(times) and (times == 0 or of_grid), run.row


def expected_batch(run: PlannedRun) -> float:
    config, n = run.config, run.config.model.params_by_rule
    if config.corpus == "dolma":
        return 2**20 * max(config.replicas, 2) // 2
    own = min(method(config), 2)
    kept = config.replicas / own if own and "constant global batch" not in run.row else 1
    return kept * 2 ** round(math.log2(by_hand("table9", "B", n, own) * 2_048))


def test_runs_of_a_size_on_c4_see_the_same_tokens_in_whole_rounds():
    sizes = defaultdict(list)
    for run in STREAMING:
        if run.config.corpus == "c4" and "batch x" not in run.row:
            sizes[run.config.model].append(run.config)
    assert len(sizes) == 7
    for model, configs in sizes.items():
        largest = max(configs, key=lambda config: config.batch)
        assert {config.tokens for config in configs} == {largest.tokens}
        assert all(config.steps % every == 0 for config in configs for every in (30, 50, 100))
        assert largest.steps % 300 == 0
        assert abs(largest.tokens - 20 * model.params_by_rule) <= 150 * largest.batch * model.seq_len


def test_dolma_keeps_its_steps_and_four_replicas_take_half_of_them():
    steps = {run.row: run.config.steps for run in expand(load("table7"), "paper")}
    assert steps["Data-Parallel | 25B"] == 24_290  # 0.67 hours at 0.1 s
    for budget in ("25B", "100B", "250B"):
        two, four = (steps[f"Our method, M={m} | {budget}"] for m in (2, 4))
        assert two == steps[f"Data-Parallel | {budget}"] == 2 * four


def test_the_inner_settings_are_the_stated_ones():
    for run in STREAMING:
        inner = run.config.inner
        assert (inner.warmup_steps, inner.final_fraction, inner.clip_norm) == (1_000, 0.05, 1.0)
        assert (inner.beta1, inner.beta2, inner.weight_decay) == (0.9, 0.99, 1 / run.config.steps)


def test_the_plan_shows_rate_batch_and_rounds():
    lines = {
        line.split()[0][:-9]: line.split()
        for line in plan_text(load("table5"), "paper").splitlines()
        if "35.8M" in line
    }
    assert lines["35m-dp-s0"][5:8] == ["2^16", "0.011", "10,800"]
    assert lines["35m-stream-h100-s0"][5:7] == ["2^16", "0.0052"] and lines["35m-stream-h100-s0"][11] == "108"
    undivided = next(entry for entry in plan(load("figure13"), "paper") if entry.row == "DiLoCo | H = 500")
    assert undivided.rounds == 86.4 and undivided.ages == (200,)


def test_a_batch_that_leaves_a_remainder_is_refused():
    assert steps_for(1e6, batch=16, largest=32, period=30) == 2 * 30 * 1042
    with pytest.raises(ValueError, match="no whole number of batches of 7"):
        steps_for(1e6, batch=7, largest=32, period=30)
