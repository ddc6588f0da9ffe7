"""Files of a run, on a local path or in a bucket: the few operations that both offer. No JAX.

A bucket has neither append nor rename nor hard links, and needs none of them here: an object is written whole, and
created only where there is none by a precondition (`ifGenerationMatch=0`). Locally the same two things are
a rename and a hard link of a file that is complete, which network file systems do atomically too; what stands in for a
link where there is none is the business of `repro.disk`. Locks are not used.
"""

import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from repro import disk
from repro.errors import UnusableFile, UserError

EMPTY_S = 0.2  # a name that was taken a moment ago has its content by then

T = TypeVar("T")


def folder_at(text: str) -> Path:
    """The folder a user names: a local path, or gs://BUCKET/… through etils.epath. UserError for what is neither."""
    if "://" not in text:
        return disk.local(text)
    if not text.startswith("gs://"):
        raise UserError(f"{text}: run folders lie on a local path or in gs://BUCKET/PATH.")
    if not text.removeprefix("gs://").split("/")[0].strip():
        raise UserError(f"{text}: it names no bucket, give gs://BUCKET/PATH.")
    try:
        _bucket()
    except ImportError as error:
        raise UserError(f"{text}: buckets need gcsfs, which is not there: pip install gcsfs.") from error
    from etils import epath  # a second of imports that local paths don't pay

    return epath.Path(text)  # pyright: ignore[reportReturnType]


def is_bucket(path: Path) -> bool:
    """Whether `path` is in a bucket."""
    return not isinstance(path, Path)


@cache
def _bucket() -> Any:
    """gcsfs, as epath and so orbax open it too; none of them keeps listings, for other machines write there."""
    import fsspec
    from fsspec.config import conf

    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # what it logs with a traceback, `_ask` says in a sentence

    conf.setdefault("gcs", {})["use_listings_cache"] = False
    return fsspec.filesystem("gcs", finalize_on_close=True)


def _ask(path: Path, act: Callable[[Any], T]) -> T:
    """What the bucket answers; UserError, after the tries of gcsfs, when it gives none or refuses."""
    import aiohttp
    from gcsfs.retry import HttpError
    from google.auth.exceptions import GoogleAuthError

    try:
        return act(_bucket())
    except (FileNotFoundError, FileExistsError):
        raise
    except (OSError, HttpError, aiohttp.ClientError, GoogleAuthError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise UserError(
            f"{path} can't be reached ({reason}): look at the bucket's name, your rights and the network, run again."
        ) from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically, its folder made if needed; UserError when it can't be written."""
    if is_bucket(path):
        _ask(path, lambda bucket: bucket.pipe_file(str(path), content))
    else:
        _publish(path, content, lambda part: part.replace(path))


def create_bytes(path: Path, content: bytes, *, sync: bool = True) -> bool:
    """Write a file atomically where there is none; False, and nothing done, where there is one.

    Of several processes, on whatever machines, exactly one gets True if their contents differ. `sync` waits until the
    bytes are on the disk.
    """
    try:
        if is_bucket(path):
            _ask(path, lambda bucket: bucket.pipe_file(str(path), content, mode="create"))
        else:
            _publish(path, content, lambda part: disk.link_new(part, path), sync=sync)
    except FileExistsError:
        # A bucket's answer may be lost, and gcsfs asks again: what is there then is what this call wrote.
        return is_bucket(path) and read_bytes(path) == content
    return True


def _publish(path: Path, content: bytes, show: Callable[[Path], Any], *, sync: bool = True) -> None:
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path.parent} can't be made ({error.strerror}): {disk.advice(error)}.") from error
    try:
        with part.open("wb") as out:
            out.write(content)
            out.flush()
            if sync:
                disk.sync(out.fileno())
        show(part)
    except FileExistsError:
        raise
    except OSError as error:
        raise UserError(f"{path} could not be written ({error.strerror}): {disk.advice(error)}.") from error
    finally:
        part.unlink(missing_ok=True)


def read_bytes(path: Path) -> bytes | None:
    """The content of a file; None where there is none, nor a folder for it. UnusableFile for what can't be read."""
    try:
        return _ask(path, lambda bucket: bucket.cat_file(str(path))) if is_bucket(path) else disk.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def listing(folder: Path) -> list[str]:
    """What a folder holds, sorted. Empty where there is no folder."""
    try:
        if is_bucket(folder):
            entries = _ask(folder, lambda bucket: bucket.ls(str(folder), detail=False))
            return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in entries)
        return sorted(os.listdir(folder))  # noqa: PTH208  (names alone, in a third of the time)
    except (FileNotFoundError, NotADirectoryError):
        return []


def modified(path: Path) -> float:
    """When a file or folder was last changed, in seconds since 1970."""
    stat: Any = path.stat()
    return stat.mtime if is_bucket(path) else stat.st_mtime


def share_tree(source: Path, target: Path, leave_out: Callable[[str], bool]) -> None:
    """Give `target` the files of `source`: locally as hard links, where there are such; else as copies."""
    if is_bucket(source):
        base = str(source).removeprefix("gs://")
        tails = [path.removeprefix(base) for path in _ask(source, lambda bucket: bucket.find(str(source)))]
        kept = [tail for tail in tails if not any(leave_out(part) for part in tail.split("/"))]
        pairs = [f"{source}{tail}" for tail in kept], [f"{target}{tail}" for tail in kept]
        _ask(target, lambda bucket: bucket.copy(*pairs, on_error="raise"))
        return
    shutil.copytree(
        source,
        target,
        copy_function=disk.share_file,
        ignore=lambda _, entries: [name for name in entries if leave_out(name)],
        dirs_exist_ok=True,
    )


def remove_tree(folder: Path) -> None:
    """Delete a folder with all it holds, as far as it is there."""
    if is_bucket(folder):
        if listing(folder):
            _ask(folder, lambda bucket: bucket.rm(str(folder), recursive=True))
    else:
        shutil.rmtree(folder, ignore_errors=True)


def json_bytes(value: Any) -> bytes:
    """How records of runs are written: JSON of sorted keys; ValueError on NaN and infinities."""
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """Write `value` atomically; UserError when it can't be written."""
    write_bytes(path, json_bytes(value))


def read_json(path: Path) -> Any | None:
    """The JSON at `path`, None where there is no file; UnusableFile when it is not JSON, which has no NaN."""
    content = read_bytes(path)
    if content == b"":
        time.sleep(EMPTY_S)
        content = read_bytes(path)
    try:
        return None if content is None else msgspec.json.decode(content)  # refuses NaN and numbers out of range
    except (ValueError, RecursionError) as error:
        raise UnusableFile(f"{path} is not JSON ({error}): put back what was there, or move it away.") from error
