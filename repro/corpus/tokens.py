"""Prepared tokens: the shard format, its reader, and the order in which training sees them.

A token folder holds one flat little-endian file per shard and a manifest.json, written last, that says what
they are. Everything here is a pure function of the manifest, the shards and a seed: it must not know how text
became tokens (repro.corpus.prepare) nor what a step does with them (the trainer).
"""

import hashlib
import itertools
import json
import os
import resource
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from repro.errors import UserError

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
FEW_SHARDS = 128  # a mapped file holds a descriptor, of which a process may have a thousand: so many ask for no more
BLOCK = 4096  # permuted window indices computed at once, so that small batches don't pay for small arrays


@dataclass(frozen=True)
class Tokenizer:
    """What made the tokens. `file` lies in the token folder; an id of -1 means there is no such token."""

    kind: str
    file: str | None
    sha256: str
    vocab: int
    unk: int
    bos: int
    eos: int
    pad: int

    @property
    def dtype(self) -> np.dtype:
        """The little-endian type in which shards of this tokenizer are stored."""
        return np.dtype("<u2" if self.vocab <= 65536 else "<u4")


@dataclass(frozen=True)
class Shard:
    """One file of tokens: `bytes` counts the UTF-8 text behind them, `tokens` includes an EOS a document."""

    file: str
    documents: int
    tokens: int
    bytes: int
    sha256: str


class TokenSet:
    """One split of a token folder, read as a single sequence of tokens through memory maps."""

    def __init__(self, folder: Path, split: str, manifest: dict[str, Any], digest: str) -> None:
        self.folder, self.split, self.digest = folder, split, digest
        self.corpus: str = manifest["corpus"]
        self.in_domain: tuple[str, ...] = tuple(manifest["in_domain"])
        self.tokenizer = Tokenizer(**manifest["tokenizer"])
        self.shards = tuple(Shard(**shard) for shard in manifest["splits"][split]["shards"])
        self.documents = sum(shard.documents for shard in self.shards)
        self.text_bytes = sum(shard.bytes for shard in self.shards)
        self._starts = [0, *itertools.accumulate(shard.tokens for shard in self.shards)]
        self._maps: dict[int, np.ndarray] | None = {} if may_map(len(self.shards)) else None
        for shard in self.shards:
            _check_size(self, shard)

    def __len__(self) -> int:
        """The number of tokens."""
        return self._starts[-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of all shards on disk."""
        return len(self) * self.tokenizer.dtype.itemsize

    def read(self, start: int, count: int) -> np.ndarray:
        """Tokens [start, start + count) as int32, across shards if need be."""
        if start < 0 or start + count > len(self):
            raise IndexError(f"tokens {start}..{start + count} of {len(self)}")
        out = np.empty(count, np.int32)
        self.read_into(out, start)
        return out

    def read_into(self, out: np.ndarray, start: int) -> None:
        """Fill the vector `out` with the tokens from `start` on."""
        index = bisect_right(self._starts, start) - 1
        offset = start - self._starts[index]
        part = self._part(index, offset, len(out))
        if len(part) == len(out):
            out[:] = part
        else:  # the shard ends here: go on in the next
            out[: len(part)] = part
            self.read_into(out[len(part) :], start + len(part))

    def sequences(self, seq_len: int) -> int:
        """How many windows of seq_len + 1 tokens at stride seq_len fit: each predicts seq_len tokens alone.

        Neighbours share one token, so every token but the first is predicted exactly once, up to a last
        remainder of fewer than seq_len tokens.
        """
        return max(0, (len(self) - 1) // seq_len)

    def windows(self, seq_len: int, first: int, count: int) -> np.ndarray:
        """Windows [first, first + count) in the order of the text: (count, seq_len + 1), int32."""
        if first < 0 or first + count > self.sequences(seq_len):
            raise UserError(
                f"the {self.split} split of {self.folder} has {self.sequences(seq_len)} sequences of"
                f" {seq_len} tokens, not the {first + count} asked for: ask for fewer or shorten it."
            )
        out = np.empty((count, seq_len + 1), np.int32)
        for row, index in zip(out, range(first, first + count), strict=True):
            self.read_into(row, index * seq_len)
        return out

    def verify(self) -> None:
        """Read every shard and the tokenizer through; UserError names the first that isn't as written."""
        for shard in self.shards:
            if file_sha256(self.folder / shard.file) != shard.sha256:
                raise _damaged(self, shard.file, "its checksum differs from the manifest's")
        if self.tokenizer.file and file_sha256(self.folder / self.tokenizer.file) != self.tokenizer.sha256:
            raise _damaged(self, self.tokenizer.file, "its checksum differs from the manifest's")

    def _part(self, index: int, offset: int, count: int) -> np.ndarray:
        """At most `count` tokens of one shard from `offset` on."""
        path, dtype = self.folder / self.shards[index].file, self.tokenizer.dtype
        if self._maps is not None:
            if index not in self._maps:
                self._maps[index] = np.memmap(path, dtype, "r").view(np.ndarray)
            return self._maps[index][offset : offset + count]
        descriptor = os.open(path, os.O_RDONLY)  # quicker for one window than to map the file
        try:
            return np.frombuffer(os.pread(descriptor, count * dtype.itemsize, offset * dtype.itemsize), dtype)
        finally:
            os.close(descriptor)


def may_map(shards: int) -> bool:
    """Whether so many more files may stay mapped: raises this process's limit of descriptors where that is allowed."""
    if shards <= FEW_SHARDS:
        return True
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft + shards > hard:
        return False
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft + shards, hard))
    except (ValueError, OSError):  # macOS names no hard limit and has one
        return False
    return True


