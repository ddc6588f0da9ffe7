"""C4 and Dolma as tokens: files → tokenizer → shards, by as many workers as wished, and the manifest that closes it.

The folder's name has a digest of everything that decides its bytes; a pointer file named by corpus and vocabulary
says which folder a run reads: the one prepared last.
"""

import dataclasses
import hashlib
import json
import re
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro.corpora import corpus_named, hub_of
from repro.corpus.folders import hold, point
from repro.corpus.preparing import Progress
from repro.corpus.recipes import TextRecipe
from repro.corpus.shards import SPLITS, is_held_out, summary, text_digest, write_manifest, writing_to
from repro.corpus.tokenizer import MODEL, describe, read_model, store_model, train_pieces
from repro.corpus.tokens import MANIFEST, Tokenizer
from repro.corpus.web.reading import Reader, SourceFile, Text
from repro.corpus.web.remote import Backoff
from repro.corpus.web.slices import FileJob, records_of
from repro.corpus.web.sources import (
    content_digest,
    hub_files,
    hub_token,
    local_files,
    on_hub,
    promised,
    spread,
)
from repro.corpus.web.workers import say, tokenize_files
from repro.disk import local
from repro.errors import UserError


@dataclass(frozen=True)
class TextRequest:
    """What a user asks for; None means the corpus's own. `source` is "hub" or a path, `tokenizer` "train" or one."""

    corpus: str
    source: str = "hub"
    tokenizer: str = "train"
    vocab: int | None = None
    name: str | None = None
    revision: str | None = None
    eos_piece: str | None = None
    limit_files: int | None = None
    limit_documents: int | None = None
    validation_per_mille: int | None = None
    skip_broken: bool = False
    seed: int = 0
    shard_bytes: int | None = None
    backoff: Backoff = dataclasses.field(default_factory=Backoff)


