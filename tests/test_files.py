"""Run folders in a bucket: on a stand-in for gcsfs, in memory, without rename and links. No real bucket was tried."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import tiny
from etils import epath
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry, known_implementations

from repro.claims import Watch, newest, take
from repro.errors import UserError
from repro.files import create_bytes, names, place, read_bytes, write_bytes
from repro.status import states
from repro.store import RunFolder, find_run, open_folder
from repro.takeover import begin, saved_steps

RUN = tiny.run_config(tiny.synced())


class Bucket(MemoryFileSystem):
    """What gcsfs offers of a bucket: whole objects, a precondition on creation, and no rename that is one."""

    protocol = ("gcs", "gs")
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return super()._strip_protocol(str(path).removeprefix("gs://").removeprefix("gcs://"))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        if mode == "create" and self.exists(path):  # ifGenerationMatch=0
            raise FileExistsError(path)
        with self.open(path, "wb") as out:
            out.write(value)

    def mv(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError("a bucket renames nothing")


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setitem(_registry, "gcs", Bucket)
    backend = epath.backend.fsspec_backend
    backend._get_filesystem.cache_clear()
    Bucket.store.clear()
    yield place("gs://bucket/runs")
    backend._get_filesystem.cache_clear()


def test_files_of_a_bucket_are_whole_and_created_once(root: Path) -> None:
    path = root / "a" / "b.json"
    assert read_bytes(path) is None and names(root / "a") == []
    assert create_bytes(path, b"1") and not create_bytes(path, b"2")
    assert read_bytes(path) == b"1"
    write_bytes(path, b"3")
    assert read_bytes(path) == b"3" and names(root / "a") == ["b.json"]


def test_a_run_in_a_bucket_is_claimed_taken_over_and_finished_once(root: Path) -> None:
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
    assert states(None, root, 0.0)[0]["state"] == "running"
    one.release("interrupted")
    two = take(folder, 1)
    assert two is not None and newest(folder) == 2 and one.gone()
    again = begin(folder.path, two.number)
    assert read_bytes(again / "checkpoints/3/array/data") == b"3"
    assert read_bytes(again / "metrics/part-000000001-000000003.parquet") == b"curve"
    assert two.folder.write_summary({"run_id": folder.run_id, "steps": 12})
    assert not RunFolder(root, folder.run_id, 1).write_summary({"steps": 0})
    assert names(folder.path / "attempts") == ["000002"]
    two.release("finished")


def test_other_places_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="s3://bucket: run folders lie on a local path or in gs://"):
        place("s3://bucket")
    monkeypatch.delitem(_registry, "gcs", raising=False)
    monkeypatch.setitem(known_implementations, "gcs", {"class": "no_such_package.Bucket", "err": "no gcsfs"})
    with pytest.raises(UserError, match="buckets need gcsfs"):
        place("gs://bucket/runs")
