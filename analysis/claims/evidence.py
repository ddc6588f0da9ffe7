"""What the claims are decided from: the results of every experiment, at paper scale and in miniature.

A view holds one scale and never sees the other. Standard library only.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from analysis.paper.deciding import Lent
from analysis.paper.published import paired_differences
from analysis.paper.statements import statements
from experiments.papers import DEFAULT
from experiments.registry import load
from repro.results.collected import archive_path, filled, seeds_there
from repro.results.read import Result, collect
from repro.spec.experiment import PlannedRun, expand
from repro.spec.scales import method_family
from repro.words import counted

BySeed = Mapping[int, float]
Kind = tuple[str, int, int]  # of method, H and M: what is alike
Kinds = tuple[Kind, ...]
UNLIKE = "tuning"  # its rows differ in learning rates far from the best: no spread of like runs


@dataclass(frozen=True)
class Spread:
    """Standard deviation of one paired difference between two methods at a size, and where it is known from."""

    value: float
    experiments: tuple[str, ...]
    seeds: int
    degrees: int

    @property
    def lent(self) -> Lent:
        """As a row of one seed shows it."""
        return Lent(self.value, self.degrees)

    @property
    def sentence(self) -> str:
        """Where it comes from."""
        return (
            f"One seed decides nothing; the error shown is lent by {', '.join(self.experiments)}: the spread of a "
            f"paired difference of like rows, {self.value:.4f} with {counted(self.degrees, 'degree')} of freedom"
        )


@dataclass(frozen=True)
class View:
    """All results of one scale, by experiment, in the order in which they were planned.

    Without `lends` a row of one seed has no spread, not that of like rows with more.
    """

    scale: str
    results: Mapping[str, tuple[Result, ...]]
    lends: bool = True

    def row(self, experiment: str, row: str) -> tuple[Result, ...]:
        """The runs of a row by ascending seed; () where the row has no counterpart at this scale."""
        return self._rows.get((experiment, row), ())

    def rows(self, experiment: str) -> Mapping[str, tuple[Result, ...]]:
        """Every row of an experiment."""
        return {row: results for (name, row), results in self._rows.items() if name == experiment}

    def losses(self, experiment: str, row: str) -> BySeed:
        """Validation loss by seed of the parameters that the row evaluates; finished runs only."""
        return {r.run.config.seed: r.loss for r in self.row(experiment, row) if r.loss is not None}

    def sizes(self, experiment: str) -> tuple[str, ...]:
        """The first label of every row, the paper's: its sizes, in table order."""
        return tuple(dict.fromkeys(row.split(" | ")[0] for row in self.rows(experiment)))

    def named(self, experiment: str, size: str) -> str:
        """Our size that stands for one of the paper's."""
        rows = (results for row, results in self.rows(experiment).items() if row.split(" | ")[0] == size)
        return next(rows)[0].run.labels[0]

    def spread(self, *runs: PlannedRun) -> Spread | None:
        """The spread of a difference between runs such as these, over pairs of rows that share two seeds or more.

        Pairs at the same size (ours) whose methods, H and M are these; None where there are none such, and for runs of
        several sizes.
        """
        sizes = {run.config.model.size for run in runs}
        if not self.lends or len(sizes) > 1:
            return None
        return self._spreads.get((sizes.pop(), _kinds(*runs)))

    @cached_property
    def _rows(self) -> dict[tuple[str, str], tuple[Result, ...]]:
        rows: dict[tuple[str, str], tuple[Result, ...]] = {}
        for experiment, results in self.results.items():
            for result in sorted(results, key=lambda r: r.run.config.seed):
                key = experiment, result.run.paper_row
                rows[key] = (*rows.get(key, ()), result)
        return rows

    @cached_property
    def _spreads(self) -> dict[tuple[str, Kinds], Spread]:
        pairs: dict[tuple[str, Kinds], list[tuple[str, tuple[float, ...]]]] = {}
        for size, kinds, experiment, differences in self._paired():
            pairs.setdefault((size, kinds), []).append((experiment, differences))
        return {key: spread for key, paired in pairs.items() if (spread := _pooled(paired)) is not None}

    def _paired(self) -> Iterator[tuple[str, Kinds, str, tuple[float, ...]]]:
        """(size, kinds, experiment, paired differences) of every two rows of one size, each with runs of its own.

        Without rows that diverged: how far apart those land says nothing of runs that learn.
        """
        for experiment in self.results:
            if experiment == UNLIKE:
                continue
            rows = [
                (by_seed[0].run, self.losses(experiment, row))
                for row, by_seed in self.rows(experiment).items()
                if not any(result.diverged for result in by_seed)
            ]
            for (one, losses), (other, others) in itertools.combinations(rows, 2):
                size = one.config.model.size
                if size == other.config.model.size and one.run_id != other.run_id:
                    yield size, _kinds(one, other), experiment, paired_differences(losses, others)


@dataclass(frozen=True)
class Evidence:
    """Both scales."""

    paper: View
    mini: View


def gather(seeds: int | None, root: Path, *, own: bool = True, of: str = DEFAULT) -> Evidence:
    """The evidence on a paper, from run folders under `root`, planned with `seeds` seeds; None: as many as there are.

    Without `own`, runs that aren't finished there are filled from the collected results.
    """
    return Evidence(*(View(scale, _collected(scale, seeds, root, own, of)) for scale in ("paper", "mini")))


def experiments(of: str = DEFAULT) -> tuple[str, ...]:
    """Every experiment whose runs decide a statement of a paper."""
    return tuple(sorted({name for statement in statements(of) for name in statement.experiments}))


def _collected(scale: str, seeds: int | None, root: Path, own: bool, of: str) -> dict[str, tuple[Result, ...]]:
    seeds = seeds_there(scale, root, own) if seeds is None else seeds
    collected: dict[str, tuple[Result, ...]] = {}
    for experiment in map(load, experiments(of)):
        collected[experiment.name] = collect(expand(experiment, scale, seeds), root, syncs=experiment.syncs)
    if own:
        return collected
    # All at once: the file is read once.
    every = iter(filled(itertools.chain(*collected.values()), archive_path(scale)))
    return {name: tuple(itertools.islice(every, len(results))) for name, results in collected.items()}


def _kinds(*runs: PlannedRun) -> Kinds:
    configs = [run.config for run in runs]
    return tuple(sorted((method_family(c), c.sync.every if c.sync else 0, c.replicas) for c in configs))


def _pooled(paired: Iterable[tuple[str, tuple[float, ...]]]) -> Spread | None:
    squares, degrees, names, seeds = 0.0, 0, {}, 0
    for name, differences in paired:
        if len(differences) > 1 and all(map(math.isfinite, differences)):
            mean = math.fsum(differences) / len(differences)
            squares += math.fsum((d - mean) ** 2 for d in differences)
            degrees += len(differences) - 1
            names[name], seeds = True, max(seeds, len(differences))
    return Spread(math.sqrt(squares / degrees), tuple(names), seeds, degrees) if degrees else None