def open_tokens(folder: Path, split: str = "train") -> TokenSet:
    """Open one split: reads the manifest and the files' sizes only (TokenSet.verify reads everything)."""
    try:
        text = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise UserError(f"no prepared tokens in {folder}: run `python -m repro prepare`.") from None
    try:
        manifest = json.loads(text)
        version, splits = manifest["format"], tuple(manifest["splits"])
        if version == FORMAT_VERSION and split in splits:
            return TokenSet(folder, split, manifest, hashlib.sha256(text).hexdigest())
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{folder / MANIFEST} is damaged: delete {folder} and prepare it again.") from None
    if version != FORMAT_VERSION:
        raise UserError(f"{folder} has token format {version!r}, not {FORMAT_VERSION}: delete it and prepare it again.")
    raise UserError(f"{folder} has no split {split!r}: choose one of {', '.join(splits)}.")


class Batches:
    """The examples of every step, the same for all methods and numbers of replicas.

    Example i of replica r at a step has the global index step·B + r·B/M + i; one seeded permutation of the
    windows, a new one for each epoch, turns it into a place in the text. No state: any step can be asked for.
    """

    def __init__(
        self, tokens: TokenSet, seq_len: int, batch: int, replicas: int, seed: int, *, repeat: bool = False
    ) -> None:
        if batch < 1 or replicas < 1 or batch % replicas:
            raise UserError(f"a batch of {batch} sequences doesn't divide among {replicas} replicas: change either.")
        if seed < 0:
            raise UserError(f"the seed is {seed}: it must not be negative.")
        self.tokens, self.seq_len, self.batch_size, self.replicas = tokens, seq_len, batch, replicas
        self.seed, self.repeat = seed, repeat
        self.windows = tokens.sequences(seq_len)
        if self.windows < 1:
            raise UserError(
                f"the {tokens.split} split of {tokens.folder} has {len(tokens)} tokens, too few for one"
                f" sequence of {seq_len}: shorten the sequence or prepare more text."
            )
        self._block = lru_cache(maxsize=8)(self._block_starts)

    @property
    def steps_per_epoch(self) -> int:
        """Whole steps before any example is seen a second time."""
        return self.windows // self.batch_size

    def require(self, steps: int) -> None:
        """UserError unless `steps` steps can be had; call it before compiling anything."""
        if not self.repeat and steps > self.steps_per_epoch:
            raise UserError(
                f"{steps} steps of {self.batch_size}×{self.seq_len} tokens need more than the one epoch of"
                f" {self.steps_per_epoch} steps in {self.tokens.folder}: train shorter, or allow repetition."
            )

    def batch(self, step: int, replica: int) -> np.ndarray:
        """(B/M, seq_len + 1) int32: inputs are [:, :-1], targets [:, 1:]. Pure in (seed, step, replica)."""
        if step < 0 or not 0 <= replica < self.replicas:
            raise IndexError(f"step {step}, replica {replica} of {self.replicas}")
        self.require(step + 1)
        rows = self.batch_size // self.replicas
        first = step * self.batch_size + replica * rows
        out = np.empty((rows, self.seq_len + 1), np.int32)
        read_into = self.tokens.read_into
        for row, start in zip(out, self._window_starts(first, rows), strict=True):
            read_into(row, start)
        return out

    def _window_starts(self, first: int, count: int) -> list[int]:
        """Where in the text the examples with global index [first, first + count) begin."""
        starts: list[int] = []
        while len(starts) < count:
            epoch, position = divmod(first + len(starts), self.windows)
            block, offset = divmod(position, BLOCK)
            starts += self._block(epoch, block)[offset : offset + count - len(starts)]
        return starts

    def _block_starts(self, epoch: int, block: int) -> list[int]:
        positions = np.arange(block * BLOCK, min((block + 1) * BLOCK, self.windows), dtype=np.uint64)
        return (permute(positions, self.windows, (self.seed, epoch)).astype(np.int64) * self.seq_len).tolist()


