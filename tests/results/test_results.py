"""Reading run folders back: states, and folders that lie."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fabricated import finish, planned

from repro.errors import UserError
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


def test_a_folder_of_another_config_is_refused(tmp_path: Path):
    one, two, *_ = planned()
    folder = finish(one, tmp_path)
    config = json.loads((folder.path / "config.json").read_text(encoding="utf-8")) | {"seed": 7}
    (folder.path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(UserError, match="another config"):
        collect((one,), tmp_path)
    with pytest.raises(UserError, match="another config"):
        finish(two, tmp_path)
        collect((replace(one, run_id=two.run_id),), tmp_path)


def test_a_summary_of_another_run_is_refused(tmp_path: Path):
    one, two, *_ = planned()
    folder = finish(one, tmp_path)
    other = finish(two, tmp_path)
    (folder.path / "summary.json").write_text(
        (other.path / "summary.json").read_text(encoding="utf-8"), encoding="utf-8"
    )
    with pytest.raises(UserError, match=two.run_id):
        collect((one,), tmp_path)


@pytest.mark.parametrize("text", ["{}", "[]", "3"])
def test_a_summary_of_no_run_is_one_sentence_for_all_who_read_it(tmp_path: Path, text: str):
    run, *_ = planned()
    folder = finish(run, tmp_path)
    (folder.path / "summary.json").write_text(text, encoding="utf-8")
    for read in (lambda: collect((run,), tmp_path), lambda: states((run,), tmp_path, 0.0)):
        with pytest.raises(UserError, match="is no result of a run: delete that folder"):
            read()


def test_a_broken_summary_is_one_sentence(tmp_path: Path):
    run, *_ = planned()
    folder = finish(run, tmp_path)
    (folder.path / "summary.json").write_text('{"run_id": ', encoding="utf-8")
    with pytest.raises(UserError, match="is not JSON"):
        collect((run,), tmp_path)
