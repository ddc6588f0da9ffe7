"""From text to token folders, once: `prepare` is what the command line calls, `token_folder` says where.

A folder is finished when its manifest.json exists. Everything is a pure function of the recipe, which is part
of the folder's name, so a run that was cut goes on, and running it again gives the same bytes. C4 and Dolma are
made by repro.corpus.web.build alone: too large to begin unasked, they are only looked up here. This module
stays light: what reads packages and trains tokenizers is imported only when there is something to build.
"""

import importlib
import shutil
from pathlib import Path

from repro import disk
from repro.corpora import Corpus, corpus_named
from repro.corpus.folders import prepared_folder
from repro.corpus.preparing import Progress, progress_bar, quiet
from repro.corpus.recipes import RECIPES, InstalledRecipe
from repro.corpus.shards import writing_to
from repro.corpus.tokens import MANIFEST
from repro.errors import UserError


def token_folder(corpus: str, cache: Path, *, vocab: int | None = None) -> Path:
    """Where the tokens of a corpus lie (or will lie): corpus, vocabulary and a digest of the whole recipe.

    Of C4 and Dolma, which have many recipes, the folder prepared last with this vocabulary.
    """
    if (record := corpus_named(corpus)).hub:
        return prepared_folder(cache, corpus, record.vocab if vocab is None else vocab)
    recipe = _recipe(record, vocab)
    return cache / "tokens" / f"{corpus}-{recipe.vocab}-{recipe.digest}"


def is_prepared(corpus: str, cache: Path, *, vocab: int | None = None) -> bool:
    """Whether the tokens are complete."""
    return (token_folder(corpus, cache, vocab=vocab) / MANIFEST).is_file()


def prepare(corpus: str, cache: Path, progress: Progress = quiet, *, vocab: int | None = None) -> Path:
    """Make the token folder of a corpus unless it is there, and return it.

    May be killed at any moment and called again; two calls at once wait for each other. UserError where the
    corpus is unknown, the disk is full, or the packages with the text can't be had.
    """
    folder = token_folder(corpus, cache, vocab=vocab)
    if is_prepared(corpus, cache, vocab=vocab):
        return folder
    record = corpus_named(corpus)
    if record.hub:
        raise UserError(
            f"{corpus} is not prepared with a vocabulary of {vocab or record.vocab} in {cache}: run"
            f" `python -m repro prepare {corpus}` first, which in full takes tens of core hours for C4 and hundreds"
            " for Dolma (docs/data.md)."
        )
    recipe = _recipe(record, vocab)
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with disk.locked(cache / ".lock"):
            if not is_prepared(corpus, cache, vocab=vocab):
                _check_space(record, cache)
                # What reads packages and trains tokenizers takes longer to import than a finished call.
                importlib.import_module(record.builder).build(recipe, folder, cache, progress)
    return folder


def prepared(corpus: str, vocab: int | None, cache: Path) -> Path:
    """As `prepare`, with a bar on the screen where there is something to do."""
    if is_prepared(corpus, cache, vocab=vocab):
        return prepare(corpus, cache, vocab=vocab)
    with progress_bar() as progress:
        return prepare(corpus, cache, progress, vocab=vocab)


def _recipe(record: Corpus, vocab: int | None) -> InstalledRecipe:
    return RECIPES[record.name](record.vocab if vocab is None else vocab)


def _check_space(record: Corpus, cache: Path) -> None:
    free, needed = shutil.disk_usage(cache).free, record.free_bytes
    if free < needed:
        raise UserError(
            f"{cache} has {free / 1e6:.0f} MB free and corpus {record.name!r} needs {needed / 1e6:.0f} MB:"
            " free space or choose another cache."
        )
