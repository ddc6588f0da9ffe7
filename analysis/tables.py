"""Tables of trained runs as data: ours over seeds, the paper's cells beside, verdicts, claims and slopes.

Pure functions of results and published cells; what they look like is `analysis.views`. No pandas, no
plotting, no JAX, so that a table of finished runs prints at once.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from analysis.fits import Line, power_law, published_points, semi_log
from analysis.scores import Score, gather
from experiments.table5 import DP, STREAM_100
from repro.experiment import Experiment, MiniClaim
from repro.paper import (
    Claim,
    ClaimVerdict,
    Published,
    by_place,
    judge_all,
    judge_order,
    judge_parity,
    paired_differences,
    verdict,
)
from repro.results import Result

LOSS, FLOPS = "Eval Loss", "Flops"
SCORES = ("HellaSwag", "Piqa", "Arc Easy")
SHORT = (("Streaming DiLoCo with overlapped FP4 com., ", "Streaming "),)
PRINTED_SLOPES = {DP: "scaling slope | Data-Parallel", STREAM_100: "scaling slope | Streaming DiLoCo"}

Losses = Mapping[str, Mapping[str, Mapping[int, float]]]  # method -> size -> seed -> loss


@dataclass(frozen=True)
class Row:
    """One method at one size: our runs over the seeds (none where none is planned) and the paper's cells."""

    size: str  # ours; the paper's where we have none
    method: str
    paper_row: str
    results: tuple[Result, ...]
    printed: Mapping[str, Published]  # by column

    @cached_property
    def losses(self) -> dict[int, float]:
        """Validation loss by seed, of the runs that are done."""
        return {r.run.config.seed: r.loss for r in self.results if r.loss is not None}

    @property
    def mean(self) -> float | None:
        """Over the seeds."""
        return statistics.fmean(self.losses.values()) if self.losses else None

    @property
    def spread(self) -> float | None:
        """Standard deviation over the seeds; None with fewer than two."""
        return statistics.stdev(self.losses.values()) if len(self.losses) > 1 else None

    @property
    def flops(self) -> float | None:
        """6 N · tokens of one run, as planned."""
        return self.results[0].run.config.flops if self.results else None

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The runs behind the mean."""
        return tuple(r.run.run_id for r in self.results if r.loss is not None)

    @cached_property
    def _scores(self) -> dict[tuple[str, str], Score | None]:
        return {}

    def score(self, column: str, metric: str) -> Score | None:
        """A downstream score over the seeds that are evaluated; None without any."""
        if (column, metric) not in self._scores:
            evaluations = [r.evaluation for r in self.results if r.evaluation is not None]
            self._scores[column, metric] = gather(evaluations, column, metric)
        return self._scores[column, metric]

    @property
    def evaluated_ids(self) -> tuple[str, ...]:
        """The runs behind the scores."""
        return tuple(r.run.run_id for r in self.results if r.evaluation is not None)

    @property
    def short(self) -> str:
        """The method in few words."""
        return short(self.method)

    @property
    def state(self) -> str:
        """done if any seed is, else the state of the first seed."""
        if self.losses:
            return "done"
        return self.results[0].state if self.results else "not run"

    @property
    def tolerance(self) -> float | None:
        """2 s √(1 + 1/n): the paper's one run and our mean of n, both of our spread s.

        None for one seed, and for a miniature, which is held against nothing.
        """
        if self.spread is None or self.results[0].run.config.scale != "paper":
            return None
        return 2 * self.spread * math.sqrt(1 + 1 / len(self.losses))

    @property
    def verdict(self) -> str:
        """On the loss. Only runs at paper scale are held against the paper's cell; one seed decides only
        what already prints as published.
        """
        if self.mean is None:
            return self.state
        scale, cell = self.results[0].run.config.scale, self.printed.get(LOSS)
        if scale != "paper":
            return f"{scale}: no paper verdict"
        if cell is None:
            return "not published"
        found = verdict(cell, self.mean, self.tolerance or 0.0, scale)
        return "undecided (one seed)" if self.tolerance is None and found.startswith("deviates") else found


@dataclass(frozen=True)
class DecidedClaim:
    """A claim, decided at each size (or step between sizes) and in all."""

    claim: MiniClaim
    parts: tuple[tuple[str, Claim], ...]

    @property
    def verdict(self) -> ClaimVerdict:
        """One size that disagrees refutes it; all must agree for it to hold."""
        return judge_all(part for _, part in self.parts)


@dataclass(frozen=True)
class Slope:
    """Loss on ln(FLOPs) of one method, and the power law beside it; None with fewer than two sizes."""

    method: str
    ours: Line | None
    ours_power: Line | None
    paper: Line | None  # from the printed cells
    paper_power: Line | None
    printed: Published | None


@dataclass(frozen=True)
class Table:
    """All that is shown of an experiment at a scale."""

    experiment: Experiment
    scale: str
    seeds: int
    rows: tuple[Row, ...]
    claims: tuple[DecidedClaim, ...]
    slopes: tuple[Slope, ...]
    results: tuple[Result, ...]
    cells: tuple[Published, ...]


def table5(
    results: Sequence[Result],
    cells: Sequence[Published],
    experiment: Experiment,
    statements: Sequence[Published] = (),
) -> Table:
    """Table 5: every printed row, with our runs of it or of its miniature; `statements` hold the slopes.

    ValueError without results.
    """
    rows = printed_rows(results, cells)
    return _table(results, cells, experiment, rows, _slopes(rows, cells, statements))


def runs_table(results: Sequence[Result], experiment: Experiment) -> Table:
    """Any other experiment: its rows alone, nothing of the paper's beside. ValueError without results."""
    rows = tuple(_row(paper_row, found, {}) for paper_row, found in grouped(results).items())
    return _table(results, (), experiment, rows, ())


