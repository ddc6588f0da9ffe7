"""Reading run folders back: states, and folders that lie."""

import json
from pathlib import Path

import pytest
from fabricated import finish, planned

from repro.files import write_json
from repro.results.read import collect
from repro.runs.folder import open_folder
from repro.runs.status import states


def test_every_state(tmp_path: Path):
    done, failed, unfinished, absent, retried, *_ = planned()
    finish(done, tmp_path, loss=3.25)
    write_json(open_folder(tmp_path, failed.config).path / "failure.json", {"reason": "the loss is nan"})
    write_json(open_folder(tmp_path, unfinished.config).path / "provenance.json", {"attempts": []})
    folder = finish(retried, tmp_path)
    write_json(folder.path / "failure.json", {"reason": "an earlier attempt"})
    results = collect((done, failed, unfinished, absent, retried), tmp_path)
    assert [r.state for r in results] == ["done", "failed", "unfinished", "not run", "done"]
    assert [r.loss for r in results[:4]] == [3.25, None, None, None]
    assert results[1].failure == {"reason": "the loss is nan"}


@pytest.fixture
def run(tmp_path: Path):
    one, *_ = planned()
    finish(one, tmp_path)
    return one


def passed_over(run, root: Path, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The run counts as none, and the reason is told to all who read it."""
    (result,) = collect((run,), root)
    assert result.state == "not run" and reason in capsys.readouterr().err
    (record,) = states((run,), root, 0.0)
    assert record["state"] == "failed" and reason in record["reason"]


def test_a_folder_of_another_config_is_passed_over(tmp_path: Path, run, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / run.run_id / "config.json"
    write_json(path, json.loads(path.read_bytes()) | {"seed": 7})
    passed_over(run, tmp_path, "holds another config", capsys)


def test_a_summary_of_another_run_is_passed_over(tmp_path: Path, run, capsys: pytest.CaptureFixture[str]):
    _, two, *_ = planned()
    other = finish(two, tmp_path)
    (tmp_path / run.run_id / "summary.json").write_bytes((other.path / "summary.json").read_bytes())
    passed_over(run, tmp_path, f"is that of {two.run_id}", capsys)


@pytest.mark.parametrize(
    ("text", "reason"),
    [*((text, "is no result of a run: delete that folder") for text in ("{}", "[]", "3")), ('{"run_id": ', "not JSON")],
)
def test_a_summary_of_no_run_is_passed_over(
    tmp_path: Path, run, text: str, reason: str, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / run.run_id / "summary.json").write_text(text, encoding="utf-8")
    passed_over(run, tmp_path, reason, capsys)
