"""The mini corpus: real English text from registry packages, as tokens (make-up, licences: data/MINI.md).

Stages: packages → passages → documents (no repetition, nothing of the evaluation sets) → tokenizer → shards.
"""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from repro.cores import cores
from repro.corpus.mini.ngrams import RunHasher, share_seen_before, shares_any
from repro.corpus.mini.packages import fetch_packages
from repro.corpus.mini.parts import PARTS, evaluation_items
from repro.corpus.preparing import Progress
from repro.corpus.recipes import PINS, MiniRecipe
from repro.corpus.shards import TextDocument, split_documents, write_manifest, write_shards
from repro.corpus.tokenizer import BOS, EOS, MODEL, PAD, UNK, store_model, train_pieces
from repro.corpus.tokens import Tokenizer


def build(recipe: MiniRecipe, folder: Path, cache: Path, progress: Progress) -> None:
    """Write the folder of `recipe`; tokenizer and shards of an earlier run that was cut are taken over."""
    progress("packages", 0, 1)
    packages = fetch_packages(PINS, cache)
    progress("packages", 1, 1)
    documents, source = select_documents(passages(packages, progress), evaluation_items(packages), recipe, progress)
    splits = split_documents(documents, recipe.seed, recipe.validation_per_mille)
    progress("tokenizer", 0, 1)
    tokenizer = _tokenizer(folder, splits["train"], recipe)
    progress("tokenizer", 1, 1)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / MODEL))
    threads = len(cores())

    def encode(texts: list[str]) -> list[np.ndarray]:
        return processor.encode(texts, return_type="numpy", num_threads=threads)

    written = write_shards(folder, splits, encode, tokenizer, recipe.shard_bytes, progress)
    write_manifest(
        folder,
        {
            "corpus": "mini",
            "seed": recipe.seed,
            "recipe": vars(recipe),
            "dtype": tokenizer.dtype.str,
            "tokenizer": vars(tokenizer),
            "in_domain": [],
            "splits": written,
            "source": source | {"packages": [line.split()[0] for line in _pins()]},
        },
    )


def passages(packages: Path, progress: Progress) -> list[TextDocument]:
    """Every part's passages, each once: the first text of a key, and no text twice."""
    documents: list[TextDocument] = []
    for done, part in enumerate(PARTS):
        progress("text", done, len(PARTS))
        by_key: dict[str, str] = {}
        for key, text in part.passages(packages):
            by_key.setdefault(key, text)
        documents += [TextDocument(part.name, text) for text in dict.fromkeys(by_key.values())]
    progress("text", len(PARTS), len(PARTS))
    return documents


def select_documents(
    documents: list[TextDocument], items: dict[str, list[str]], recipe: MiniRecipe, progress: Progress
) -> tuple[list[TextDocument], dict[str, Any]]:
    """The passages to keep, and the count of those dropped by part and reason for the manifest."""
    progress("check", 0, 3)
    hasher = RunHasher(recipe.ngram_words)
    held_out = hasher.runs([text for texts in items.values() for text in texts])
    progress("check", 1, 3)
    runs = hasher.runs([document.text for document in documents])
    progress("check", 2, 3)
    reasons = {
        "too_short": runs.words < recipe.ngram_words,  # can't be checked
        "evaluation_overlap": shares_any(runs, held_out),
        "near_duplicate": share_seen_before(runs) > recipe.near_duplicate,
    }
    counts = {part.name: Counter[str](passages=0) for part in PARTS}
    kept = []
    for index, document in enumerate(documents):
        why = next((reason for reason, dropped in reasons.items() if dropped[index]), "kept")
        counts[document.part].update({"passages": 1, why: 1})
        if why == "kept":
            kept.append(document)
    progress("check", 3, 3)
    source = {
        "parts": {part.name: {"licence": part.licence, **counts[part.name]} for part in PARTS},
        "overlap_check": {
            "words": recipe.ngram_words,
            "items": {name: len(texts) for name, texts in items.items()},
            "items_too_short": int((held_out.words < recipe.ngram_words).sum()),
            "documents_dropped": sum(count["evaluation_overlap"] for count in counts.values()),
        },
    }
    return kept, source


def _tokenizer(folder: Path, train: list[TextDocument], recipe: MiniRecipe) -> Tokenizer:
    """Byte-pair pieces from the first training documents; text kept as it is, unknown letters as bytes."""
    path = folder / MODEL
    if not path.is_file():
        store_model(folder, train_pieces(_sample(train, recipe.tokenizer_bytes), recipe.vocab, "the mini corpus"))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Tokenizer("sentencepiece", MODEL, digest, recipe.vocab, unk=UNK, bos=BOS, eos=EOS, pad=PAD)


def _sample(documents: list[TextDocument], size: int) -> list[str]:
    lines: list[str] = []
    for document in documents:
        if size <= 0:
            break
        size -= len(document.text.encode())
        lines += [line for line in document.text.split("\n") if line]
    return lines


def _pins() -> list[str]:
    return [line for line in PINS.read_text(encoding="utf-8").splitlines() if "==" in line]
