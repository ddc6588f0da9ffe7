"""One run's scores: against its validation loss, of any checkpoint, kept, and gone on with after a kill."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import cut_run
import jax
import numpy as np
import pytest
import tiny
from drawn_task import COUNT, SPEC, drawn, replace_tasks
from etils import epath
from held_runs import holding

import repro.evaluation.evaluate
from repro.commands.cli import main
from repro.corpus.tokens import open_tokens
from repro.diloco.model import token_log_likelihoods
from repro.errors import Interrupted, UserError
from repro.evaluation.evaluate import evaluate_run, held, load_parameters
from repro.evaluation.evaluator import Job, pending_jobs, score_line
from repro.evaluation.scoring import Scorer, ScoringRequest
from repro.evaluation.tasks import TASKS, Asked, EvalSpec, read_result, result_path
from repro.evaluation.validating import validate_run
from repro.runs.folder import RunFolder

CONFIG = tiny.corpus_config(tiny.synced(every=3, delays=(1,)))
WINDOWS = 64  # of 8 tokens, which scale smoke declares
pytestmark = pytest.mark.compiles


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, smoke_tokens: Path) -> RunFolder:
    """A finished run with the checkpoints of steps 14 and 16."""
    return cut_run.run(CONFIG, tiny.ONE, tmp_path_factory.mktemp("runs"), smoke_tokens)


@pytest.fixture(autouse=True)
def drawn_task(monkeypatch: pytest.MonkeyPatch, smoke_tokens: Path) -> None:
    """Drawn questions in the place of a task's, and the prepared tokens in that of the cache's."""
    replace_tasks(monkeypatch, smoke_tokens)


@pytest.fixture
def copy(run: RunFolder, tmp_path: Path) -> RunFolder:
    """The run without its evaluations."""
    (tmp_path / run.run_id).mkdir()
    for name in ("config.json", "summary.json", "checkpoints"):
        (tmp_path / run.run_id / name).symlink_to((run.path / name).resolve())
    return RunFolder(tmp_path, run.run_id)


def evaluate(folder: RunFolder, spec: EvalSpec = SPEC, step: int = CONFIG.steps) -> dict[str, Any]:
    result = evaluate_run(folder, spec, step, Path("unused"))
    assert result is not None
    return result


def test_likelihoods_add_up_to_the_validation_loss(run: RunFolder, smoke_tokens: Path) -> None:
    summary = run.summary()
    assert summary is not None
    windows = open_tokens(smoke_tokens, "validation").windows(CONFIG.model.seq_len, 0, WINDOWS)
    assert set(summary["validations"]) == {f"{which}-{WINDOWS}" for which in ("outer", "first", "average")}
    for name, validation in summary["validations"].items():
        _, params = load_parameters(run, CONFIG, None, name.partition("-")[0])
        values, _ = Scorer(CONFIG.model, params).score([ScoringRequest(row, CONFIG.model.seq_len) for row in windows])
        assert -values.mean() / CONFIG.model.seq_len == pytest.approx(validation["loss"], rel=1e-6)


def test_a_run_is_validated_again_on_more_windows(
    copy: RunFolder, smoke_tokens: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Equal windows give the loss of training; more of them are added to the summary, once."""
    cache = smoke_tokens.parents[1]
    before = copy.result()
    assert before is not None
    summary = before | {"validations": {"outer-64": before["validations"]["outer-64"]}}
    (copy.path / "summary.json").unlink()
    copy.write_summary(summary)
    again = validate_run(copy, "average", WINDOWS, cache)
    assert again["loss"] == pytest.approx(before["validations"][f"average-{WINDOWS}"]["loss"], rel=1e-6)
    assert again["tokens"] == WINDOWS * CONFIG.model.seq_len and "commit" in again
    words = ["evaluate", copy.run_id, "--windows", "70", "--root", str(copy.root), "--cache", str(cache)]
    assert main(words) == 0
    told = capsys.readouterr().out
    after = copy.result()
    assert after is not None
    assert set(after["validations"]) == {"outer-64", "average-64", "outer-70"}
    assert after | {"validations": {}} == before | {"validations": {}}
    assert told == f"{copy.run_id}  outer-70  validation loss {after['validations']['outer-70']['loss']:.4f}\n"
    assert main(words) == 0 and capsys.readouterr().out == told and copy.result() == after


