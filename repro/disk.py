"""What a local file system refuses or lacks: the one place that knows its error numbers. No JAX.

Network file systems, FUSE and exFAT may have no hard links, no locks, or no way to wait for the disk. Each has a
stand-in here where that is safe; elsewhere the sentence names what is wrong. `repro.files` is for places that may be
a bucket too.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from repro.errors import UnusableFile, UserError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
MISSING = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}  # a call that the file system doesn't have
NO_LINKS = {*MISSING, errno.EPERM, errno.EXDEV, errno.EMLINK}
NO_SYNC = {*MISSING, errno.EINVAL}
NO_LOCKS = {*MISSING, errno.ENOLCK, errno.EINVAL, errno.EBADF}  # EBADF: NFS, of a folder
LACKING = {*MISSING, errno.EXDEV, errno.EMLINK, errno.EINVAL, errno.ENOLCK}
BROKEN = {errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV, errno.EBUSY, errno.ETIMEDOUT}
MISPLACED = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ELOOP}
OF_FILES = FULL | DENIED | LACKING | BROKEN | MISPLACED  # the user's to mend, not a bug
LONGEST_NAME = 255  # bytes, on nearly every file system
KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def reason(error: Exception) -> str:
    """Why a file could not be had: the system's words; of a whole tree those of its first file."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        return str(error.args[0][0][-1])
    return getattr(error, "strerror", None) or (str(error).strip().splitlines() or [type(error).__name__])[0]


def advice(error: Exception) -> str:
    """What to do about it, as the end of a sentence; a library's error is known by the system's words in it."""

    def is_one(numbers: set[int]) -> bool:
        number = getattr(error, "errno", None)
        return number in numbers if number else any(os.strerror(known) in str(error) for known in numbers)

    if is_one(FULL):
        return "free some space and run again"
    if is_one(DENIED):
        return "choose a folder that you may write to"
    if is_one(LACKING):
        return "its file system lacks that, choose a folder on another"
    return "choose another folder"


def read(path: Path) -> bytes:
    """The content of a regular file; UnusableFile, without waiting, for what is none or can't be read.

    FileNotFoundError and NotADirectoryError where there is nothing.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123  (never waits for a writer)
            kind = stat.S_IFMT(os.fstat(file.fileno()).st_mode)
            if kind in KINDS:
                raise UnusableFile(f"{path} is {KINDS[kind]} and no file: put back what was there, or move it away.")
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise UnusableFile(f"{path} can't be read ({reason(error)}): put a file there that you may read.") from error


def sync(file: int) -> None:
    """Wait until an open file is on the disk, where the file system can tell."""
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise


def link_new(part: Path, path: Path) -> None:
    """Show the complete file `part` as `path` too, where there is none; FileExistsError where there is one.

    Without hard links the name is taken first, by a file that is empty until `part` takes its place: a process that
    ends just between leaves it empty.
    """
    try:
        os.link(part, path)
        return
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    try:
        part.replace(path)
    except OSError:
        path.unlink()
        raise


def share_file(source: str, target: str) -> None:
    """Give a file that nobody changes a second name, which costs no space; a copy without hard links."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        shutil.copyfile(source, target)


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold a folder, or a lock file that is made if needed, for this process; the system lets go however it ends.

    False when another process holds it and not `wait`. On a file system without locks, processes of this machine
    exclude each other by a file in the folder for temporary ones, and standard error says so.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    how = fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB)
    with ExitStack() as opened:
        try:
            held = _flock(opened, path, how)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            _say_without_locks(path.parent, reason(error))
            held = _flock(opened, machine_lock(str(path.resolve())), how)
        yield held


def machine_lock(name: str) -> Path:
    """The lock file of something that is no file, for the processes of this user on this machine."""
    folder = Path(tempfile.gettempdir()) / f"repro-locks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def _flock(opened: ExitStack, path: Path, how: int) -> bool:
    """Whether the lock is had, which lasts as long as `opened`."""
    file = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o644)
    opened.callback(os.close, file)
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        return False
    return True


@cache
def _say_without_locks(folder: Path, why: str) -> None:
    print(f"repro: {folder} has no locks ({why}): use it from one machine at a time.", file=sys.stderr, flush=True)


def local(text: str) -> Path:
    """The local path that a user names, `~` expanded; UserError for what can be none."""
    if not text.strip():
        raise UserError("an empty path: name a folder or file.")
    if "\0" in text:
        raise UserError(f"{text!r}: a path holds no NUL.")
    if "://" in text:
        raise UserError(f"{text}: only run folders may lie in a bucket, name a local path.")
    try:
        path = Path(text).expanduser() if text.startswith("~") else Path(text)  # ./~ is a name like others
        os.stat(path)  # noqa: PTH116  (a loop of links is told where it is named)
    except RuntimeError as error:
        raise UserError(f"{text}: there is no such home folder, write the path in full.") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            raise UserError(f"{_short(text)} can't be a path ({reason(error)}): name another.") from error
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in path.parts):
        raise UserError(f"{_short(text)}: a name has {LONGEST_NAME} bytes at most.")
    return path


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}…"
