"""Collected results: traceable, refused when they don't match, and what the mini scale's rates rest on."""

import json
import re
import threading
import time
from collections import defaultdict
from dataclasses import replace

import pytest
from fabricated import finish, validations

from experiments.registry import load as load_experiment
from experiments.streaming.figure12 import MINI_GLOBAL, MINI_RATE
from repro.errors import UserError
from repro.files import write_json
from repro.results import collected
from repro.results.collected import archive_path, filled, load_records, save
from repro.results.read import Result, collect
from repro.spec.config import RunConfig
from repro.spec.experiment import PlannedRun, expand, unique
from repro.spec.identity import from_json
from repro.spec.scales import MINI_BATCH, MINI_LEARNING_RATE, MINI_SEQ, SMALLEST_PARAMS, method_family


def finished(index: int = 0, dirty: bool = False, **changes) -> Result:
    run = expand(load_experiment("table5"), "smoke")[index]
    config = run.config
    summary = {"run_id": run.run_id, "steps": config.steps, "tokens": config.tokens}
    summary |= validations(config, outer=3.0, first=3.1, average=3.05) | changes
    rows = ({"step": 6, "part": "layer 0", "cosine": 0.123456, "norm_0": 1.0},)
    return Result(run, summary, {"attempts": [{"commit": "c", "dirty": dirty}]}, syncs=rows)


def test_a_record_holds_its_config_and_where_it_was_made(tmp_path):
    path = tmp_path / "r.json"
    assert save([finished(dirty=True)], path).taken == {finished().run.run_id}
    (record,) = load_records(path).values()
    assert record["made"]["commit"] == "c" and record["made"]["dirty"] is True and record["made"]["attempts"] == 1
    assert from_json(RunConfig, record["config"]) == finished().run.config
    assert record["syncs"]["cosine"] == [0.1235]


def test_what_was_collected_before_stays(tmp_path):
    path = tmp_path / "r.json"
    save([finished()], path)
    again = save([Result(finished().run), Result(finished(1).run)], path)
    assert again.kept == {finished().run.run_id} and again.missing == {finished(1).run.run_id}
    assert set(load_records(path)) == {finished().run.run_id}


def test_an_empty_root_takes_nothing_and_says_so(tmp_path):
    outcome = save([Result(finished().run)], tmp_path / "r.json")
    assert outcome.sentence == "0 taken, 0 as they were, 1 not finished" and not (tmp_path / "r.json").exists()


def test_a_changed_config_is_refused(tmp_path):
    path = tmp_path / "r.json"
    save([finished()], path)
    stored = json.loads(path.read_text(encoding="utf-8"))
    stored["runs"][0]["config"]["steps"] += 1
    path.write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(UserError, match="collect it again"):
        load_records(path)


@pytest.mark.parametrize("text", ["[]", "3", '{"runs": 3}', '{"runs": [{}]}', '{"runs": [1]}'])
def test_what_holds_no_results_is_one_sentence_and_stays(tmp_path, text):
    path = tmp_path / "r.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="holds no collected results"):
        save([finished()], path)
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("changes", [{"run_id": "other"}, {"steps": 3}, {"tokens": 1}])
def test_a_summary_of_another_run_is_refused(tmp_path, changes):
    outcome = save([finished(**changes)], tmp_path / "r.json")
    assert list(outcome.refused) == [finished().run.run_id] and "its config" in outcome.sentence


def test_a_dirty_result_never_replaces_a_clean_one(tmp_path):
    path = tmp_path / "r.json"
    save([finished()], path)
    outcome = save([finished(dirty=True, **validations(finished().run.config, outer=2.0))], path)
    assert list(outcome.refused) == [finished().run.run_id]
    assert load_records(path)[finished().run.run_id]["summary"]["validations"]["outer-32"]["loss"] == 3.0
    assert save([finished(dirty=True)], tmp_path / "new.json").taken
    assert save([finished()], tmp_path / "new.json").taken  # and a clean one replaces a dirty one


def test_other_losses_of_the_same_run_take_its_place_and_are_counted(tmp_path):
    path = tmp_path / "r.json"
    assert save([finished()], path).sentence == "1 taken, 0 as they were, 0 not finished"
    other = finished(**validations(finished().run.config, outer=2.9))
    assert save([other], path).sentence == "1 taken (1 in place of other losses), 0 as they were, 0 not finished"


def test_validations_that_are_collected_stay_and_others_come_to_them(tmp_path):
    path, run = tmp_path / "r.json", finished().run
    declared = finished().summary["validations"]
    more = {name: {"loss": 2.75, "tokens": 1024, "metric_version": 2} for name in ("outer-64", "outer-128")}
    save([finished(validations=declared | {"outer-64": more["outer-64"]})], path)
    outcome = save([finished(validations=declared | {"outer-128": more["outer-128"]})], path)
    assert outcome.taken == {run.run_id} and not outcome.replaced
    assert load_records(path)[run.run_id]["summary"]["validations"] == declared | more


