"""What an experiment is, and how it expands into runs. No JAX, no I/O.

A module of `experiments/` holds one EXPERIMENT: rows at paper scale, each a full config. `expand` moves
them to a scale, adds seeds and gives every run its id. Rows that share a config share the run.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from repro.errors import UserError, check_known
from repro.spec.canonical import canonical_config
from repro.spec.config import RunConfig, SyncConfig
from repro.spec.identity import run_id
from repro.spec.scales import Setting, at_scale, relabelled
from repro.words import counted

Kind = Literal["order", "slight", "parity", "added", "percent", "score slight", "score parity"]
Points = Literal["all", "first", "last"]
Side = Literal["above", "below", "better", "worse"]
Origin = Literal["", "seed spread", "rounding", "grid bin", "stated in the text", "our reading"]
# What an axis may show, read from a run of an experiment whose rows all have it.
KNOBS: Mapping[str, Callable[[RunConfig], float]] = {
    "every": lambda config: _sync(config).every,
    "delay": lambda config: _sync(config).delays[-1],
    "layers": lambda config: _sync(config).fragments.layers,
    "tokens a parameter": lambda config: float(f"{config.tokens / config.model.params_by_rule:.2g}"),
}
MOST_SEEDS = 1000  # more is a slip of the hand, and would be planned for minutes


@dataclass(frozen=True)
class Row:
    """One row of a table: the paper's labels (a size among them, or not) and its run at paper scale.

    `own` sets batch and rate at a scale, for a row that doesn't take the scale's usual ones; at a scale that it lacks
    the row is left out. `at_any_scale` holds fields, named as `vary` does, that a scale would set and here doesn't.
    `x` is its place on the axis of its figure, where no knob is. `ours` marks a point that the paper's text doesn't
    name, `parameters` which of the run's parameters are evaluated (Table 3). A row with `seeds` has so many in
    miniature, however few are asked for; at scale `small` it has a run only with `small`, so many seeds at least.
    """

    labels: tuple[str, ...]
    config: RunConfig
    own: Mapping[str, Setting] = field(default_factory=dict)
    at_any_scale: Mapping[str, Any] = field(default_factory=dict)
    x: float | None = None
    ours: bool = False
    parameters: str = "outer"
    seeds: int = 1
    small: int = 0

    def seeds_at(self, scale: str, asked: int) -> int:
        """How many seeds it has where `asked` are."""
        return max(asked, {"mini": self.seeds, "small": self.small}.get(scale, 1))


@dataclass(frozen=True)
class Pair:
    """Two rows that a claim compares, by the paper's labels, and what tells them from the other pairs of it."""

    first: str
    second: str
    at: str = ""  # the point at which both stand: a size, a budget, an H
    name: str = ""

    @property
    def label(self) -> str:
        """Both in words; "" for the only pair of a claim."""
        return ", ".join(filter(None, (self.at, self.name)))


@dataclass(frozen=True)
class Claim:
    """A statement of the paper as rows that are compared, seed by seed: at paper scale and, as a shape, in miniature.

    What must hold of each pair, with d the loss of the second row less that of the first:

    order         d >= 0
    slight        0 <= d <= tolerance, in nats
    parity        |d| <= tolerance, in nats
    added         d <= tolerance, in nats
    percent       d <= tolerance, in percent of the first's loss
    score slight  the second's accuracy is the higher by 0 to the tolerance, in points, in each column of `scores`
    score parity  the accuracies differ by at most the tolerance, in points
    """

    statement: str  # its id in claims.csv; in a spec beyond the paper one of its own, and `sentence` says it
    kind: Kind
    pairs: tuple[Pair, ...]
    tolerance: float | str = 0.0  # a number, or as {item:row:column} the place of a published one
    origin: Origin = "seed spread"  # of the tolerance
    off: Side | None = None  # where ours lies when the statement fails, if not where its kind says
    at: Points = "all"  # of the points that a scale has, which are compared
    scores: tuple[str, ...] = ()
    cells: tuple[tuple[str, str], ...] = ()  # rows that at paper scale are held against a published cell instead
    note: str = ""
    sentence: str = ""


@dataclass(frozen=True)
class Experiment:
    """A table or figure as data."""

    name: str  # of the module
    title: str
    place: str  # where in the paper
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...] = ()  # those that are data; what is computed stands in `analysis.claims`
    derived: bool = False  # nothing is trained for it
    axis: str = ""  # what x is, in a figure
    knob: str = ""  # of `KNOBS`, whose value in the run is x
    notes: tuple[str, ...] = ()  # choices of this spec, shown with the assumptions
    mini_model: str = ""  # whose miniature stands in for the one size of an ablation; "" goes by the ladder
    scored: bool = False  # its table or figure has downstream scores
    syncs: bool = False  # drawn from the runs' logs of outer gradients
    printed: str = ""  # the item of its paper's folder with its cells, where that isn't its own name
    min_rounds: int = 0  # a miniature with fewer rounds of H steps is left out, and the plan says so

    def __post_init__(self) -> None:
        rows = [" | ".join(row.labels) for row in self.rows]
        for claim in self.claims:
            paired = [row for pair in claim.pairs for row in (pair.first, pair.second)]
            for row in (*paired, *(row for row, _ in claim.cells)):
                check_known(f"{self.name}, claim {claim.statement!r}: unknown row", row, rows)


