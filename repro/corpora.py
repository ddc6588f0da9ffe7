"""Which corpora there are: one record each, looked up once, by its name in a config.

Configs name a corpus and `repro.corpus` makes its tokens; neither imports the other, so both read this. A new corpus is
a record here and, unless it lies on a hub as C4 or Dolma do, its recipe (`repro.corpus.recipes`). Nothing here reads
or writes. No JAX.
"""

from dataclasses import dataclass
from typing import Literal

from repro.errors import check_known


@dataclass(frozen=True)
class Hub:
    """Where a corpus is published, which of its files are which split, and what is held out.

    `layout` is "configurations" (a folder of files for each name, as `datasets` lists them) or "addresses" (a list of
    addresses for each name, urls/NAME.txt, and a tree of files). A split's files begin with one of its words.
    """

    repository: str
    names: tuple[str, ...]  # the first is the default
    revision: str
    layout: Literal["configurations", "addresses"]
    splits: dict[str, tuple[str, ...]]
    held_out_per_mille: int  # of the documents, by a seeded hash of the text; 0 where the corpus has its own split
    licence: str
    validation: str  # where that split comes from


@dataclass(frozen=True)
class Corpus:
    """One corpus: `hub` where its text is published, else `builder`, the module that makes it from its recipe.

    `batch_tokens` are those of a step of two replicas at paper scale; 0 where `repro.spec.laws` sets them by size, or
    nothing is trained on it there. `batch_reason` and `notes` (question, choice, reason) say what the paper leaves
    open; `budgets` names the published item whose token budgets are of this corpus.
    """

    name: str
    vocab: int
    hub: Hub | None = None
    builder: str = ""
    free_bytes: int = 0  # of disk that a builder asks for
    batch_tokens: int = 0
    batch_reason: str = ""
    notes: tuple[tuple[str, str, str], ...] = ()
    budgets: str = ""


BY_LAW = (
    "2501.18512 gives none for C4: the law of arXiv 2503.09799 for Data-Parallel and for M = 2 (its Table 9, read as "
    "sequences of 2,048 and rounded to a power of two of tokens), and for other M in the ratio to M = 2 that the paper "
    "states, or else by their own law"
)
CORPORA = {
    corpus.name: corpus
    for corpus in (
        Corpus("mini", vocab=1_024, builder="repro.corpus.mini.build", free_bytes=1_000_000_000),
        Corpus("smoke", vocab=256, builder="repro.corpus.smoke", free_bytes=10_000_000),
        Corpus(
            "c4",
            vocab=32_000,  # Table 2
            hub=Hub(
                "allenai/c4",
                ("en",),
                "1588ec454efa1a09f29cd18ddd04fe05fc8653a2",
                layout="configurations",
                splits={"train": ("c4-train", "train"), "validation": ("c4-validation", "validation")},
                held_out_per_mille=0,
                licence="ODC-BY",
                validation="the files c4-validation.*",
            ),
            batch_reason=BY_LAW,
            budgets="table2",
        ),
        Corpus(
            "dolma",
            vocab=32_000,  # Table 2
            hub=Hub(
                "allenai/dolma",
                ("v1_7", "v1_6", "v1_6-sample", "v1_5", "v1_5-sample", "v1"),
                "7f48140530a023e9ea4c5cfb141160922727d4d3",
                layout="addresses",
                splits={"train": ("",)},
                held_out_per_mille=1,
                licence="ODC-BY",
                validation="held out by a seeded hash of the text",
            ),
            batch_tokens=2**20,
            batch_reason="the hours of Table 1 at its step time imply it",
            notes=(("version of Dolma", "v1_7", "the paper names none"),),
        ),
    )
}
PUBLISHED = tuple(name for name, corpus in CORPORA.items() if corpus.hub)


def corpus_named(name: str) -> Corpus:
    """The record of a corpus; UserError that gives the names there are."""
    check_known("unknown corpus", name, tuple(CORPORA))
    return CORPORA[name]


def hub_of(name: str) -> Hub:
    """Where a corpus is published; ValueError for one that is made here."""
    hub = CORPORA[name].hub
    if hub is None:
        raise ValueError(f"{name} is made here")
    return hub