def test_a_result_says_what_was_asked_and_how(copy: RunFolder) -> None:
    result = evaluate(copy)
    (score,), questions = result["scores"], drawn(SPEC.asked[0])
    _, params = load_parameters(copy, CONFIG, None, "outer")
    alone = jax.jit(lambda tokens: token_log_likelihoods(params, tokens, CONFIG.model)[0])
    expected = []
    for r in range(questions.requests):  # by another function than the scorer's; what follows changes nothing
        tokens = questions.tokens[questions.starts[r] : questions.starts[r + 1]][-(CONFIG.model.seq_len + 1) :]
        count = len(tokens) - 1
        each = np.asarray(alone(np.pad(tokens, (0, CONFIG.model.seq_len - count))[None]))[:count]
        expected.append(float(each[-min(questions.continuation[r], count) :].sum()))
    assert score["log_likelihood"] == pytest.approx(sum(expected), rel=1e-6)
    ends = np.cumsum(questions.choices)
    best = [int(np.argmax(expected[e - n : e])) for e, n in zip(ends, questions.choices, strict=True)]
    assert score["acc"] == np.mean(np.array(best) == questions.gold)
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(score["right"]["acc"]), np.uint8))[:COUNT]
    assert bits.tolist() == (np.array(best) == questions.gold).tolist()
    assert (score["questions"], score["of"], score["split"], score["prompt"]) == (
        COUNT,
        COUNT,
        "validation",
        "drawn 1.0",
    )
    assert score["cut_contexts"] == int((np.diff(questions.starts) > CONFIG.model.seq_len + 1).sum()) > 0
    assert score["cut_continuations"] == int((questions.continuation > CONFIG.model.seq_len).sum()) > 0
    assert result["bos"].startswith("none") and result["fewshot"] == 0 and not result["partial"]
    assert result["harness"].startswith("lm-eval 0.4") and result["eval_id"] == SPEC.id(CONFIG.steps)
    assert f"drawn[{COUNT}] acc {100 * score['acc']:.1f}±" in score_line(result)


def test_a_limit_is_partial_and_another_evaluation(copy: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "drawn", dataclasses.replace(TASKS["drawn"], questions=COUNT + 1))
    limited = dataclasses.replace(SPEC, name="limited", asked=(Asked("drawn", limit=COUNT),))
    result = evaluate(copy, limited)
    assert result["partial"] and result["scores"][0]["limit"] == COUNT and result["eval_id"] != SPEC.id(CONFIG.steps)
    assert f"drawn[{COUNT}/{COUNT + 1}]" in score_line(result)


