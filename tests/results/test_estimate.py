"""The estimate of a sweep: exact for what was timed, scaled for what is near, silent where nothing is known."""

import json
import math

import pytest

from experiments.registry import load
from repro.evaluation.tasks import choose
from repro.results.estimate import UNKNOWN, duration_sentence, scoring_sentence, seconds_of
from repro.spec.experiment import PlannedRun, expand, unique
from repro.spec.identity import config_text


def record(run: PlannedRun, seconds: float | None) -> dict:
    summary = {} if seconds is None else {"processor_seconds": seconds}
    return {"config": json.loads(config_text(run.config)), "summary": summary, "evaluations": {}}


def scored(run: PlannedRun, seconds: float) -> dict:
    spec = choose(run.config)
    return record(run, None) | {"evaluations": {spec.id(1): {"name": spec.name, "seconds": seconds}}}


RUN_OF_MANY_PROGRAMS = "α = 0.5 | τ = 20"
RUNS = unique(expand(load("table5"), "mini"))


def test_what_was_timed_is_added_up():
    records = [record(run, 10.0 + i) for i, run in enumerate(RUNS)]
    alone = [seconds_of([run], [made]) for run, made in zip(RUNS, records, strict=True)]
    assert alone == pytest.approx([10.0 + i for i in range(len(RUNS))])
    once = [record(RUNS[0], 10.0)]
    assert seconds_of([RUNS[0], RUNS[0]], once) == pytest.approx(10.0)  # a shared run is run once


def test_a_run_takes_what_it_took_with_other_seeds_not_what_its_neighbours_take():
    first, *others = [run for run in expand(load("figure8"), "mini", 2) if run.row == RUN_OF_MANY_PROGRAMS]
    near = [run for run in expand(load("figure8"), "mini") if run.row != RUN_OF_MANY_PROGRAMS]
    records = [*(record(run, 50.0) for run in near), record(first, 200.0)]
    assert seconds_of(others, records) == pytest.approx(200.0)


def test_what_was_not_timed_is_scaled_by_its_work():
    made = [record(RUNS[0], 10.0)]
    larger = RUNS[-1].config
    expected = 10.0 * larger.flops / RUNS[0].config.flops
    found = seconds_of([RUNS[-1]], made)
    assert found is not None and math.isclose(found, expected)


def test_without_times_nothing_is_claimed():
    assert seconds_of(RUNS, []) is None
    assert duration_sentence(RUNS, [record(RUNS[0], None)], 2) == UNKNOWN
    assert duration_sentence(RUNS[:1], [record(RUNS[0], 240.0)], 2).startswith(
        "about 2 minutes of training on 2 free cores"
    )


def test_scoring_takes_what_models_of_that_size_took():
    small, large = RUNS[0], RUNS[-1]
    assert small.config.model.size != large.config.model.size
    asked = [(run.config, choose(run.config)) for run in (small, large, large)]
    records = [scored(small, 30.0), scored(large, 90.0), scored(large, 150.0)]
    assert scoring_sentence(asked, records, 2) == "3 evaluations: about 3 minutes on 2 free cores, as timed before"
    alone = scoring_sentence(asked[:1], records, 2)
    assert alone == "1 evaluation: about 1 minute on 1 free core, as timed before"
    # No other size of the same set: the median of any; another set is another thing.
    assert "about 5 minutes on 1 free core," in scoring_sentence(asked, records[1:2], 1)
    assert scoring_sentence([(small.config, choose(small.config, "full"))], records, 1).endswith("nobody has timed yet")