def prepare_text(request: TextRequest, cache: Path, workers: int, progress: Progress) -> Path:
    """Make the token folder of a request unless it is there, let runs of its corpus read it, and return it.

    May be killed at any moment and called again, with any number of workers. UserError on bad input, a damaged
    source, a full disk, a hub that can't be reached.
    """
    if workers < 1:
        raise UserError(f"--workers {workers}: at least one is needed.")
    files = None
    if request.source != "hub":
        files = spread(local_files(request.corpus, _name(request), local(request.source)), request.limit_files)
    model = None if request.tokenizer == "train" else read_model(local(request.tokenizer))
    recipe = recipe_of(request, files, model)
    folder = cache / "tokens" / f"{recipe.corpus}-{recipe.vocab}-{recipe.digest}"
    if not (folder / MANIFEST).is_file():
        if files is None:
            hub = hub_files(recipe.corpus, str(recipe.name), str(recipe.revision), request.backoff, say)
            files = spread(hub, recipe.limit_files)
        with writing_to(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with hold(folder):
                if not (folder / MANIFEST).is_file():  # another process may have finished it meanwhile
                    _build(request, recipe, folder, files, model, workers, progress)
    point(cache, recipe.corpus, recipe.vocab, folder)
    return folder


def recipe_of(request: TextRequest, files: list[SourceFile] | None, model: bytes | None) -> TextRecipe:
    """Everything that decides the bytes; UserError on a bad value. `files` is None for the hub."""
    known = hub_of(request.corpus)
    if request.revision is not None and not re.fullmatch(r"[0-9a-f]{40}", request.revision):
        raise UserError(f"--revision {request.revision} is not a commit of 40 digits: only that stays the same.")
    vocab = request.vocab or corpus_named(request.corpus).vocab
    if model is not None:
        vocab = describe(model, request.tokenizer, request.eos_piece).vocab
        if request.vocab not in (None, vocab):
            raise UserError(f"--vocab {request.vocab} differs from {request.tokenizer}'s {vocab}: leave it out.")
    per_mille = request.validation_per_mille
    if per_mille and not known.held_out_per_mille:
        raise UserError(f"{request.corpus} has a validation split of its own: leave out --validation-per-mille.")
    return TextRecipe(
        corpus=request.corpus,
        name=_name(request),
        revision=request.revision or (known.revision if files is None else None),
        files=None if files is None else content_digest(files),
        tokenizer="train" if model is None else hashlib.sha256(model).hexdigest(),
        vocab=vocab,
        eos_piece=request.eos_piece,
        limit_files=request.limit_files,
        limit_documents=request.limit_documents,
        validation_per_mille=known.held_out_per_mille if per_mille is None else per_mille,
        seed=request.seed,
        **({} if request.shard_bytes is None else {"shard_bytes": request.shard_bytes}),
    )


def describe_folder(folder: Path) -> str:
    """A few lines on a finished folder for the user: documents, tokens, what was left out, what is missing."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    lines = []
    for split, counts in manifest["splits"].items():
        ratio = counts["bytes"] / counts["tokens"]
        lines.append(
            f"{split:>10}: {counts['documents']:,} documents, {counts['tokens']:,} tokens, {ratio:.2f} bytes a token"
        )
    source, tokenizer = manifest["source"], manifest["tokenizer"]
    lines.append(f" tokenizer: {tokenizer['vocab']:,} pieces, sha256 {tokenizer['sha256'][:12]}…")
    if source["skipped"]:
        lines.append("  left out: " + ", ".join(f"{count:,} {reason}" for reason, count in source["skipped"].items()))
    train, there = source["train_files_promised"], sum(file["split"] == "train" for file in source["files"])
    if train not in (None, there):
        lines.append(f"     files: {there:,} of the {train:,} training files that their names speak of")
    return "\n".join(lines)


def _name(request: TextRequest) -> str | None:
    """The name on the hub; None for local files of Dolma whose version the user doesn't say."""
    names = hub_of(request.corpus).names
    if request.name not in (None, *names):
        raise UserError(f"--name {request.name}: {request.corpus} has {', '.join(names)}.")
    if request.name is None and request.source != "hub" and len(names) > 1:
        return None
    return request.name or next(iter(names))


def _build(
    request: TextRequest,
    recipe: TextRecipe,
    folder: Path,
    files: list[SourceFile],
    model: bytes | None,
    workers: int,
    progress: Progress,
) -> None:
    for left in folder.glob("*.part"):
        left.unlink()
    token = hub_token() if any(on_hub(file) for file in files) else None
    tokens = [token if on_hub(file) else None for file in files]
    if not (folder / MODEL).is_file():
        progress("tokenizer", 0, 1)
        sample = model or train_pieces(
            _sample(files, tokens, recipe, request.backoff), recipe.vocab, f"the sample of {recipe.corpus}"
        )
        store_model(folder, sample)
        progress("tokenizer", 1, 1)
    tokenizer = describe((folder / MODEL).read_bytes(), str(folder / MODEL), recipe.eos_piece)
    jobs = [
        FileJob(folder, index, file, recipe, tokenizer, request.skip_broken, request.backoff, token)
        for index, (file, token) in enumerate(zip(files, tokens, strict=True))
    ]
    tokenize_files(jobs, workers, progress)
    _close(request, recipe, folder, tokenizer, jobs)


def _sample(files: list[SourceFile], tokens: list[str | None], recipe: TextRecipe, backoff: Backoff) -> list[str]:
    """Lines of training text: equal parts from the beginnings of files that a seeded hash of their names chooses."""
    train = {file.name: (file, token) for file, token in zip(files, tokens, strict=True) if file.split == "train"}
    chosen = sorted(train, key=lambda name: text_digest(name, recipe.seed))[: recipe.tokenizer_files]
    lines: list[str] = []
    for name in chosen:
        left = recipe.tokenizer_bytes // len(chosen)
        file, token = train[name]
        with Reader(file, backoff, say, token) as reader:
            for document in reader.documents():
                if left <= 0:
                    break
                if isinstance(document, Text) and not _held_out(document.text, recipe):
                    left -= len(document.text.encode())
                    lines += [line for line in document.text.split("\n") if line]
    return lines


def _held_out(text: str, recipe: TextRecipe) -> bool:
    return is_held_out(text_digest(text, recipe.seed), recipe.validation_per_mille)


def _close(request: TextRequest, recipe: TextRecipe, folder: Path, tokenizer: Tokenizer, jobs: list[FileJob]) -> None:
    known = hub_of(recipe.corpus)
    records = [records_of(job) for job in jobs]
    splits = {
        split: summary(
            [record["shards"][split] for slices in records for record in slices if split in record["shards"]]
        )
        for split in SPLITS
    }
    _require_text(request, recipe, splits)
    files = [_file_entry(job, slices) for job, slices in zip(jobs, records, strict=True)]
    skipped: Counter[str] = sum((Counter(entry["skipped"]) for entry in files), Counter())
    source = {
        "kind": "hub" if request.source == "hub" else "folder",
        "repository": known.repository,
        "name": recipe.name,
        "revision": recipe.revision,
        "licence": known.licence,
        "validation": known.validation,
        "files": files,
        "train_files_promised": promised([job.file for job in jobs]),
        "skipped": dict(sorted(skipped.items())),
    }
    kept = {shard["file"] for split in splits.values() for shard in split["shards"]}
    for path in folder.glob("*.bin"):
        if path.name not in kept:  # of a source that has changed since
            path.unlink()
    write_manifest(
        folder,
        {
            "corpus": recipe.corpus,
            "seed": recipe.seed,
            "recipe": asdict(recipe),
            "dtype": tokenizer.dtype.str,
            "tokenizer": asdict(tokenizer),
            "in_domain": [],
            "splits": splits,
            "source": source,
        },
    )


def _file_entry(job: FileJob, slices: list[dict[str, Any]]) -> dict[str, Any]:
    shards = [shard["shard"] for record in slices for shard in record["shards"].values()]
    skipped: Counter[str] = sum((Counter(record["skipped"]) for record in slices), Counter())
    return {
        "file": job.file.name,
        "split": job.file.split,
        **slices[-1]["source"],
        "documents": sum(shard["documents"] for shard in shards),
        "tokens": sum(shard["tokens"] for shard in shards),
        "skipped": dict(sorted(skipped.items())),
    }


def _require_text(request: TextRequest, recipe: TextRecipe, splits: dict[str, dict[str, Any]]) -> None:
    for split in SPLITS:
        if splits[split]["documents"]:
            continue
        if split == "validation" and recipe.validation_per_mille:
            raise UserError(
                f"none of the {splits['train']['documents']} documents of {recipe.corpus} fell into the validation"
                f" split ({recipe.validation_per_mille} in 1000): give more text, or a larger --validation-per-mille."
            )
        raise UserError(f"the {split} files of {recipe.corpus} in {request.source} have no text: give others.")
