"""The estimate of a sweep: exact for what was timed, scaled for what is near, silent where nothing is known."""

import json
import math

import pytest

from repro.archive import archive_path
from repro.archive import load as load_archive
from repro.estimate import UNKNOWN, seconds_of, sentence
from repro.experiment import PlannedRun, expand, load, trained, unique
from repro.identity import config_text


def record(run: PlannedRun, seconds: float | None) -> dict:
    summary = {} if seconds is None else {"processor_seconds": seconds}
    return {"config": json.loads(config_text(run.config)), "summary": summary}


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


def test_the_collected_runs_take_within_30_percent_of_what_is_said_without_their_own_records():
    """Of all items together, as the sum of the runs; each is estimated from the others."""
    records = [r for r in load_archive(archive_path("mini")).values() if r["summary"].get("processor_seconds")]
    said = spent = 0.0
    for item in trained("all"):
        ids = {run.run_id for run in expand(item, "mini", 3)}
        own = [r for r in records if r["run_id"] in ids]
        runs = [run for run in unique(expand(item, "mini", 3)) if run.run_id in {r["run_id"] for r in own}]
        if own and len(own) < len(records):
            said += seconds_of(runs, [r for r in records if r["run_id"] not in ids]) or 0.0
            spent += sum(r["summary"]["processor_seconds"] for r in own)
    assert 0.7 < said / spent < 1.3


def test_what_was_not_timed_is_scaled_by_its_work():
    made = [record(RUNS[0], 10.0)]
    larger = RUNS[-1].config
    expected = 10.0 * larger.flops / RUNS[0].config.flops
    found = seconds_of([RUNS[-1]], made)
    assert found is not None and math.isclose(found, expected)


def test_without_times_nothing_is_claimed():
    assert seconds_of(RUNS, []) is None
    assert sentence(RUNS, [record(RUNS[0], None)], 2) == UNKNOWN
    assert sentence(RUNS[:1], [record(RUNS[0], 240.0)], 2).startswith("about 2 minutes of training on 2 free cores")
