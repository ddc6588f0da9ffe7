"""Table 2: architectures of 35M to 4B parameters (supplementary materials).

"Hidden dim" is the width of the feed-forward layer: with d_model a quarter of it, head size 64 and a tied
embedding, the parameter counts come out as the sizes are named. Nothing is run.

    make table2
"""

from experiments.streaming.base import SIZES, data_parallel
from repro.spec.experiment import Experiment, Row

EXPERIMENT = Experiment(
    name="table2",
    title="Architectures and token budgets",
    place="Table 2",
    derived=True,
    rows=tuple(Row((size,), data_parallel(size)) for size in SIZES),
)