def test_a_run_without_the_validation_that_is_declared_is_not_shown(tmp_path, capsys):
    path, run = tmp_path / "r.json", finished().run
    other = finished(validations={"outer-8": {"loss": 2.75, "tokens": 128, "metric_version": 2}})
    assert other.state == "done" and other.loss is None
    save([other], path)
    assert filled([Result(run)], path) == (Result(run),)
    finish(run, tmp_path / "runs")
    write_json(tmp_path / "runs" / run.run_id / "summary.json", other.summary | {"tokens_per_s": 1.0})
    (result,) = collect([run], tmp_path / "runs")
    assert result == Result(run)
    assert f"evaluate {run.run_id} --windows 32 --parameters outer" in capsys.readouterr().err


def test_compiled_results_of_earlier_ids_say_them():
    runs = json.loads(archive_path("compiled").read_text(encoding="utf-8"))["runs"]
    before = [run["id_before"] for run in runs if "id_before" in run]  # what is newer has had one id
    assert len(set(before)) == len(before) and all(re.fullmatch(r"[a-z0-9-]+-[0-9a-f]{8}", name) for name in before)


def test_what_is_not_run_is_filled_from_the_collected(tmp_path):
    path = tmp_path / "r.json"
    save([finished()], path)
    own, other = finished(**validations(finished().run.config, outer=9.0)), Result(finished(1).run)
    assert filled([own, other], path) == (own, other)  # a run of one's own goes first
    (found,) = filled([Result(finished().run)], path)
    assert found.archived and found.loss == 3.0 and found.syncs[0]["part"] == "layer 0" and not found.dirty


def test_rows_that_share_a_run_read_their_own_parameters(tmp_path):
    path = tmp_path / "r.json"
    kinds = {p: replace(finished().run, parameters=p) for p in ("outer", "first", "average")}
    save([replace(finished(), run=run) for run in kinds.values()], path)
    losses = [filled([Result(run)], path)[0].loss for run in kinds.values()]
    assert losses == [3.0, 3.1, 3.05]


def test_500_results_are_read_in_time(tmp_path):
    path = tmp_path / "r.json"
    runs = [run for run in unique(expand(load_experiment("table5"), "smoke", 45))][:500]
    save([replace(finished(), run=run, summary=_summary(run)) for run in runs], path)
    started = time.process_time()
    assert len(filled([Result(run) for run in runs], path)) == len(runs)
    assert time.process_time() - started < 3


def _summary(run: PlannedRun) -> dict:
    config = run.config
    return {"run_id": run.run_id, "steps": config.steps, "tokens": config.tokens, **validations(config, outer=3.0)}


def tuned_losses() -> dict[tuple[str, int], dict[tuple[int, float], float]]:
    """The grid at the smallest size and the paper's outer settings: by method and M, the loss by batch and rate."""
    stored, losses = load_records(archive_path("mini")), defaultdict(dict)
    for run in unique(expand(load_experiment("tuning"), "mini")):
        config = run.config
        outer = config.sync.outer if config.sync else None
        usual = outer is None or (outer.learning_rate, outer.momentum) == (0.4, 0.9)
        own = config.model.params_by_rule == SMALLEST_PARAMS and config.model.seq_len == MINI_SEQ and usual
        if own and (config.sync is None or config.sync.every == 30) and run.run_id in stored:
            loss = stored[run.run_id]["summary"]["validations"]["outer-512"]["loss"]
            losses[method_family(config), config.replicas][config.batch, config.inner.learning_rate] = loss
    return losses


def test_batches_and_rates_of_miniatures_are_the_best_of_the_committed_grid():
    """By method and M, of what is collected; the rates beside the chosen one are, so that the best lies inside."""
    losses = tuned_losses()
    assert {("data-parallel", 1), ("diloco", 2), ("streaming", 2)} <= losses.keys()
    for (family, replicas), grid in losses.items():
        batch, rate = MINI_BATCH[family] * max(replicas, 2) // 2, MINI_LEARNING_RATE[family][replicas]
        assert min(grid, key=grid.__getitem__) == (batch, rate)
        assert {(batch, rate / 2), (batch, 2 * rate)} <= grid.keys()


def test_the_constant_global_batch_of_figure_12_takes_its_best_rate():
    for (family, replicas), grid in tuned_losses().items():
        at_8 = {rate: loss for (batch, rate), loss in grid.items() if batch == MINI_GLOBAL}
        if family in MINI_RATE and len(at_8) > 1:
            assert min(at_8, key=at_8.__getitem__) == MINI_RATE[family][replicas]


def test_two_at_once_lose_nothing_of_each_other(tmp_path, monkeypatch):
    """The second reads only when the first has written: slow writes would otherwise take back what came between."""
    path = tmp_path / "r.json"
    write = collected._write

    def slowly(*args) -> None:
        time.sleep(0.3)
        write(*args)

    monkeypatch.setattr(collected, "_write", slowly)
    both = [threading.Thread(target=save, args=([finished(index)], path)) for index in (0, 1)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert set(load_records(path)) == {finished(0).run.run_id, finished(1).run.run_id}
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]
