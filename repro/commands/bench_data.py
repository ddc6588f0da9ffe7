"""How fast batches are read: `python -m repro.commands.bench_data [TOKEN FOLDER]`, without one on random tokens.

The loader must never be the bottleneck: 20 million tokens a second are asked of it, some ten times what a
4B model on 512 chips takes in. One process, one thread; the files are in the page cache after the first pass.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from repro.corpus.tokens import FORMAT_VERSION, MANIFEST, Batches, open_tokens
from repro.errors import UserError

_LAYOUTS = {"8 shards": (8, 2_000_000), "3,000 shards": (3_000, 20_000)}


def batch_tokens_per_s(folder: Path, seq_len: int, batch: int, *, seconds: float = 2.0, replicas: int = 2) -> float:
    """Tokens a second of Batches.batch over steps that wrap around, every replica in turn."""
    batches = Batches(open_tokens(folder), seq_len, batch, replicas, seed=0, repeat=True)
    steps = max(1, batches.steps_per_epoch)
    for step in range(steps):  # opens and maps what a long run has long opened
        batches.batch(step, 0)
    tokens, start, step = 0, time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < seconds:
        for replica in range(replicas):
            tokens += batches.batch(step, replica).shape[0] * seq_len
        step += 1
    return tokens / elapsed


def write_random_tokens(folder: Path, shards: int, tokens: int) -> Path:
    """A token folder of so many shards of so many random tokens each, as a preparation would leave it."""
    folder.mkdir(parents=True)
    content = np.random.default_rng(0).integers(0, 32_000, tokens, dtype="<u2").tobytes()
    listed = []
    for index in range(shards):
        name = f"train-{index:05d}-0000.bin"
        (folder / name).write_bytes(content)
        listed.append({"file": name, "documents": 1, "tokens": tokens, "bytes": 4 * tokens, "sha256": ""})
    ids = {"unk": -1, "bos": -1, "eos": 0, "pad": -1}
    tokenizer = {"kind": "random", "file": None, "sha256": "", "vocab": 32_000, **ids}
    manifest = {"format": FORMAT_VERSION, "corpus": "random", "in_domain": [], "tokenizer": tokenizer}
    (folder / MANIFEST).write_text(json.dumps({**manifest, "splits": {"train": {"shards": listed}}}), encoding="utf-8")
    return folder


def main(words: list[str]) -> int:
    """Print the speeds at the sequence lengths of C4 and Dolma."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = {word: Path(word) for word in words} or {
            name: write_random_tokens(Path(scratch) / str(shards), shards, tokens)
            for name, (shards, tokens) in _LAYOUTS.items()
        }
        for name, folder in folders.items():
            for seq_len in (1_024, 2_048):
                speed = batch_tokens_per_s(folder, seq_len, 2**20 // seq_len // 4)
                print(f"{name}, sequences of {seq_len}: {speed / 1e6:.0f} million tokens/s")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"repro: {error}", file=sys.stderr)
        sys.exit(2)
