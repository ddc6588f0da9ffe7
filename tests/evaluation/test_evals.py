"""Ids of evaluations, the drawn part of a set, and what is refused."""

import math
import statistics
from dataclasses import replace

import pytest
import tiny

from repro.errors import UserError
from repro.evaluation.tasks import SETS, TASKS, Asked, EvalSpec, choose, standard_error

MINI = replace(tiny.run_config(tiny.synced()), scale="mini")


def test_ids_name_set_and_parameters_and_cover_all_that_changes_a_score(monkeypatch: pytest.MonkeyPatch):
    spec = choose(MINI)
    assert spec.id(8).startswith("part-outer-")
    seen = {spec.id(8)}
    others = [
        spec.id(9),
        replace(spec, parameters="first").id(8),
        replace(spec, asked=spec.asked[:2]).id(8),
        replace(spec, asked=(replace(spec.asked[0], seed=1), *spec.asked[1:])).id(8),
        choose(MINI, "full").id(8),
        choose(MINI, limit=9).id(8),
    ]
    monkeypatch.setitem(TASKS, "piqa", replace(TASKS["piqa"], version="2.0"))
    others.append(spec.id(8))
    assert len(seen.union(others)) == 1 + len(others)


def test_a_drawn_part_is_fixed_and_spread_over_the_set():
    part = Asked("hellaswag", seeded=1_000)
    assert part.indices is not None and part.count == len(set(part.indices)) == 1_000
    assert part.indices[:4] == (15, 36, 44, 46) and part.indices[-1] == 10_036
    # Uniform draws: the mean of 1,000 places lies within four standard errors of the middle.
    error = 10_042 / math.sqrt(12) / math.sqrt(1_000)
    assert statistics.fmean(part.indices) == pytest.approx(10_041 / 2, abs=4 * error)
    assert part.indices != Asked("hellaswag", seeded=1_000, seed=1).indices


def test_whole_sets_and_limits():
    assert Asked("piqa").indices is None and Asked("piqa", seeded=9_999).indices is None
    assert Asked("piqa", limit=3).indices == (0, 1, 2) and Asked("piqa", limit=9_999).count == 1_838
    assert [TASKS[a.task].questions for a in SETS["full"]] == [10_042, 1_838, 570]


def test_the_scale_chooses_and_data_parallel_has_only_its_own_parameters():
    smoke = choose(replace(MINI, scale="smoke"))
    assert smoke.name == "few" and [a.task for a in smoke.asked] == [a.task for a in SETS["full"]]
    assert {a.count for a in smoke.asked} == {8}
    paper, alone = replace(MINI, scale="paper"), replace(tiny.run_config(None, replicas=1), scale="mini")
    assert (spec := choose(paper)) and (spec.name, spec.asked) == ("full", SETS["full"])
    assert (spec := choose(alone, parameters="average")) and spec.parameters == "outer"
    assert choose(MINI, tasks=("arc_easy",)) == EvalSpec("tasks", (Asked("arc_easy"),), "outer")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "half"}, "'half' is unknown: choose one of full, part, few"),
        ({"tasks": ("boolq",)}, "'boolq' is unknown"),
        ({"limit": 0}, "limit=0"),
        ({"parameters": "inner"}, "'inner' are unknown: choose outer, first, average"),
    ],
)
def test_bad_choices_are_one_sentence(options, said):
    with pytest.raises(UserError, match=said):
        choose(MINI, **options)


def test_standard_errors_are_those_of_the_samples():
    answers = [1.0] * 13 + [0.0] * 7
    assert standard_error(13 / 20, 20) == pytest.approx(statistics.stdev(answers) / math.sqrt(20))
    assert standard_error(1.0, 1) is None