@dataclass(frozen=True)
class Calculation:
    """An item that is calculated, as data: `by` is the function that does it, `analysis.module:function`.

    It has no rows to train; `reads` names the experiments whose results it shows beside the paper's numbers.
    """

    name: str
    title: str
    place: str
    by: str
    reads: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    rows: ClassVar[tuple[()]] = ()


@dataclass(frozen=True)
class PlannedRun:
    """One run of an expanded experiment."""

    labels: tuple[str, ...]  # as shown at this scale
    paper_row: str  # the row's key in the paper's published cells
    config: RunConfig  # the canonical one
    run_id: str
    x: float | None = None
    ours: bool = False
    parameters: str = "outer"

    @property
    def row(self) -> str:
        """The row's key at this scale."""
        return " | ".join(self.labels)

    @property
    def full_row(self) -> str:
        """The row's key here, with the paper's where that isn't known by it: `DiLoCo | H = 12 (for H = 100)`."""
        theirs = self.paper_row.split(" | ")
        changed = [label for own, label in zip(self.labels, theirs, strict=True) if own != label]
        return f"{self.row} (for {', '.join(changed)})" if changed else self.row


def expand(experiment: Experiment, scale: str, seeds: int = 1) -> tuple[PlannedRun, ...]:
    """All runs of an experiment at a scale, seed by seed; rows with no counterpart at the scale are left out."""
    if not 1 <= seeds <= MOST_SEEDS:
        raise UserError(f"seeds={seeds}: choose 1 to {MOST_SEEDS:,}.")
    rows = [(row, config) for row in experiment.rows if (config := _at_scale(experiment, row, scale)) is not None]
    return tuple(
        _planned(experiment, row, dataclasses.replace(config, seed=seed))
        for seed in range(max((row.seeds_at(scale, seeds) for row, _ in rows), default=0))
        for row, config in rows
        if seed < row.seeds_at(scale, seeds) and not _too_short(experiment, config)
    )


def left_out(experiment: Experiment, scale: str) -> tuple[tuple[str, str], ...]:
    """(the paper's row, why) for each row without a run at this scale."""
    reasons = []
    for row in experiment.rows:
        config, name = _at_scale(experiment, row, scale), " | ".join(row.labels)
        if config is None:
            why = "left out of its grid" if row.own and scale not in row.own else "no counterpart"
            reasons.append((name, f"{why} at scale {scale}"))
        elif config.sync is not None and _too_short(experiment, config):
            many = counted(rounds(config), "round")
            reasons.append((name, f"{many} of H = {config.sync.every} in {config.steps:,} steps"))
    return tuple(reasons)


def _at_scale(experiment: Experiment, row: Row, scale: str) -> RunConfig | None:
    if (row.own and scale not in ("paper", *row.own)) or (scale == "small" and not row.small):
        return None
    config = at_scale(row.config, scale, experiment.mini_model, row.own.get(scale))
    return config and vary(config, **row.at_any_scale)


def _too_short(experiment: Experiment, config: RunConfig) -> bool:
    return config.scale == "mini" and config.sync is not None and rounds(config) < experiment.min_rounds


def rounds(config: RunConfig) -> int:
    """How often a fragment is sent in a whole run; 0 for data-parallel."""
    return config.steps // config.sync.every if config.sync else 0


def _planned(experiment: Experiment, row: Row, config: RunConfig) -> PlannedRun:
    labels = tuple(relabelled(label, row.config, config) for label in row.labels)
    x = KNOBS[experiment.knob](config) if experiment.knob else row.x
    run = canonical_config(config)
    return PlannedRun(labels, " | ".join(row.labels), run, run_id(run), x, row.ours, row.parameters)


def _sync(config: RunConfig) -> SyncConfig:
    assert config.sync is not None, "a row of data-parallel has no place on this axis"
    return config.sync


def unique(runs: Iterable[PlannedRun]) -> tuple[PlannedRun, ...]:
    """Each run once, in order: what is shared by two rows is run once."""
    return tuple({run.run_id: run for run in runs}.values())


def shared_rows(runs: Iterable[PlannedRun]) -> tuple[str, ...]:
    """A sentence for each run that several rows show, with the rows."""
    rows: dict[str, dict[str, PlannedRun]] = {}
    for run in runs:
        rows.setdefault(run.run_id, {})[run.paper_row] = run
    shared = {run_id: by_row.values() for run_id, by_row in rows.items() if len(by_row) > 1}
    return tuple(f"{run_id}: {'; '.join(run.full_row for run in several)}." for run_id, several in shared.items())


def vary(config: Any, **changes: Any) -> Any:
    """`dataclasses.replace` through dotted names written with two underscores: vary(c, sync__every=30).

    UserError on a field that doesn't exist, with the ones that do.
    """
    for name, value in changes.items():
        head, _, rest = name.partition("__")
        if config is None:
            raise UserError(f"{name}={value!r}: data-parallel has no sync, so give a run that has one.")
        known = [f.name for f in dataclasses.fields(config)]
        if head not in known:
            raise UserError(f"{type(config).__name__} has no field {head!r}: it has {', '.join(known)}.")
        if rest:
            value = vary(getattr(config, head), **{rest: value})
        config = dataclasses.replace(config, **{head: value})
    return config


def grid(config: Any, **axes: Iterable[Any]) -> Iterator[Any]:
    """Every combination of the axes' values over `config`, the last axis fastest."""
    for values in itertools.product(*axes.values()):
        yield vary(config, **dict(zip(axes, values, strict=True)))