def permute(positions: np.ndarray, size: int, key: tuple[int, ...]) -> np.ndarray:
    """A keyed bijection of range(size), applied to uint64 positions below `size`, without a table.

    A Feistel network permutes the smallest range of 4^k numbers that holds `size`; values that land outside
    walk on along their cycle until they are inside, which keeps the map one to one.
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    keys = np.random.SeedSequence(key).generate_state(6, np.uint64)
    out = _feistel(positions, half, keys)
    while (outside := out >= size).any():
        out[outside] = _feistel(out[outside], half, keys)
    return out


def mix64(values: np.ndarray) -> np.ndarray:
    """A bijection of uint64 that scatters all bits (the finaliser of splitmix64), stable on every machine."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def file_sha256(path: Path) -> str:
    """The hexadecimal sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _feistel(values: np.ndarray, half: int, keys: np.ndarray) -> np.ndarray:
    mask = np.uint64((1 << half) - 1)
    left, right = values >> np.uint64(half), values & mask
    for key in keys:
        left, right = right, left ^ (mix64(right + key) & mask)
    return (left << np.uint64(half)) | right


def _check_size(tokens: TokenSet, shard: Shard) -> None:
    path, wanted = tokens.folder / shard.file, shard.tokens * tokens.tokenizer.dtype.itemsize
    if not path.is_file():
        raise _damaged(tokens, shard.file, "it is missing")
    if path.stat().st_size != wanted:
        raise _damaged(tokens, shard.file, f"it has {path.stat().st_size} bytes instead of {wanted}")


def _damaged(tokens: TokenSet, file: str, how: str) -> UserError:
    return UserError(
        f"{tokens.folder / file} is damaged ({how}): delete {tokens.folder} and run"
        f" `python -m repro prepare {tokens.corpus}`."
    )


Encode = Callable[[str], list[int]]


def open_encoder(tokens: TokenSet) -> Encode:
    """Text to tokens as in training, nothing added. UserError for a tokenizer that has no encoder here."""
    tokenizer = tokens.tokenizer
    if tokenizer.kind == "bytes":
        return lambda text: list(text.encode())
    if tokenizer.kind != "sentencepiece" or tokenizer.file is None:
        raise UserError(f"{tokens.folder} has a tokenizer of kind {tokenizer.kind!r}: prepare with SentencePiece.")
    import sentencepiece  # byte tokens need none of it

    return sentencepiece.SentencePieceProcessor(model_file=str(tokens.folder / tokenizer.file)).encode
