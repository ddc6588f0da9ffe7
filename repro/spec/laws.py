"""Batch, peak rate and steps of a run at paper scale, by the scaling laws of the same group (arXiv 2503.09799).

2501.18512 gives no inner rate for any size and no batch on C4. The later paper, on the same ladder and text, fits both
as power laws of N, for Data-Parallel and for each number of replicas. Its numbers stand here once more, beside
data/papers/2503.09799 (a test compares them), since nothing here may read. No size is named here, and no miniature.
"""

import math
from dataclasses import dataclass

DATA_PARALLEL = 0  # among numbers of replicas
SEQUENCE = 2_048  # tokens; the batch law counts sequences of so many (our reading: as tokens it would give 30 at 35M)
ROUNDS_PERIOD = 300  # steps, which H = 30, 50 and 100 divide


@dataclass(frozen=True)
class Law:
    """f = A N^α M^β."""

    factor: float  # A
    of_params: float  # α
    of_replicas: float = 0.0  # β, of the joint fit

    def at(self, params: float, replicas: int) -> float:
        """f for N parameters and M replicas."""
        return self.factor * params**self.of_params * replicas**self.of_replicas


# Independent fits by number of replicas.
RATES = {  # Table 8
    DATA_PARALLEL: Law(16319.2, -0.819),
    1: Law(74620.6, -0.945),
    2: Law(3978.82, -0.780),
    4: Law(4512.99, -0.789),
    8: Law(618986, -1.102),
}
BATCHES = {  # Table 9
    DATA_PARALLEL: Law(0.22592, 0.281),
    1: Law(0.01361, 0.435),
    2: Law(0.00769, 0.479),
    4: Law(0.00535, 0.510),
    8: Law(0.01859, 0.455),
}
TRUSTED = (DATA_PARALLEL, 1, 2, 4)  # M = 8's rate falls fourfold below M = 4's at 500M
JOINT_RATE = Law(22256, -0.8827, 0.2929)  # Table 10, for M = 8 and any other M
JOINT_BATCH = Law(0.00709, 0.4695, 0.3399)


def law_rate(params: int, replicas: int) -> float:
    """The peak inner rate for `replicas` (0: Data-Parallel), to two digits."""
    law = RATES[replicas] if replicas in TRUSTED else JOINT_RATE
    return float(f"{law.at(params, replicas):.1e}")


def law_batch_tokens(params: int, replicas: int) -> int:
    """The global batch for `replicas` (0: Data-Parallel), in tokens, to the nearest power of two."""
    law = BATCHES[replicas] if replicas in TRUSTED else JOINT_BATCH
    return 2 ** round(math.log2(law.at(params, replicas) * SEQUENCE))


def steps_for(tokens: float, batch: int, largest: int, period: int = ROUNDS_PERIOD) -> int:
    """Steps of `batch` tokens, where a size's runs all see the same tokens.

    With the `largest` batch of the size they are the multiple of `period` that comes nearest to the budget of `tokens`;
    a smaller batch takes proportionally more. ValueError where that is no whole number.
    """
    total = max(1, round(tokens / (period * largest))) * period * largest
    if total % batch:
        raise ValueError(f"{total} tokens are no whole number of batches of {batch}")
    return total // batch
