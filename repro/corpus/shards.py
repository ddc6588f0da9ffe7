"""Documents to shards: the split by document, the units of work, and the manifest that closes a folder.

A unit is a run of documents that becomes one shard. Its record lies beside it until the manifest is written,
so a run that was cut takes up at the first unit without one. Files appear under their name when complete.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from repro import disk
from repro.corpus.preparing import Progress
from repro.corpus.tokens import FORMAT_VERSION, MANIFEST, Shard, Tokenizer
from repro.errors import UserError
from repro.files import write_bytes

SPLITS = ("train", "validation")
Encode = Callable[[list[str]], list[np.ndarray]]


@dataclass(frozen=True)
class TextDocument:
    """One text and the part of the corpus it comes from."""

    part: str
    text: str


def split_documents(
    documents: Iterable[TextDocument], seed: int, validation_per_mille: int
) -> dict[str, list[TextDocument]]:
    """Both splits in the order of a seeded hash of the text, which alone decides the place and the split."""
    keyed = {text_digest(doc.text, seed): doc for doc in documents}
    splits: dict[str, list[TextDocument]] = {split: [] for split in SPLITS}
    for digest in sorted(keyed):
        splits["validation" if is_held_out(digest, validation_per_mille) else "train"].append(keyed[digest])
    return splits


def text_digest(text: str, seed: int) -> bytes:
    """The seeded hash of a text: its first half gives the place, its second the split."""
    return hashlib.blake2b(text.encode(), digest_size=16, key=seed.to_bytes(8, "little")).digest()


def is_held_out(digest: bytes, validation_per_mille: int) -> bool:
    """Whether the text with this digest belongs to the validation split."""
    return int.from_bytes(digest[8:], "little") % 1000 < validation_per_mille


def write_shards(
    folder: Path,
    splits: dict[str, list[TextDocument]],
    encode: Encode,
    tokenizer: Tokenizer,
    shard_bytes: int,
    progress: Progress,
) -> dict[str, Any]:
    """Write every shard not yet there; returns the manifest's "splits": counts, parts and shards of each."""
    units = [
        (split, f"{split}-{index:05d}", unit)
        for split in SPLITS
        for index, unit in enumerate(_units(splits[split], shard_bytes))
    ]
    records: dict[str, list[dict[str, Any]]] = {split: [] for split in SPLITS}
    for done, (split, name, unit) in enumerate(units):
        progress("tokens", done, len(units))
        record = _finished(folder, name, unit, tokenizer) or _write_unit(folder, name, unit, encode, tokenizer)
        records[split].append(record)
    progress("tokens", len(units), len(units))
    return {split: summary(records[split]) for split in SPLITS}


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Close the folder: after this it is prepared, and the records of its units and what was half written are gone."""
    write_bytes(folder / MANIFEST, json_text({"format": FORMAT_VERSION, **manifest}))
    for left in (*folder.glob("*.record.json"), *folder.glob("*.part")):
        left.unlink()


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """A disk that is full, may not be written to, or lacks what is needed becomes a UserError."""
    try:
        yield
    except OSError as error:
        if error.errno not in disk.OF_FILES:
            raise
        raise UserError(f"can't write {folder} ({error.strerror}): {disk.advice(error)}.") from error


def _units(documents: list[TextDocument], shard_bytes: int) -> list[list[TextDocument]]:
    """Runs of documents of at least shard_bytes of text, but for the last; no document is ever cut."""
    units: list[list[TextDocument]] = []
    size = shard_bytes
    for document in documents:
        if size >= shard_bytes:
            units.append([])
            size = 0
        units[-1].append(document)
        size += len(document.text.encode())
    return units


def _write_unit(
    folder: Path, name: str, unit: list[TextDocument], encode: Encode, tokenizer: Tokenizer
) -> dict[str, Any]:
    encoded = encode([document.text for document in unit])
    eos = np.array([tokenizer.eos])
    content = np.concatenate([ids for document in encoded for ids in (document, eos)]).astype(tokenizer.dtype).tobytes()
    parts: dict[str, Counter[str]] = {}
    for document, ids in zip(unit, encoded, strict=True):
        parts.setdefault(document.part, Counter()).update(
            documents=1, tokens=len(ids) + 1, bytes=len(document.text.encode())
        )
    shard = Shard(file=f"{name}.bin", sha256=hashlib.sha256(content).hexdigest(), **total(parts))
    record = {"shard": asdict(shard), "parts": parts, "unit": _unit_digest(unit, tokenizer)}
    write_bytes(folder / shard.file, content)
    write_bytes(folder / f"{name}.record.json", json_text(record))
    return record


def _finished(folder: Path, name: str, unit: list[TextDocument], tokenizer: Tokenizer) -> dict[str, Any] | None:
    """The record of a unit that an earlier run has finished, if its text and tokenizer were the same."""
    path = folder / f"{name}.record.json"
    if not path.is_file():
        return None
    record = json.loads(path.read_bytes())
    return record if record["unit"] == _unit_digest(unit, tokenizer) else None


def _unit_digest(unit: list[TextDocument], tokenizer: Tokenizer) -> str:
    digest = hashlib.sha256(tokenizer.sha256.encode())
    for document in unit:
        digest.update(f"\0{document.part}\0{document.text}".encode())
    return digest.hexdigest()


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """What the manifest says of a split, from the records (shard, parts) of its units in order."""
    parts: dict[str, Counter[str]] = {}
    for record in records:
        for part, counts in record["parts"].items():
            parts.setdefault(part, Counter()).update(counts)
    return {
        **total(parts),
        "parts": parts,
        "shards": [record["shard"] for record in records],
    }


def total(parts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """The counts of all parts together."""
    return {count: sum(part[count] for part in parts.values()) for count in ("documents", "tokens", "bytes")}


def json_text(value: dict[str, Any]) -> bytes:
    """How records and manifests are written: the same bytes for the same value."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
