"""The numbers without a unit of a run, and where a miniature's lie beyond the paper's."""

from dataclasses import replace

import pytest
from fabricated import planned

from analysis.paper.dimensionless import NUMBERS, compared_numbers, numbers
from repro.spec.config import RunConfig
from repro.spec.experiment import vary


def paper_run(row: str) -> RunConfig:
    return next(run.config for run in planned("paper") if run.paper_row == row)


def streaming_run() -> RunConfig:
    """18 layers at 500M, in fragments of three with the embedding's own; M = 2, H = 100."""
    run = paper_run("500M | Streaming DiLoCo with overlapped FP4 com., H=100")
    return vary(run, steps=5_000, inner__warmup_steps=250, inner__weight_decay=1 / 5_000)


def test_each_number_by_hand():
    config = streaming_run()
    assert numbers(config) == {
        "rounds of H": 50,
        "warm-up share of the steps": 0.05,
        "tokens a parameter": pytest.approx(5_000 * config.batch * 1_024 / config.model.params_by_rule),
        "fragments": 7,
        "lag of the outer copy at most, share of the steps": 0.02,
        "replicas": 2,
    }


def test_data_parallel_has_none_of_a_sync():
    own = numbers(paper_run("35M | Data-Parallel"))
    assert set(NUMBERS) - set(own) == {"rounds of H", "fragments", "lag of the outer copy at most, share of the steps"}


def test_a_whole_model_is_one_fragment():
    assert numbers(paper_run("35M | DiLoCo H=30"))["fragments"] == 1


def test_the_papers_own_runs_lie_in_its_ranges():
    assert compared_numbers(run.config for run in planned("paper")) == ()
    assert compared_numbers([]) == ()


def test_what_lies_beyond_is_named_with_both_ranges():
    run = paper_run("35M | Streaming DiLoCo with overlapped FP4 com., H=100")
    assert compared_numbers([replace(run, replicas=4)]) == ("replicas 4 where the paper's runs have 1 to 2",)
