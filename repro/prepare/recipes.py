"""What makes a token folder's bytes: every choice of a preparation, and their digest for its name."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from repro.data import FORMAT_VERSION
from repro.errors import UserError

PINS = Path(__file__).parents[2] / "data" / "mini-packages.txt"


@dataclass(frozen=True)
class MiniRecipe:
    """English prose from packages. Raise `revision` when the extraction of the text changes."""

    vocab: int = 1024
    seed: int = 0
    revision: int = 1
    validation_per_mille: int = 16
    overlap_words: int = 8  # a document that shares this many words in a row with an evaluation item is dropped
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
        return _digest(self, PINS.read_text())


@dataclass(frozen=True)
class SmokeRecipe:
    """Generated text, for tests: its bytes are its tokens."""

    vocab: int = 256
    seed: int = 0
    revision: int = 1
    characters: int = 220_000
    validation_per_mille: int = 100
    shard_bytes: int = 60_000

    @property
    def digest(self) -> str:
        """8 hex digits over every field and the format."""
        return _digest(self, "")


def _digest(recipe: MiniRecipe | SmokeRecipe, pins: str) -> str:
    text = json.dumps([FORMAT_VERSION, type(recipe).__name__, asdict(recipe), pins], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
