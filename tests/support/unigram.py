"""A model whose log-likelihoods are known by hand: each byte has one probability, whatever stands before it.

Tokens and positions lie along one direction w = (1, −1, 1, …), and the layers write nothing. The final norm turns any
k·w with k > 0 into w, so that the logit of a byte is s · w·w for an embedding s·w.
"""

from typing import Any

import numpy as np

from repro.evaluation.scoring import ScoringRequest
from repro.spec.config import ModelConfig
from repro.spec.shapes import parameter_shapes

MODEL = ModelConfig("unigram", layers=1, ffn_width=32, heads=2, vocab=256, seq_len=64, compute_dtype="float32")
BITS = {"a": 1, "b": 2, "c": 3, " ": 4}  # −log₂ p; the other 252 bytes share the 1/16 that is left


def bits(text: str) -> float:
    """−log₂ p of a text."""
    return sum(BITS.get(letter, 4 + np.log2(252)) for letter in text)


def nats(text: str) -> float:
    """Its log-likelihood."""
    return -float(bits(text) * np.log(2))


def params() -> Any:
    """The parameters of one replica."""
    w = np.tile([1.0, -1.0], MODEL.width // 2)
    log_p = np.array([nats(chr(byte)) for byte in range(256)])
    tree = {
        group: {name: np.zeros(shape, np.float32) for name, shape in leaves.items()}
        for group, leaves in parameter_shapes(MODEL).items()
    }
    tree["embed"]["tokens"][:] = (log_p / (w @ w))[:, None] * w
    tree["embed"]["positions"][:] = 1000 * w
    tree["embed"]["final_norm"][:] = 1
    return tree


def random_params(model: ModelConfig, seed: int = 0) -> Any:
    """Parameters of another model, drawn without JAX."""
    rng = np.random.default_rng(seed)
    return {
        group: {name: rng.normal(0.3, 0.5, shape).astype(np.float32) for name, shape in leaves.items()}
        for group, leaves in parameter_shapes(model).items()
    }


def some_requests(count: int, vocab: int, longest: int = 70, seed: int = 0) -> list[ScoringRequest]:
    """Requests of 2 to `longest` tokens, all but the first few of which may be scored."""
    rng = np.random.default_rng(seed)
    lengths = [int(n) for n in rng.integers(2, longest, count)]
    return [ScoringRequest(rng.integers(0, vocab, n).astype(np.int32), int(rng.integers(1, n))) for n in lengths]


QUESTIONS = (
    # Bits with the space before them, then bits a character of the answer alone.
    {"question": "one", "choices": ["aaaa", "b"], "gold": 0},  # 8 and 6: acc wrong; 2 and 6: acc_norm right
    {"question": "two", "choices": ["bb", "ccc"], "gold": 0},  # 8 and 13; 4 and 4.3: both right
    {"question": "three", "choices": ["c", "aaaaaa"], "gold": 1},  # 7 and 10: wrong; 7 and 1.7: right
    {"question": "four", "choices": ["a", "cb"], "gold": 0},  # 5 and 9: right; 5 and 4.5: wrong
)
RIGHT = {"acc": [False, True, False, True], "acc_norm": [True, True, True, False]}
