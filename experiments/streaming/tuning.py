"""Batches and learning rates, found on the same grid for every method at the smallest size, and checked at a larger.

The paper tunes the outer learning rate "at small scale" to 0.4 (§3.2) and gives no batch on C4 and no inner learning
rate for any size. First each method's global batch and peak inner rate with the paper's outer settings, with two, four
and eight replicas; then shorter sequences, and the outer learning rate and momentum, both at the best batch and rate;
last, at a larger size, the neighbours of what was chosen. The choices that the mini scale makes from the collected
results stand in `repro.spec.scales`, and a test compares them. At scale smoke a part of the grid shows that it runs;
the other rows are left out.

    make tuning                      on two cores, some forty minutes
    make tuning-plan SCALE=paper     the same grid at 35M
"""

from collections.abc import Iterator
from dataclasses import replace

from experiments.streaming.base import DP, c4, data_parallel, diloco, streaming
from experiments.streaming.table5 import DILOCO_30, STREAM_30, STREAM_100
from repro.spec.config import OuterConfig, RunConfig
from repro.spec.experiment import Experiment, Row, vary
from repro.spec.scales import MINI_LADDER, MINI_SEQ, SMOKE_BATCH, Setting, at_scale, mini_rate, tuned_rate, usual_batch

SIZE, LARGER = "35M", "200M"
REPLICAS = (2, 4, 8)
BATCHES = {0.5: 2, 1.0: 4, 2.0: 8}  # of the batch at paper scale, and in miniature: sequences
RATES = {0.25: 2**-8, 0.5: 2**-7, 1.0: 2**-6, 2.0: 2**-5, 4.0: 2**-4}  # of the rate at paper scale, and in miniature
SHORT = 64  # tokens of a shorter sequence in miniature
OUTER_GRID = tuple((rate, momentum) for rate in (0.2, 0.4, 0.8) for momentum in (0.6, 0.9))
USUAL_OUTER = (0.4, 0.9)
SMALL_FACTORS = ((1.0, 1.0), (2.0, 1.0), (1.0, 2.0))  # of batch and rate, at scale small
SMOKE_FACTORS, SMOKE_OUTER = (1.0, 2.0), (STREAM_30, 0.2, 0.6)  # of the grid at scale smoke

Method = tuple[str, RunConfig]


def methods(size: str) -> tuple[Method, ...]:
    """Data-parallel, and DiLoCo and Streaming DiLoCo with H = 30, at paper scale."""
    synced = ((DILOCO_30, diloco(30)), (STREAM_30, streaming(30)))
    return (
        (DP, data_parallel(size)),
        *(
            (name if replicas == 2 else f"{name}, M={replicas}", c4(size, sync, replicas))
            for name, sync in synced
            for replicas in REPLICAS
        ),
    )


def grid_rows(method: Method) -> Iterator[Row]:
    """Every batch that M divides at every rate."""
    config = method[1]
    for batch_factor, batch in BATCHES.items():
        for rate_factor, rate in RATES.items():
            if batch % config.replicas == 0:
                smoke = config.replicas <= 2 and batch_factor == 1 and rate_factor in SMOKE_FACTORS
                row = _row(SIZE, method, batch_factor, rate_factor, Setting(batch, rate), smoke)
                yield _at_small(row) if config.replicas <= 2 and (batch_factor, rate_factor) in SMALL_FACTORS else row


def _at_small(row: Row) -> Row:
    """At scale small too: what is carried there (the run of Table 5), and twice its batch or rate."""
    batch_factor, rate_factor = (float(part.rpartition(" ")[2]) for part in row.labels[-1].split(", "))
    usual = at_scale(next(config for name, config in GRID if name == row.labels[1]), "small")
    assert usual is not None, "the smallest size is of that ladder"
    setting = Setting(int(usual.batch * batch_factor), usual.inner.learning_rate * rate_factor)
    return replace(row, own={**row.own, "small": setting}, small=1)


def short_rows(method: Method) -> Iterator[Row]:
    """Sequences of half the length at the method's best rate: each batch of the grid again, with half the tokens."""
    config = method[1]
    config = vary(config, model__seq_len=config.model.seq_len // 2, steps=2 * config.steps)
    for factor, batch in BATCHES.items():
        yield _row(SIZE, (method[0], config), factor, 1.0, Setting(batch, tuned_rate(config), SHORT))


def neighbour_rows(method: Method) -> Iterator[Row]:
    """What was chosen, half and twice its rate, and twice its batch, at the larger size."""
    mini = _mini(method[1])
    batch, rate = usual_batch(mini), mini_rate(mini, MINI_LADDER[LARGER])
    for batch_factor, rate_factor in ((1.0, 0.5), (1.0, 1.0), (1.0, 2.0), (2.0, 1.0), (2.0, 2.0)):
        setting = Setting(int(batch * batch_factor), rate * rate_factor)
        yield _row(LARGER, method, batch_factor, rate_factor, setting)


def outer_rows(method: Method) -> Iterator[Row]:
    """Each outer setting, the paper's too for the method that the grid lacks, at the best batch and rate."""
    name, config = method
    for outer in OUTER_GRID:
        if outer != USUAL_OUTER or name == STREAM_100:
            label = "outer {:g}, momentum {:g}".format(*outer)
            yield Row(
                (SIZE, name, label),
                vary(config, sync__outer=OuterConfig("nesterov", *outer)),
                _own(Setting(usual_batch(_mini(config)), tuned_rate(config)), (name, *outer) == SMOKE_OUTER),
            )


def _row(
    size: str, method: Method, batch_factor: float, rate_factor: float, setting: Setting, smoke: bool = False
) -> Row:
    """One setting of the grid: at paper scale as many tokens in other steps."""
    name, config = method
    steps = round(config.steps / batch_factor)
    config = vary(
        config,
        batch=int(config.batch * batch_factor),
        steps=steps,
        inner__learning_rate=config.inner.learning_rate * rate_factor,
        inner__weight_decay=1 / steps,
        inner__warmup_steps=min(config.inner.warmup_steps, steps),
    )
    short = "half the length, " if setting.seq_len < MINI_SEQ else ""
    return Row((size, name, f"{short}batch x {batch_factor:g}, rate x {rate_factor:g}"), config, _own(setting, smoke))


def _own(setting: Setting, smoke: bool) -> dict[str, Setting]:
    """In miniature, and at toy size where the row is one of the few there."""
    return {"mini": setting} | ({"smoke": Setting(SMOKE_BATCH, setting.rate)} if smoke else {})


def _mini(config: RunConfig) -> RunConfig:
    """As far as the usual batch and rate ask: the method and M of a miniature."""
    return vary(config, scale="mini")


GRID = methods(SIZE)
TWO = tuple(method for method in GRID if method[1].replicas <= 2)
OUTER = (*(method for method in TWO if method[1].sync), (STREAM_100, c4(SIZE, streaming(100))))

EXPERIMENT = Experiment(
    name="tuning",
    title="Batches and learning rates",
    place="§3.2",
    rows=tuple(
        row
        for rows, chosen in (
            (grid_rows, GRID),
            (short_rows, TWO),
            (outer_rows, OUTER),
            (neighbour_rows, tuple(method for method in methods(LARGER) if method[1].replicas <= 2)),
        )
        for method in chosen
        for row in rows(method)
    ),
    notes=(
        "Loss on windows of the run's own length: one of 64 tokens has half the context.",
        "At the larger size: half and twice the rate, and twice the batch at the rate and at twice the rate.",
    ),
)
