"""Source files to documents: gzip, zstd or plain JSON lines, and parquet; each document with its line.

What can't be trusted stops the reading with one sentence: a file that is empty, truncated or not what its name
says. A single bad line comes out as Broken, and the caller decides. Text is passed on unchanged.
"""

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from repro.corpus.web.remote import Backoff, RemoteFile, Say, TransferError
from repro.errors import UserError

SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz", ".json.zst", ".jsonl.zst", ".parquet")
_BUFFER = 1 << 20
_ROWS = 1024  # of parquet at a time


@dataclass(frozen=True)
class SourceFile:
    """One file of a corpus: `name` in the corpus's layout, `place` a path or an address, `version` for changes.

    `size` in bytes is what the hub lists; None where nothing does.
    """

    split: str
    name: str
    place: str
    version: str
    size: int | None = None

    @property
    def remote(self) -> bool:
        """Whether it must be fetched."""
        return self.place.startswith(("http://", "https://"))


@dataclass(frozen=True)
class Text:
    """One document; `source` is Dolma's field of that name."""

    line: int
    text: str
    source: str | None


@dataclass(frozen=True)
class Broken:
    """A line that is no document, and why (a key of REASONS)."""

    line: int
    reason: str


REASONS = {
    "invalid_utf8": "is not valid UTF-8",
    "invalid_json": "is not a JSON object",
    "missing_text": "has no field 'text'",
    "text_not_a_string": "has a field 'text' that is not a string",
    "invalid_unicode": "has a text with half a surrogate pair",
}


class DamagedFile(UserError):
    """A local file that can't be read through: nothing of it can be trusted."""


class DamagedTransfer(TransferError):
    """A remote file that can't be read through: its transfer may be tried again."""


class Reader:
    """The documents of one file; `fraction` tells how far it is, `digest` and `size` its content once read through."""

    def __init__(self, file: SourceFile, backoff: Backoff, say: Say, token: str | None = None) -> None:
        self.file = file
        self._raw = _Counted(_open(file, backoff, say, token), file.place)
        self._line = 0
        self.finished = False

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    @property
    def fraction(self) -> float:
        """The share of the file's bytes that has been read."""
        return self._raw.count / max(1, self._raw.total() or 1)

    @property
    def size(self) -> int:
        """The file's bytes."""
        return self._raw.total() or self._raw.count

    @property
    def identity(self) -> list[Any] | None:
        """Length and version that a server tells, by which a later reader knows the same file; None of a local one."""
        return self._raw.identity()

    @property
    def digest(self) -> str | None:
        """sha256 of the file as it lies, None unless it was read to its end."""
        return self._raw.sha.hexdigest() if self.finished else None

    def documents(self, skip: int = 0) -> Iterator[Text | Broken]:
        """Documents after the first `skip` lines (rows); UserError, or TransferError if remote, on a bad file."""
        try:
            if self.file.name.endswith(".parquet"):
                yield from self._rows(skip)
            else:
                yield from self._lines(skip)
        except (EOFError, OSError, zlib.error, pyarrow.ArrowInvalid) as error:
            raise self._bad(error) from error
        if self._raw.count == 0:
            raise self._bad(EOFError("it is empty, 0 bytes"))
        self.finished = True

    def _lines(self, skip: int) -> Iterator[Text | Broken]:
        stream = _decompressed(self.file.name, self._raw)
        for self._line, line in enumerate(stream, 1):
            if self._line > skip and not line.isspace():
                yield parse(self._line, line)
        self._raw.drain()  # while `stream` lives, which closes what it reads from

    def _rows(self, skip: int) -> Iterator[Text | Broken]:
        if self._raw.total() == 0:
            return
        with pyarrow.parquet.ParquetFile(self.file.place) as parquet:
            columns = [name for name in ("text", "source") if name in parquet.schema_arrow.names]
            if "text" not in columns:
                raise UserError(
                    f"{self.file.place} has no column 'text' (it has {', '.join(parquet.schema_arrow.names)}):"
                    " give the files of the corpus itself."
                )
            for batch in parquet.iter_batches(_ROWS, columns=columns):
                for row in batch.to_pylist():
                    self._line += 1
                    if self._line > skip:
                        yield parse_document(self._line, row)
        self._raw.drain()

    def _bad(self, error: Exception) -> Exception:
        if self.file.remote:  # sound in number of bytes, so a second transfer may help
            return DamagedTransfer(f"its content is damaged after line {self._line} ({error})")
        return DamagedFile(
            f"{self.file.place} is damaged after line {self._line} ({str(error).rstrip('.')}): copy it again from its"
            " source, or take it out of the folder."
        )


def parse(number: int, line: bytes) -> Text | Broken:
    """One line of JSON."""
    try:
        decoded = line.decode()
    except UnicodeDecodeError:
        return Broken(number, "invalid_utf8")
    try:
        row = json.loads(decoded)
    except (ValueError, RecursionError):
        return Broken(number, "invalid_json")
    return parse_document(number, row) if isinstance(row, dict) else Broken(number, "invalid_json")


def parse_document(number: int, row: dict[str, Any]) -> Text | Broken:
    """One object of the fields of C4 or Dolma."""
    text, source = row.get("text"), row.get("source")
    if "text" not in row:
        return Broken(number, "missing_text")
    if not isinstance(text, str):
        return Broken(number, "text_not_a_string")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        return Broken(number, "invalid_unicode")
    return Text(number, text, source if isinstance(source, str) else None)


def complaint(file: SourceFile, broken: Broken) -> UserError:
    """What to say of a line that is no document."""
    return UserError(
        f"{file.place}, line {broken.line}, {REASONS[broken.reason]}: mend or remove the line, or leave such lines"
        " out with --skip-broken, which counts them in the manifest."
    )


class _Counted(io.RawIOBase):
    """A raw stream whose bytes are counted and hashed on their way."""

    def __init__(self, raw: io.RawIOBase, place: str) -> None:
        self._raw, self._place, self.count, self.sha = raw, place, 0, hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        count = self._raw.readinto(buffer) or 0
        self.count += count
        self.sha.update(memoryview(buffer)[:count])
        return count

    def total(self) -> int | None:
        if isinstance(self._raw, RemoteFile):
            return self._raw.total
        return Path(self._place).stat().st_size

    def identity(self) -> list[Any] | None:
        return [self._raw.total, self._raw.etag] if isinstance(self._raw, RemoteFile) else None

    def drain(self) -> None:
        """Read what no one asked for, such as what follows the compressed stream, or a parquet file as it lies."""
        buffer = bytearray(_BUFFER)
        while self.readinto(buffer):
            pass

    def close(self) -> None:
        self._raw.close()
        super().close()


def _open(file: SourceFile, backoff: Backoff, say: Say, token: str | None) -> io.RawIOBase:
    if file.remote:
        return RemoteFile(file.place, backoff, say, token, file.size)
    try:
        return Path(file.place).open("rb", buffering=0)
    except OSError as error:
        raise UserError(f"{file.place} can't be read ({error.strerror}): check the path and its permissions.") from None


def _decompressed(name: str, raw: _Counted) -> Iterable[bytes]:
    buffered = io.BufferedReader(raw, _BUFFER)
    if name.endswith(".gz"):
        return io.BufferedReader(gzip.GzipFile(fileobj=buffered), _BUFFER)
    if name.endswith(".zst"):
        return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.PythonFile(buffered, "r"), "zstd"), _BUFFER)
    return buffered
