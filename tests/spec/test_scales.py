"""Miniatures: what of a run at paper scale they follow, and what they don't."""

from dataclasses import replace

import pytest

from experiments.registry import experiment_names, load
from repro.spec.experiment import Experiment, expand, vary
from repro.spec.scales import at_scale

ROWS = {name: load(name).rows for name in ("table5", "table7", "figure12")}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("scale", ["mini", "smoke"])
def test_a_miniature_takes_no_batch_steps_or_rate_of_paper_scale(name: str, scale: str):
    """A run of as many tokens in other steps, at another rate and warm-up, has the same miniature."""
    for row in ROWS[name]:
        paper = row.config
        moved = replace(paper, batch=4 * paper.batch, steps=paper.steps // 4)
        moved = vary(moved, inner__learning_rate=0.5, inner__warmup_steps=7, inner__weight_decay=0.1)
        assert at_scale(moved, scale, "45k") == at_scale(paper, scale, "45k") is not None


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
    } | {("figure11", "250k"): 1, ("table6", "250k"): 1}
    assert [run.row for run in expand(load("figure11"), "small")] == ["Precision | float32", "Precision | e3m0"]
    assert {(run.config.replicas, run.config.batch) for run in expand(load("table6"), "small")} == {
        (m, SMALL["250k | DiLoCo H=30"].batch * m // 2) for m in (2, 4)
    }
