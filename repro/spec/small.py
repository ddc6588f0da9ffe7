"""The second ladder, scale `small`: its models, and how batch and peak rate are carried to them from the miniature.

The miniature's text and tokenizer with 250,000 to a million parameters, so that a method's distance from data-parallel
is seen over a factor of 22 in N. Nothing is tuned here: both are those of the smallest miniature, moved along N. No
JAX, and nothing of `repro.spec.scales`.
"""

import math

from repro.spec.laws import BATCHES, DATA_PARALLEL

SMALL_MODELS = {"250k": (5, 224, 4), "500k": (5, 336, 6), "1M": (6, 448, 8)}  # layers, FFN width, heads (of 14)
SMALL_LADDER = {"35M": "250k", "100M": "500k", "200M": "1M"}  # Table 5's first sizes
ABLATED_SMALL = "250k"  # the size of what the paper shows at one size, and of all rows with more than two replicas
MOST_REPLICAS = {ABLATED_SMALL: 4}  # M of a size's rows at a constant local batch; at the others 2
TEXT_TOKENS = 14_850_000  # for training, with the miniature's vocabulary of 1,024
MOST_EPOCHS = 1.5
# α of A N^α in arXiv 2503.09799: the batch of Data-Parallel and of M = 2 (Table 9), which more replicas keep locally …
BATCH_EXPONENTS = {
    "data-parallel": BATCHES[DATA_PARALLEL].of_params,
    "diloco": BATCHES[2].of_params,
    "streaming": BATCHES[2].of_params,
}
# … and about that of the rate (Table 8: -0.82 for Data-Parallel, -0.78 and -0.79 for M = 2 and 4).
RATE_EXPONENT = -0.8


def carried_batch(batch: int, method: str, ratio: float) -> int:
    """Sequences for `ratio` times the parameters of the model whose best batch is given: to a power of two."""
    return 2 ** round(math.log2(batch * ratio ** BATCH_EXPONENTS[method]))


def carried_rate(rate: float, ratio: float) -> float:
    """The peak rate for `ratio` times the parameters: to a power of √2."""
    return 2.0 ** (round(2 * math.log2(rate * ratio**RATE_EXPONENT)) / 2)