def test_what_is_done_is_read_and_not_scored_again(copy: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(copy.run_id, CONFIG, SPEC, CONFIG.steps)
    assert pending_jobs([job, job], copy.root) == (job,)
    first = evaluate(copy)
    monkeypatch.setattr(repro.evaluation.evaluate, "load_parameters", None)
    assert evaluate(copy) == first == read_result(copy, SPEC, CONFIG.steps)
    assert pending_jobs([job], copy.root) == ()
    path = result_path(copy, SPEC.id(CONFIG.steps))
    path.write_text(json.dumps(first | {"run_id": "another"}), encoding="utf-8")
    with pytest.raises(UserError, match="is of run 'another', step 16: delete it"):
        evaluate(copy)


def test_every_checkpoint_and_kind_of_parameters_can_be_evaluated(copy: RunFolder) -> None:
    found = {("outer", 16): evaluate(copy), ("outer", 14): evaluate(copy, step=14)}
    for which in ("first", "average"):
        found[which, 16] = evaluate(copy, dataclasses.replace(SPEC, parameters=which))
    assert len({r["scores"][0]["log_likelihood"] for r in found.values()}) == 4
    assert len({r["eval_id"] for r in found.values()}) == 4
    with pytest.raises(UserError, match="no checkpoint of step 3: it has 14, 16"):
        evaluate(copy, step=3)


def test_a_run_in_training_is_left_alone(copy: RunFolder) -> None:
    (copy.path / "summary.json").unlink()
    with holding(copy, lease_s=3.0), pytest.raises(UserError, match="is being trained"):
        evaluate(copy)
    evaluate(copy)


class Killed(BaseException):
    """In the place of SIGKILL: nothing catches it."""


def test_a_killed_evaluation_goes_on_where_it_was(copy: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluate(copy)
    result_path(copy, SPEC.id(CONFIG.steps)).unlink()
    monkeypatch.setattr(repro.evaluation.evaluate, "SAVE_SECONDS", -1.0)
    monkeypatch.setattr(Scorer, "_rows_at_once", lambda self, _: self._block_rows(_))
    monkeypatch.setattr(Scorer, "_block_rows", lambda *_: 8)
    seen: list[int] = []

    def report(done: int, _: int) -> None:
        seen.append(done)
        if len(seen) == 4:
            raise Killed

    with pytest.raises(Killed):
        evaluate_run(copy, SPEC, CONFIG.steps, Path("unused"), report=report)
    parts = list(result_path(copy, SPEC.id(CONFIG.steps)).with_suffix(".parts").glob("*.npz"))
    assert len(parts) == 3 and read_result(copy, SPEC, CONFIG.steps) is None
    again: list[int] = []
    result = evaluate_run(copy, SPEC, CONFIG.steps, Path("unused"), report=lambda done, _: again.append(done))
    assert result is not None and again[0] == seen[2] + 8
    assert result["scores"][0]["right"] == whole["scores"][0]["right"]
    assert result["scores"][0]["log_likelihood"] == pytest.approx(whole["scores"][0]["log_likelihood"], rel=1e-6)
    assert not result_path(copy, SPEC.id(CONFIG.steps)).with_suffix(".parts").exists()


def test_an_evaluation_that_is_asked_to_stop_keeps_every_score(
    copy: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a batch, though the time to save had not come; until then the worker is told that something is unsaved."""
    whole = evaluate(copy)
    result_path(copy, SPEC.id(CONFIG.steps)).unlink()
    monkeypatch.setattr(Scorer, "_rows_at_once", lambda self, _: self._block_rows(_))
    monkeypatch.setattr(Scorer, "_block_rows", lambda *_: 8)
    seen: list[int] = []
    unsaved: list[bool] = []
    options: dict[str, Any] = {"report": lambda done, _: seen.append(done), "unsaved": unsaved.append}
    with pytest.raises(Interrupted, match=r"24 of \d+ continuations are scored and saved"):
        evaluate_run(copy, SPEC, CONFIG.steps, Path("unused"), stop_asked=lambda: len(seen) == 3, **options)
    assert unsaved == [True, True, True, False]
    result = evaluate_run(copy, SPEC, CONFIG.steps, Path("unused"), **options)
    assert result is not None and seen[:4] == [8, 16, 24, 32] and not unsaved[-1]
    assert result["scores"][0]["right"] == whole["scores"][0]["right"]


def test_a_second_process_waits_or_turns_to_other_work(copy: RunFolder, tmp_path: Path) -> None:
    in_a_bucket = RunFolder(epath.Path("gs://bucket/runs"), copy.run_id)  # held on this machine: nothing is asked of it
    for folder in (copy, in_a_bucket):
        with held(folder, tmp_path, True) as ours, held(folder, tmp_path, False) as theirs:
            assert ours and not theirs
            assert evaluate_run(folder, SPEC, CONFIG.steps, tmp_path, wait=False) is None


def test_reading_parameters_writes_nothing(run: RunFolder, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, run.run_id)
    shutil.copytree(run.path, folder.path)
    (folder.checkpoints / "18.orbax-checkpoint-tmp-1").mkdir()  # as a saver leaves it that was killed

    def state() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    before = state()
    assert load_parameters(folder, CONFIG, None, "outer")[0] == CONFIG.steps
    assert state() == before
    shutil.rmtree(folder.checkpoints)
    before = state()
    with pytest.raises(UserError, match="has no checkpoint of step 3: it has none"):
        load_parameters(folder, CONFIG, 3, "outer")
    assert state() == before


def test_parameters_are_those_of_the_last_step(run: RunFolder) -> None:
    step, newest = load_parameters(run, CONFIG, None, "first")
    _, same = load_parameters(run, CONFIG, 16, "first")
    assert step == 16
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(newest), jax.tree.leaves(same), strict=True))
