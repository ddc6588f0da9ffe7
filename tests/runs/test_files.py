"""Files in a bucket, by gcsfs itself and a server that stands in for Google's. No real bucket was tried."""

import time
from pathlib import Path

import fake_bucket
import pytest
import tiny
from fsspec.registry import _registry, known_implementations

from repro import files
from repro.errors import UserError
from repro.files import create_bytes, folder_at, listing, modified, read_bytes, remove_tree, share_tree, write_bytes
from repro.runs.folder import RunFolder, find_run, open_folder
from repro.runs.leases import Watch, newest, take
from repro.runs.status import states
from repro.runs.takeover import begin, saved_steps
from repro.training.metrics import MetricsLog, read_metrics

RUN = tiny.run_config(tiny.synced())


@pytest.fixture
def root(bucket: fake_bucket.Store) -> Path:
    return folder_at("gs://bucket/runs")


def test_files_of_a_bucket_are_whole_and_created_once(root: Path) -> None:
    path = root / "a" / "b.json"
    assert read_bytes(path) is None and listing(root / "a") == []
    assert create_bytes(path, b"1") and not create_bytes(path, b"2")
    assert read_bytes(path) == b"1"
    write_bytes(path, b"\n\n--==0==")  # the mark between parts of an upload
    assert read_bytes(path) == b"\n\n--==0==" and listing(root / "a") == ["b.json"]
    assert abs(modified(path) - time.time()) < 60


def test_what_another_machine_writes_is_seen_at_once(root: Path, bucket: fake_bucket.Store) -> None:
    write_bytes(root / "a" / "one", b"1")
    assert listing(root / "a") == ["one"] and not (root / "a" / "two").exists()
    bucket.put("runs/a/two", b"2", {})
    assert listing(root / "a") == ["one", "two"] and (root / "a" / "two").exists()
    assert read_bytes(root / "a" / "two") == b"2"
    del bucket.blobs["runs/a/one"]
    assert listing(root / "a") == ["two"] and not (root / "a" / "one").exists()


def test_a_file_whose_creation_was_not_answered_is_still_created_by_this_call(
    root: Path, bucket: fake_bucket.Store
) -> None:
    """Asked again, the bucket says that there is one: a lease would belong to nobody until it is over."""
    bucket.losing = 1
    assert create_bytes(root / "lease", b"mine")
    assert bucket.losing == 0 and not create_bytes(root / "lease", b"another's")


def test_a_tree_of_many_files_is_shared_without_what_is_unfinished_and_removed(
    root: Path, bucket: fake_bucket.Store
) -> None:
    for i in range(fake_bucket.PAGE + 2):
        write_bytes(root / "a" / "deep" / f"{i}", str(i).encode())
    write_bytes(root / "a" / "unfinished" / "0", b"")
    share_tree(root / "a", root / "b", lambda name: name == "unfinished")
    assert listing(root / "b") == ["deep"] and len(listing(root / "b" / "deep")) == fake_bucket.PAGE + 2
    assert read_bytes(root / "b" / "deep" / "51") == b"51"
    remove_tree(root / "a")
    remove_tree(root / "a")
    assert listing(root) == ["b"]


def test_curves_are_written_whole_and_again_after_a_cut(root: Path) -> None:
    log = MetricsLog(root / "metrics", 0)
    for first in (1, 3):
        for step in (first, first + 1):
            log.add({"step": step, "loss_0": 1.0})
        log.close_part(first + 1)
    resumed = MetricsLog(root / "metrics", 2)
    assert listing(root / "metrics") == ["part-000000001-000000002.parquet"]
    resumed.add({"step": 3, "loss_0": 2.0})
    resumed.close_part(3)
    assert read_metrics(root / "metrics")["loss_0"].to_pylist() == [1.0, 1.0, 2.0]


def test_a_run_in_a_bucket_is_leased_taken_over_and_finished_once(root: Path) -> None:
    folder = open_folder(root, RUN)
    assert find_run(root, folder.run_id[:-3]).run_id == folder.run_id
    one = take(folder, 0, 1000.0)
    assert one is not None and take(folder, 0) is None and Watch().free(folder) is None
    home = begin(folder.path, one.number)
    for step in (3, 6):
        write_bytes(home / f"checkpoints/{step}/array/data", str(step).encode())
    write_bytes(home / "checkpoints/3/commit_success.txt", b"")
    write_bytes(home / "metrics/part-000000001-000000003.parquet", b"curve")
    assert saved_steps(home) == [3]  # the other is being written
    (record,) = states(None, root, time.time())
    assert (record["state"], record["step"]) == ("running", 3) and record["checkpoint_age_s"] < 60
    one.release("interrupted")
    two = take(folder, 1)
    assert two is not None and newest(folder) == 2 and one.lost(look=True)
    again = begin(folder.path, two.number)
    assert read_bytes(again / "checkpoints/3/array/data") == b"3"
    assert read_bytes(again / "metrics/part-000000001-000000003.parquet") == b"curve"
    assert two.folder.write_summary({"run_id": folder.run_id, "steps": 12})
    assert not RunFolder(root, folder.run_id, 1).write_summary({"steps": 0})
    assert listing(folder.path / "attempts") == ["000002"]
    two.release("finished")


def test_a_bucket_that_refuses_is_one_sentence(root: Path, bucket: fake_bucket.Store) -> None:
    bucket.forbidden = "Anonymous caller does not have storage.objects.create access"
    for act in (lambda: write_bytes(root / "a", b""), lambda: listing(root), lambda: read_bytes(root / "a")):
        with pytest.raises(UserError, match=r"gs://bucket/runs\S* can't be reached \(Anonymous caller .*your rights"):
            act()


def test_other_places_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="s3://bucket: run folders lie on a local path or in gs://"):
        folder_at("s3://bucket")
    monkeypatch.delitem(_registry, "gcs", raising=False)
    monkeypatch.setitem(known_implementations, "gcs", {"class": "no_such_package.Bucket", "err": "no gcsfs"})
    files._bucket.cache_clear()
    with pytest.raises(UserError, match="buckets need gcsfs, which is not there: pip install gcsfs"):
        folder_at("gs://bucket/runs")
