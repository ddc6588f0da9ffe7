"""Runs of n words that texts share: with evaluation items (leakage) and with each other (repetition).

Words are compared in lower case without punctuation, and every run of n words as one 64-bit hash: with some
10 million runs, a chance collision among them has a probability of about 1e-5.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import chain, count

import numpy as np

from repro.corpus.tokens import mix64

_WORD = re.compile(r"[a-z0-9]+")
_PRIME = np.uint64(0x100000001B3)


@dataclass(frozen=True)
class Runs:
    """The hashes of all runs of n words, in order, and the index of the text of each; `words` per text."""

    hashes: np.ndarray
    text: np.ndarray
    words: np.ndarray


class RunHasher:
    """Hashes runs of n words; texts hashed by one hasher can be compared."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._ids: defaultdict[str, int] = defaultdict(count(1).__next__)

    def runs(self, texts: list[str]) -> Runs:
        """Every run of n words that lies within one text; texts of fewer words have none."""
        split = [_WORD.findall(text.lower()) for text in texts]
        words = np.array([len(text) for text in split], np.int64)
        mixed = mix64(np.fromiter(map(self._ids.__getitem__, chain.from_iterable(split)), np.uint64, words.sum()))
        starts = max(0, len(mixed) - self.n + 1)
        hashes = np.zeros(starts, np.uint64)
        for offset in range(self.n):
            hashes = hashes * _PRIME + mixed[offset : offset + starts]
        owner = np.repeat(np.arange(len(texts)), words)
        whole = owner[:starts] == owner[self.n - 1 :] if starts else np.zeros(0, bool)
        return Runs(mix64(hashes[whole]), owner[:starts][whole], words)


def shares_any(runs: Runs, others: Runs) -> np.ndarray:
    """(texts,) bool: whether a text has a run of n words in common with any of `others`."""
    hit = np.isin(runs.hashes, others.hashes)
    return np.bincount(runs.text, hit, len(runs.words)) > 0


def share_seen_before(runs: Runs) -> np.ndarray:
    """(texts,) float: the part of a text's runs that an earlier text has too (0 for a text with no run)."""
    order = np.argsort(runs.hashes, kind="stable")  # equal hashes stay in the order of the texts
    hashes, text = runs.hashes[order], runs.text[order]
    starts = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]]) if len(hashes) else np.zeros(0, np.int64)
    first = np.repeat(text[starts], np.diff(np.r_[starts, len(hashes)]))
    seen = np.bincount(text, first < text, len(runs.words))
    total = np.bincount(runs.text, minlength=len(runs.words))
    return seen / np.maximum(total, 1)
