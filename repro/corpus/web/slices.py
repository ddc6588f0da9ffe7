"""One source file to shards: cut into slices by its text alone, so that any number of workers writes the same bytes.

A slice is a run of documents with `shard_bytes` of text (more where the last document is long) and becomes one shard
of each split it has documents of. Its record, written last, says where in the file it ends: a file that was cut goes
on there. Memory holds one batch of documents and the model.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from repro import disk
from repro.corpus.recipes import TextRecipe
from repro.corpus.shards import is_held_out, json_text, text_digest, total
from repro.corpus.tokenizer import MODEL, load_model
from repro.corpus.tokens import Shard, Tokenizer
from repro.corpus.web.reading import Broken, DamagedFile, DamagedTransfer, Reader, SourceFile, Text, complaint
from repro.corpus.web.remote import Backoff, Say, insist
from repro.files import write_bytes
from repro.words import counted

BATCH_BYTES, BATCH_DOCUMENTS = 1 << 20, 4096  # of text, encoded at once
_DAMAGED_TRIES = 3  # transfers of a remote file whose content turns out damaged

Report = Callable[[float], None]


@dataclass(frozen=True)
class FileJob:
    """A source file to tokenize into `folder`; `index` is its place among all files and names its shards."""

    folder: Path
    index: int
    file: SourceFile
    recipe: TextRecipe
    tokenizer: Tokenizer
    skip_broken: bool
    backoff: Backoff
    token: str | None

    def __repr__(self) -> str:  # the hub token stays out of messages
        return f"Job({self.index}, {self.file.name})"

    @property
    def key(self) -> str:
        """What a finished slice must have been made from to be taken over."""
        parts = (self.recipe.digest, self.tokenizer.sha256, self.file.split, self.file.name, self.file.version)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def tokenize_file(job: FileJob, report: Report, say: Say) -> None:
    """Write every slice that is not there yet; UserError on a broken line or file. Tells `report` the share done."""
    tries = Backoff(job.backoff.first, job.backoff.longest, _DAMAGED_TRIES)
    insist(lambda: _tokenize(job, report, say), job.file.place, tries, say)


def records_of(job: FileJob) -> list[dict[str, Any]]:
    """The records of the finished slices from the first on, as far as they follow each other."""
    records: list[dict[str, Any]] = []
    while not (records and records[-1]["last"]):
        path = _record_path(job, len(records))
        record = json.loads(path.read_bytes()) if path.is_file() else None
        if record is None or record["key"] != job.key:
            break
        records.append(record)
    return records


def _tokenize(job: FileJob, report: Report, say: Say) -> None:
    records = records_of(job)
    if records and records[-1]["last"]:
        return
    line, read = (records[-1]["line"], records[-1]["read"]) if records else (0, 0)
    begun = records[-1].get("identity") if records else None
    with Reader(job.file, job.backoff, say, job.token) as reader:
        documents = reader.documents(skip=line)
        last, index = False, len(records)
        try:
            while not last:
                with _Slice(job, index, line, read) as piece:
                    last = _fill(piece, documents, lambda: report(reader.fraction))
                    if begun not in (None, reader.identity):
                        raise DamagedTransfer(f"it changed since its first {counted(line, 'line')} were read")
                    source = {"bytes": reader.size, "sha256": reader.digest} if last else None
                    piece.finish(last, source, reader.identity)
                line, read, index = piece.line, piece.read, index + 1
                report(reader.fraction)
        except (DamagedFile, DamagedTransfer):
            for done in range(index):  # they may be damaged too: gzip's checksum stands at the end
                _record_path(job, done).unlink()
            raise


def _fill(piece: "_Slice", documents: Iterator[Text | Broken], tell: Callable[[], None]) -> bool:
    """Add documents until the slice has its text; True where the file, or what is wanted of it, ends."""
    limit = piece.job.recipe.limit_documents
    while limit is None or piece.read < limit:
        document = next(documents, None)
        if document is None:
            return True
        if piece.add(document):
            tell()
        if piece.text_bytes >= piece.job.recipe.shard_bytes:
            return False
    return True


class _Slice:
    """A slice while it is written; its shards appear under their names in `finish`, or not at all."""

    def __init__(self, job: FileJob, index: int, line: int, read: int) -> None:
        self.job, self.index, self.line, self.read = job, index, line, read
        self.text_bytes = 0
        self._batch: list[tuple[str, str, str, int]] = []  # split, part, text, bytes
        self._batch_bytes = 0
        self._skipped: Counter[str] = Counter()
        self._outputs: dict[str, _Output] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "_Slice":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, document: Text | Broken) -> bool:
        """Take in one document, or count one that is none; whether that filled a batch, which is now encoded."""
        self.line = document.line
        if isinstance(document, Broken):
            if not self.job.skip_broken:
                raise complaint(self.job.file, document)
            self._skipped[document.reason] += 1
            return False
        self.read += 1
        size = len(document.text.encode())
        self._batch.append((self._split(document), document.source or self.job.recipe.corpus, document.text, size))
        self.text_bytes += size
        self._batch_bytes += size
        full = self._batch_bytes >= BATCH_BYTES or len(self._batch) >= BATCH_DOCUMENTS
        if full:
            self._flush()
        return full

    def finish(self, last: bool, source: dict[str, Any] | None, identity: list[Any] | None) -> None:
        """Everything on disk under its name, and the record after it."""
        self._flush()
        shards = {split: self._outputs[split].finish() for split in sorted(self._outputs)}
        record = {
            "key": self.job.key,
            "line": self.line,
            "read": self.read,
            "last": last,
            "source": source,
            "identity": identity,
            "skipped": self._skipped,
            "shards": shards,
        }
        write_bytes(_record_path(self.job, self.index), json_text(record))

    def _split(self, document: Text) -> str:
        recipe = self.job.recipe
        if recipe.validation_per_mille and is_held_out(
            text_digest(document.text, recipe.seed), recipe.validation_per_mille
        ):
            return "validation"
        return self.job.file.split

    def _flush(self) -> None:
        model = _model(self.job.folder / MODEL, self.job.tokenizer.sha256)
        encoded = model.encode([text for _, _, text, _ in self._batch], return_type="numpy", num_threads=1)
        kept: dict[str, list[np.ndarray]] = {}
        for (split, part, _, size), ids in zip(self._batch, encoded, strict=True):
            if not len(ids):
                self._skipped["empty"] += 1
                continue
            kept.setdefault(split, []).append(ids)
            self._output(split).count(part, len(ids) + 1, size)
        for split, documents in kept.items():
            self._output(split).write(documents)
        self._batch, self._batch_bytes = [], 0

    def _output(self, split: str) -> "_Output":
        if split not in self._outputs:
            name = f"{split}-{self.job.index:05d}-{self.index:04d}.bin"
            self._outputs[split] = self._stack.enter_context(_Output(self.job.folder / name, self.job.tokenizer))
        return self._outputs[split]


class _Output:
    """The shard of one split, written as it comes."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        self._path, self._part = path, path.with_name(f"{path.name}.{os.getpid()}.part")
        self._dtype, self._eos = tokenizer.dtype, np.array([tokenizer.eos], np.int32)
        self._file = self._part.open("wb")
        self._sha = hashlib.sha256()
        self._parts: dict[str, Counter[str]] = {}

    def __enter__(self) -> "_Output":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)

    def count(self, part: str, tokens: int, size: int) -> None:
        """Note a document, its EOS among the tokens."""
        self._parts.setdefault(part, Counter()).update(documents=1, tokens=tokens, bytes=size)

    def write(self, documents: list[np.ndarray]) -> None:
        """Append documents, each with its EOS."""
        tokens = np.concatenate([ids for document in documents for ids in (document, self._eos)])
        content = tokens.astype(self._dtype).tobytes()
        self._sha.update(content)
        self._file.write(content)

    def finish(self) -> dict[str, Any]:
        """The shard on disk under its name; returns its record."""
        self._file.flush()
        disk.sync(self._file.fileno())
        self._file.close()
        self._part.replace(self._path)
        shard = Shard(file=self._path.name, sha256=self._sha.hexdigest(), **total(self._parts))
        return {"shard": asdict(shard), "parts": self._parts}


@lru_cache(maxsize=1)
def _model(path: Path, sha256: str) -> Any:
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{path} changed while its tokens were made")
    return load_model(content, str(path))


def _record_path(job: FileJob, index: int) -> Path:
    return job.folder / f"{job.index:05d}-{index:04d}.record.json"
