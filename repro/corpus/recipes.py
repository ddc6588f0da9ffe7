"""What makes a token folder's bytes: every choice of a preparation, and their digest for its name."""

import hashlib
import json
from dataclasses import dataclass, field, fields
from pathlib import Path

from repro.corpora import CORPORA
from repro.corpus.tokens import FORMAT_VERSION
from repro.errors import UserError

PINS = Path(__file__).parents[2] / "data" / "mini-packages.txt"


@dataclass(frozen=True)
class MiniRecipe:
    """English prose from packages. Raise `revision` when the extraction of the text changes."""

    vocab: int = CORPORA["mini"].vocab
    seed: int = 0
    revision: int = 1
    validation_per_mille: int = 16
    # A document that shares this many words in a row with an evaluation item is dropped.
    ngram_words: int = field(default=8, metadata={"key": "overlap_words"})
    near_duplicate: float = 0.4  # … as is one with more than this share of such runs in documents before it
    tokenizer_bytes: int = 6_000_000  # training text the tokenizer is made from
    shard_bytes: int = 4_000_000  # text behind one shard, the unit of work when a run is cut

    def __post_init__(self) -> None:
        if not 300 <= self.vocab <= 32_000:
            raise UserError(
                f"a mini vocabulary of {self.vocab} is out of range: 256 bytes, 4 special pieces and some"
                " letters need 300, and the text carries 32000 at most."
            )

    @property
    def digest(self) -> str:
        """8 hex digits over every field, the format and the pinned packages."""
        return _digest(self, PINS.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class SmokeRecipe:
    """Generated text, for tests: its bytes are its tokens."""

    vocab: int = CORPORA["smoke"].vocab
    seed: int = 0
    revision: int = 1
    characters: int = 220_000
    validation_per_mille: int = 100
    shard_bytes: int = 60_000

    def __post_init__(self) -> None:
        if self.vocab != CORPORA["smoke"].vocab:
            raise UserError(
                f"the smoke corpus has a vocabulary of {CORPORA['smoke'].vocab}, not {self.vocab}: leave it out."
            )

    @property
    def digest(self) -> str:
        """8 hex digits over every field and the format."""
        return _digest(self, "")


@dataclass(frozen=True)
class TextRecipe:
    """C4 or Dolma, from the hub at a revision or from files. Raise `format_revision` when the bytes change.

    `files` stands for the content of a local source (a digest of names and sizes), None for the hub's;
    `tokenizer` is the sha256 of the model file, or "train".
    """

    corpus: str
    name: str | None  # the hub's: "en" of allenai/c4, "v1_7" of allenai/dolma; None where a local source has none
    revision: str | None  # commit on the hub; of a local source what the user says it is
    files: str | None
    tokenizer: str
    vocab: int
    eos_piece: str | None = None  # stands for the end of a document where the model has no EOS
    limit_files: int | None = None  # of the training files, spread evenly over their order
    limit_documents: int | None = None  # of each file, from its beginning
    validation_per_mille: int = 0  # held out by a hash of the text; 0 where the corpus has a split of its own
    seed: int = 0
    shard_bytes: int = 1 << 28  # text behind one shard, the unit of work when a run is cut
    tokenizer_bytes: int = 100_000_000  # training text that a tokenizer is made from …
    tokenizer_files: int = 64  # … taken in equal parts from the beginnings of this many files
    format_revision: int = 2  # 1 left lines of more than 1 MiB out of the tokenizer

    def __post_init__(self) -> None:
        for name in ("limit_files", "limit_documents", "shard_bytes", "tokenizer_bytes", "tokenizer_files"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} is {value}: it must be at least 1.")
        if not 0 <= self.validation_per_mille < 1000:
            raise UserError(f"validation_per_mille is {self.validation_per_mille}: choose 1 to 999.")
        if self.tokenizer == "train" and not 300 <= self.vocab <= 1 << 20:
            raise UserError(f"a trained vocabulary of {self.vocab} is out of range: choose 300 to {1 << 20}.")

    @property
    def digest(self) -> str:
        """8 hex digits over every field and the format."""
        return _digest(self, "")


InstalledRecipe = MiniRecipe | SmokeRecipe  # from nothing but what is installed
# Of each corpus that has a builder.
RECIPES: dict[str, type[InstalledRecipe]] = {"mini": MiniRecipe, "smoke": SmokeRecipe}


def _digest(recipe: InstalledRecipe | TextRecipe, pins: str) -> str:
    """A hash of the choices, a field with a `key` under that one: a better name must not make another folder."""
    choices = {each.metadata.get("key", each.name): getattr(recipe, each.name) for each in fields(recipe)}
    text = json.dumps([FORMAT_VERSION, type(recipe).__name__, choices, pins], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
