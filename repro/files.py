"""Files of a run, on a local path or in a bucket: the few operations that both offer. No JAX.

A bucket has neither append nor rename nor hard links, and needs none of them here: an object is written whole, and
created only where there is none by a precondition (`ifGenerationMatch=0`). Locally the same two things are
a rename and a hard link of a file that is complete, which network file systems do atomically too; locks are not used.
"""

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repro.errors import UserError


def place(text: str) -> Path:
    """The folder a user names: a local path, or gs://BUCKET/… through etils.epath. UserError for other schemes."""
    if "://" not in text:
        return Path(text)
    if not text.startswith("gs://"):
        raise UserError(f"{text}: run folders lie on a local path or in gs://BUCKET/PATH.")
    from etils import epath  # a second of imports that local paths don't pay

    try:
        _bucket()
    except ImportError as error:
        raise UserError(f"{text}: buckets need gcsfs, which is not there: pip install gcsfs.") from error
    return epath.Path(text)  # pyright: ignore[reportReturnType]


def is_bucket(path: Path) -> bool:
    """Whether `path` is in a bucket."""
    return not isinstance(path, Path)


def _bucket() -> Any:
    import fsspec

    return fsspec.filesystem("gcs")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically, its folder made if needed; UserError when it can't be written."""
    if is_bucket(path):
        path.write_bytes(content)
    else:
        _publish(path, content, lambda part: part.replace(path))


def create_bytes(path: Path, content: bytes, *, sync: bool = True) -> bool:
    """Write a file atomically where there is none; False, and nothing done, where there is one.

    Of several processes, on whatever machines, exactly one gets True. `sync` waits until the bytes are on the disk.
    """
    try:
        if is_bucket(path):
            _bucket().pipe_file(str(path), content, mode="create")
        else:
            _publish(path, content, lambda part: os.link(part, path), sync=sync)
    except FileExistsError:
        return False
    return True


def _publish(path: Path, content: bytes, show: Callable[[Path], Any], *, sync: bool = True) -> None:
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path.parent} can't be made ({error.strerror}): choose another folder.") from error
    try:
        with part.open("wb") as out:
            out.write(content)
            out.flush()
            if sync:
                os.fsync(out.fileno())
        show(part)
    except FileExistsError:
        raise
    except OSError as error:
        raise UserError(f"{path} could not be written ({error.strerror}): free some space and run again.") from error
    finally:
        part.unlink(missing_ok=True)


def read_bytes(path: Path) -> bytes | None:
    """The content of a file; None where there is none, nor a folder for it."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def names(folder: Path) -> list[str]:
    """What a folder holds, now: in a bucket too, whose listings are kept otherwise. Empty where there is no folder."""
    try:
        if is_bucket(folder):
            _bucket().invalidate_cache()
            return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in _bucket().ls(str(folder), detail=False))
        return sorted(os.listdir(folder))  # noqa: PTH208  (names alone, in a third of the time)
    except (FileNotFoundError, NotADirectoryError):
        return []


def modified(path: Path) -> float:
    """When a file or folder was last changed, in seconds since 1970."""
    found: Any = path.stat()
    return found.mtime if is_bucket(path) else found.st_mtime


def share_tree(source: Path, target: Path, leave_out: Callable[[str], bool]) -> None:
    """Give `target` the files of `source`: locally as hard links, which cost no space; in a bucket as copies."""
    if is_bucket(source):
        base = len(str(source).removeprefix("gs://"))
        for found in _bucket().find(str(source)):
            tail = found.lstrip("/")[base:].lstrip("/")
            if not any(leave_out(part) for part in tail.split("/")):
                _bucket().copy(found, f"{target}/{tail}")
        return
    shutil.copytree(
        source,
        target,
        copy_function=os.link,
        ignore=lambda _, entries: [name for name in entries if leave_out(name)],
        dirs_exist_ok=True,
    )


def remove_tree(folder: Path) -> None:
    """Delete a folder with all it holds, as far as it is there."""
    if is_bucket(folder):
        if names(folder):
            _bucket().rm(str(folder), recursive=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
