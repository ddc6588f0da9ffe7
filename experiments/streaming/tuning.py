"""Learning rates, found on the same grid for every method, at the smallest size.

The paper tunes the outer learning rate "at small scale" to 0.4 (§3.2) and gives no inner learning rate
for any size. First the peak inner rate of each method with the paper's outer settings, then the outer
learning rate and momentum of the methods that have them, each at its best inner rate. The choices that
the mini scale makes from the collected results stand in `repro.spec.scales`, and a test compares them. At
scale smoke a part of the grid shows that it runs; the other rows are left out.

    make tuning                      on two cores, some ten minutes
    make tuning-plan SCALE=paper     the same grid at 35M
"""

from experiments.streaming.table5 import METHODS, STREAM_30, method_rows
from repro.spec.config import OuterConfig
from repro.spec.experiment import Experiment, Row, vary
from repro.spec.scales import MINI_BATCH, MINI_LEARNING_RATE, Setting, method_family

SIZE = "35M"
MINI_RATES = tuple(2.0**-k for k in (8, 7, 6, 5, 4))
PAPER_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the assumed paper-scale rate
SMOKE_FACTORS, SMOKE_OUTER = (1.0, 2.0), (STREAM_30, 0.2, 0.6)  # of the grid at scale smoke
OUTER_GRID = tuple((rate, momentum) for rate in (0.2, 0.4, 0.8) for momentum in (0.6, 0.9))


def inner_rows(row: Row) -> list[Row]:
    """One method at each inner rate, with the paper's outer settings."""
    rate = row.config.inner.learning_rate
    return [
        Row(
            (*row.labels, f"inner x {factor:g}"),
            vary(row.config, inner__learning_rate=rate * factor),
            _own(mini, factor in SMOKE_FACTORS),
        )
        for factor, mini in zip(PAPER_FACTORS, MINI_RATES, strict=True)
    ]


def outer_rows(row: Row) -> list[Row]:
    """One method at each outer setting but the paper's, which `inner_rows` holds already."""
    if row.config.sync is None:
        return []
    rate, method = MINI_LEARNING_RATE[method_family(row.config)], row.labels[1]
    return [
        Row(
            (*row.labels, "outer {:g}, momentum {:g}".format(*setting)),
            vary(row.config, sync__outer=OuterConfig("nesterov", *setting)),
            _own(rate, (method, *setting) == SMOKE_OUTER),
        )
        for setting in OUTER_GRID
    ]


def _own(rate: float, smoke: bool) -> dict[str, Setting]:
    """In miniature, and at toy size where the row is one of the few there."""
    return {scale: Setting(MINI_BATCH, rate) for scale in ("mini", "smoke") if scale == "mini" or smoke}


EXPERIMENT = Experiment(
    name="tuning",
    title="Learning rates at the smallest size",
    place="§3.2",
    rows=tuple(
        new
        for make in (inner_rows, outer_rows)
        for row in method_rows(SIZE)
        if row.labels[1] in METHODS
        for new in make(row)
    ),
)
