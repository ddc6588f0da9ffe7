"""Collected results: traceable, refused when they don't match, and what the mini scale's rates rest on."""

import json
from collections import defaultdict

import pytest

from repro.archive import archive_path, load, save
from repro.config import RunConfig
from repro.errors import UserError
from repro.experiment import expand, unique
from repro.experiment import load as load_experiment
from repro.identity import from_json
from repro.results import Result
from repro.scales import MINI_LEARNING_RATE, method_family


def finished(experiment: str = "table5") -> Result:
    run = expand(load_experiment(experiment), "smoke")[0]
    return Result(run, {"run_id": run.run_id, "validation_loss": 3.0}, {"attempts": [{"commit": "c", "dirty": True}]})


def test_a_record_holds_its_config_and_where_it_was_made(tmp_path):
    path = tmp_path / "r.json"
    assert save([finished()], path) == (1, 0)
    (record,) = load(path)
    assert record["made"]["commit"] == "c" and record["made"]["dirty"] is True and record["made"]["attempts"] == 1
    assert from_json(RunConfig, record["config"]) == finished().run.config


def test_what_was_collected_before_stays(tmp_path):
    path = tmp_path / "r.json"
    save([finished()], path)
    assert save([Result(expand(load_experiment("table5"), "smoke")[1])], path) == (1, 1)


def test_a_changed_config_is_refused(tmp_path):
    path = tmp_path / "r.json"
    save([finished()], path)
    stored = json.loads(path.read_text())
    stored["runs"][0]["config"]["steps"] += 1
    path.write_text(json.dumps(stored))
    with pytest.raises(UserError, match="collect it again"):
        load(path)


def test_the_mini_rates_are_the_best_of_the_committed_grid():
    """Per family, the mean over its methods of the loss at the paper's outer settings is least at the chosen rate."""
    losses = {r["run_id"]: r["summary"]["validation_loss"] for r in load(archive_path("tuning", "mini"))}
    found: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in unique(expand(load_experiment("tuning"), "mini")):
        outer = run.config.sync.outer if run.config.sync else None
        if outer is None or (outer.learning_rate, outer.momentum) == (0.4, 0.9):
            found[method_family(run.config)][run.config.inner.learning_rate].append(losses[run.run_id])
    best = {family: min(rates, key=lambda rate: sum(rates[rate])) for family, rates in found.items()}
    assert best == MINI_LEARNING_RATE
    assert all(len(rates) == 5 for rates in found.values())
