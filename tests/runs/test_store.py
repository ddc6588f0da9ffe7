"""Run folders: atomic files, one config a folder."""

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny

from repro.errors import UserError
from repro.files import read_json, write_json
from repro.runs.folder import find_run, open_folder
from repro.spec.identity import run_id

RUN = tiny.run_config(tiny.synced())


def test_a_folder_is_opened_again_by_the_same_config(tmp_path: Path) -> None:
    folder = open_folder(tmp_path, RUN)
    assert folder.path == tmp_path / run_id(RUN)
    assert open_folder(tmp_path, RUN) == folder
    assert folder.summary() is None


def test_a_folder_of_another_config_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = open_folder(tmp_path, RUN)
    other = open_folder(tmp_path / "other", replace(RUN, seed=1)).path / "config.json"
    (folder.path / "config.json").write_bytes(other.read_bytes())
    with pytest.raises(UserError, match=f"holds another config than {folder.run_id}"):
        open_folder(tmp_path, RUN)
    assert (folder.path / "config.json").read_bytes() == other.read_bytes()


def test_finished_means_summary_json(tmp_path: Path) -> None:
    folder = open_folder(tmp_path, RUN)
    write_json(folder.path / "failure.json", {"reason": "no"})
    assert folder.failure() == {"reason": "no"}
    summary = {"run_id": folder.run_id, "steps": 3}
    folder.write_summary(summary)
    assert folder.summary() == summary
    assert folder.failure() is None
    assert sorted(p.name for p in folder.path.iterdir()) == ["config.json", "summary.json"]


def test_a_full_disk_is_one_sentence_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    write_json(path, {"a": 1})

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match=r"summary\.json could not be written \(No space left on device\)"):
        write_json(path, {"a": 2})
    assert read_json(path) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]


@pytest.mark.parametrize("value", [{"loss": float("nan")}, {"loss": object()}])
def test_what_is_not_json_leaves_nothing(tmp_path: Path, value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        write_json(tmp_path / "summary.json", value)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"half": ', encoding="utf-8")
    with pytest.raises(UserError, match=r"config\.json is not JSON"):
        read_json(tmp_path / "config.json")
    assert read_json(tmp_path / "none.json") is None


def test_runs_are_found_by_the_start_of_their_id(tmp_path: Path) -> None:
    ids = [open_folder(tmp_path, replace(RUN, seed=seed)).run_id for seed in (1, 2, 12)]
    assert find_run(tmp_path, ids[1]).run_id == ids[1]
    assert find_run(tmp_path, ids[2][:-4]).run_id == ids[2]
    with pytest.raises(UserError, match="names 3 runs"):
        find_run(tmp_path, ids[0][:6])
    with pytest.raises(UserError, match="no run 'nothing'"):
        find_run(tmp_path, "nothing")
