"""Miniatures: what of a run at paper scale they follow, and what they don't."""

import math
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

import pytest

from experiments.registry import experiment_names, load, trained
from repro.spec.experiment import Experiment, PlannedRun, expand, vary
from repro.spec.scales import MINI_MODELS, SMOKE_BATCH, at_scale, mini_rate

ROWS = {name: load(name).rows for name in ("table5", "table7", "figure12")}
GRID = "tuning"  # tries other batches on purpose


def mini_runs() -> list[PlannedRun]:
    return [run for spec in trained("all") if spec.name != GRID for run in expand(spec, "mini")]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("scale", ["mini", "smoke"])
def test_a_miniature_takes_no_batch_steps_or_rate_of_paper_scale(name: str, scale: str):
    """Equal tokens in other steps, at another rate and warm-up, make the same miniature."""
    for row in ROWS[name]:
        paper = row.config
        moved = replace(paper, batch=4 * paper.batch, steps=paper.steps // 4)
        moved = vary(moved, inner__learning_rate=0.5, inner__warmup_steps=7, inner__weight_decay=0.1)
        assert at_scale(moved, scale, "45k") == at_scale(paper, scale, "45k") is not None


def test_all_miniatures_of_a_size_and_budget_see_the_same_tokens_and_h_divides_their_steps():
    tokens: dict[tuple[str, int], set[int]] = defaultdict(set)
    for run in mini_runs():
        config = run.config
        budget = config.tokens / config.model.params_by_rule
        tokens[config.model.size, min((20, 80, 200), key=lambda b: abs(math.log(b / budget)))].add(config.tokens)
        assert config.steps % 300 == 0 and all(config.steps % every == 0 for every in (30, 50, 100))
    assert {key: len(value) for key, value in tokens.items()} == dict.fromkeys(tokens, 1)
    for (size, budget), (seen,) in tokens.items():
        largest = 128 * MINI_MODELS[size][-1]
        params = next(r.config.model.params_by_rule for r in mini_runs() if r.config.model.size == size)
        off = [abs(n * 300 * largest - budget * params) for n in range(1, 60)]
        assert abs(seen - budget * params) == min(off)


def test_the_largest_batch_of_a_size_is_that_of_its_rows():
    largest: dict[str, int] = defaultdict(int)
    for run in mini_runs():
        largest[run.config.model.size] = max(largest[run.config.model.size], run.config.batch)
    assert largest == {size: shape[-1] for size, shape in MINI_MODELS.items()}


def test_batches_are_multiples_of_m_and_more_replicas_keep_the_local_one():
    for run in mini_runs():
        config = run.config
        assert config.batch % config.replicas == 0
        if "constant global batch" in run.row:
            assert config.batch == 8
        else:
            assert config.batch == max(config.replicas, 2)


def test_the_rate_falls_with_size_as_the_laws_have_it():
    """N^-0.8, to the nearest power of √2."""
    config = ROWS["table5"][0].config
    params = {"45k": 45_312, "70k": 69_632, "118k": 117_760}
    tuned = mini_rate(config, "45k")
    for size, n in params.items():
        exact = tuned * (n / params["45k"]) ** -0.8
        assert abs(math.log2(mini_rate(config, size) / exact)) <= 0.25 + 1e-9
        assert (2 * math.log2(mini_rate(config, size))).is_integer()


def test_the_warm_up_is_a_tenth_as_at_35m():
    for run in mini_runs():
        assert Fraction(run.config.inner.warmup_steps, run.config.steps) == Fraction(1, 10)


def test_toy_size_keeps_its_own_batch():
    config = at_scale(ROWS["table5"][1].config, "smoke")
    assert config is not None and config.batch == SMOKE_BATCH


SMALL = {run.row: run.config for run in expand(load("table5"), "small")}


def test_the_second_ladder_is_the_issue_s() -> None:
    """250k, 500k and 1M parameters within 2 %, 20 tokens for each but for a round of 300 steps, 1.5 epochs at most."""
    counts = {config.model.size: config.model.params_by_rule for config in SMALL.values()}
    assert counts == {
        "250k": 12 * 56**2 * 5 + 1_024 * 56,
        "500k": 12 * 84**2 * 5 + 1_024 * 84,
        "1M": 12 * 112**2 * 6 + 1_024 * 112,
    }
    for (size, count), asked in zip(counts.items(), (250e3, 500e3, 1e6), strict=True):
        assert abs(count / asked - 1) < 0.02
        configs = [config for config in SMALL.values() if config.model.size == size]
        (tokens,) = {config.tokens for config in configs}
        largest = max(config.batch for config in configs) * (2 if size == "250k" else 1) * 128
        assert abs(tokens - 20 * count) <= 150 * largest and tokens % (300 * largest) == 0
        assert all(config.repeat_data == (tokens > 14_850_000) for config in configs)
        assert tokens <= 1.5 * 14_850_000 and {config.model.vocab for config in configs} == {1_024}


def test_batch_and_rate_are_carried_from_the_smallest_miniature() -> None:
    """To the nearest power of two, and of √2."""
    smallest = {run.row: run.config for run in expand(load("table5"), "mini") if run.config.model.size == "45k"}
    for row, config in SMALL.items():
        mini = smallest[row.replace(config.model.size, "45k")]
        ratio = config.model.params_by_rule / (12 * 24**2 * 3 + 1_024 * 24)
        wanted = mini.batch * ratio ** (0.281 if config.sync is None else 0.479)
        assert 2**-0.5 <= config.batch / wanted <= 2**0.5 and config.batch.bit_count() == 1
        assert 2**-0.25 <= config.inner.learning_rate / (mini.inner.learning_rate * ratio**-0.8) <= 2**0.25
        assert config.sync == mini.sync


def test_what_is_trained_at_scale_small() -> None:
    """Table 5's methods, three seeds at the smallest size; there too Table 6, and E3M0 beside float32; nothing else."""
    seeds: dict[tuple[str, str], int] = {}
    for name in experiment_names():
        for run in expand(spec, "small") if isinstance(spec := load(name), Experiment) else ():
            seeds[name, run.config.model.size] = max(seeds.get((name, run.config.model.size), 0), run.config.seed + 1)
    assert seeds == {
        (name, size): count for name in ("figure5", "table5") for size, count in (("250k", 3), ("500k", 1), ("1M", 1))
    } | {("figure11", "250k"): 1, ("table6", "250k"): 1, ("tuning", "250k"): 1}
    assert [run.row for run in expand(load("figure11"), "small")] == ["Precision | float32", "Precision | e3m0"]
    assert {(run.config.replicas, run.config.batch) for run in expand(load("table6"), "small")} == {
        (m, SMALL["250k | DiLoCo H=30"].batch * m // 2) for m in (2, 4)
    }