def printed_rows(results: Iterable[Result], cells: Iterable[Published]) -> tuple[Row, ...]:
    """A row for each printed row with a loss, in printed order."""
    by_row: dict[str, dict[str, Published]] = {}
    for cell in cells:
        by_row.setdefault(cell.row, {})[cell.column] = cell
    ours = grouped(results)
    return tuple(_row(name, ours.get(name, ()), printed) for name, printed in by_row.items() if LOSS in printed)


def grouped(results: Iterable[Result]) -> dict[str, tuple[Result, ...]]:
    """Results by the paper's row, in the order of their seeds."""
    found: dict[str, tuple[Result, ...]] = {}
    for result in sorted(results, key=lambda r: r.run.config.seed):
        found[result.run.paper_row] = (*found.get(result.run.paper_row, ()), result)
    return found


def losses_of(rows: Iterable[Row]) -> Losses:
    """Every planned row's losses, by method and size in table order."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        if row.results:
            found.setdefault(row.method, {})[row.size] = row.losses
    return found


def decide(claim: MiniClaim, losses: Losses) -> DecidedClaim:
    """A claim from paired differences over seeds. ValueError for an unknown kind."""
    low, high = losses.get(claim.low, {}), losses.get(claim.high, {})
    if claim.kind == "falls":
        steps = zip(low, list(low)[1:], strict=False)
        parts = [(f"{a}→{b}", judge_order(paired_differences(low[a], low[b]))) for a, b in steps]
        return DecidedClaim(claim, tuple(parts))
    pairs = [(size, paired_differences(high[size], low[size])) for size in low if size in high]
    if claim.kind == "order":
        return DecidedClaim(claim, tuple((size, judge_order(found)) for size, found in pairs))
    if claim.kind == "parity":
        return DecidedClaim(claim, tuple((size, judge_parity(found, claim.tolerance)) for size, found in pairs))
    raise ValueError(f"claim {claim.name!r} is of kind {claim.kind!r}: order, parity and falls are known")


def _table(
    results: Sequence[Result],
    cells: Sequence[Published],
    experiment: Experiment,
    rows: tuple[Row, ...],
    slopes: tuple[Slope, ...],
) -> Table:
    if not results:
        raise ValueError(f"{experiment.name}: a table needs at least one planned run")
    losses = losses_of(rows)
    return Table(
        experiment=experiment,
        scale=results[0].run.config.scale,
        seeds=len({r.run.config.seed for r in results}),
        rows=rows,
        claims=tuple(decide(claim, losses) for claim in experiment.claims),
        slopes=slopes,
        results=tuple(results),
        cells=tuple(cells),
    )


def _row(paper_row: str, results: Sequence[Result], printed: Mapping[str, Published]) -> Row:
    labels = results[0].run.labels if results else tuple(paper_row.split(" | "))
    return Row(labels[0], " | ".join(labels[1:]), paper_row, tuple(results), printed)


def _slopes(rows: Sequence[Row], cells: Sequence[Published], statements: Sequence[Published]) -> tuple[Slope, ...]:
    printed = by_place(statements)
    found = []
    for method in dict.fromkeys(row.method for row in rows):
        points = own_points(rows, method)
        published = published_points(cells, method)
        found.append(
            Slope(
                method,
                semi_log(points) if len(points) > 1 else None,
                power_law(points) if len(points) > 1 else None,
                semi_log(published) if len(published) > 1 else None,
                power_law(published) if len(published) > 1 else None,
                printed.get((PRINTED_SLOPES.get(method, ""), "Slope")),
            )
        )
    return tuple(found)


def short(method: str) -> str:
    """A method's label in few words."""
    for name, stands in SHORT:
        method = method.replace(name, stands)
    return method


def own_points(rows: Iterable[Row], method: str) -> tuple[tuple[float, float], ...]:
    """(FLOPs, mean loss) of our runs of a method."""
    return tuple(
        (row.flops, row.mean) for row in rows if row.method == method and row.flops is not None and row.mean is not None
    )
