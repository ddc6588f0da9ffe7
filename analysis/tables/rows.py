"""Rows of trained runs: one method at one point, ours over the seeds, with the paper's cells beside.

No pandas, no plotting, no JAX, so that a table of finished runs prints at once.
"""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from analysis.paper.deciding import slack
from analysis.paper.published import Published, verdict
from analysis.tables.score_statistics import Score, gather_scores
from repro.results.read import Result

LABELS = " | "  # between the labels of a row
LOSS, FLOPS = "Eval Loss", "Flops"
SIZE = re.compile(r"\d+(\.\d+)?[kMB]")  # a label such as 35M, at any scale
SCORES = ("HellaSwag", "Piqa", "Arc Easy")
SHORT = (
    ("Streaming DiLoCo with overlapped FP4 com., ", "Streaming "),
    ("Streaming DiLoCo with overlapped FP4 communication", "Streaming"),
)


@dataclass(frozen=True)
class TableRow:
    """One row: our runs over the seeds (none where none is planned) and the paper's cells."""

    labels: tuple[str, ...]  # as shown at our scale; the paper's where we have no run
    paper_row: str
    results: tuple[Result, ...]
    printed: Mapping[str, Published]  # by column

    @property
    def sized(self) -> bool:
        """Whether its first label is a size; others begin with the method."""
        return SIZE.fullmatch(self.paper_row.split(LABELS)[0]) is not None

    @property
    def point(self) -> str:
        """Where it stands among the rows of its method: the size (ours), or what follows the method's name."""
        return self.labels[0] if self.sized else LABELS.join(self.labels[1:])

    @property
    def method(self) -> str:
        """What is compared at a point, in the paper's words: H is the paper's, whatever a small scale can hold."""
        first, *others = self.paper_row.split(LABELS)
        return LABELS.join(others) if self.sized else first

    @property
    def method_run(self) -> str:
        """What is compared at a point, in words that say what was run."""
        return LABELS.join(self.labels[1:]) if self.sized else self.labels[0]

    @property
    def name(self) -> str:
        """Its key at our scale."""
        return LABELS.join(self.labels)

    @property
    def cells(self) -> tuple[str, ...]:
        """Its first cells in a table, under `heads`; a star marks a point that the paper's text doesn't name."""
        point = self.point + (" *" if self.ours else "")
        return (point, self.short) if self.sized else (self.short, point) if self.point else (self.short,)

    @property
    def x(self) -> float | None:
        """Where it stands on the axis of its figure."""
        return self.results[0].run.x if self.results else None

    @property
    def at_paper_scale(self) -> bool:
        """Whether its runs are those that the paper prints, not a miniature of them."""
        return bool(self.results) and self.results[0].run.config.scale == "paper"

    @property
    def ours(self) -> bool:
        """Whether the paper's text doesn't name this point."""
        return bool(self.results) and self.results[0].run.ours

    @cached_property
    def losses(self) -> dict[int, float]:
        """Validation loss by seed, of the runs that are done."""
        return {r.run.config.seed: r.loss for r in self.results if r.loss is not None}

    @property
    def mean(self) -> float | None:
        """Mean loss over the seeds."""
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
            evaluations = {r.run.config.seed: r.evaluation for r in self.results if r.evaluation is not None}
            self._scores[column, metric] = gather_scores(evaluations.values(), column, metric, list(evaluations))
        return self._scores[column, metric]

    @property
    def evaluated_ids(self) -> tuple[str, ...]:
        """The runs behind the scores."""
        return tuple(r.run.run_id for r in self.results if r.evaluation is not None)

    @property
    def short(self) -> str:
        """The method in few words."""
        return short_method(self.method_run)

    @property
    def tokens(self) -> int | None:
        """Tokens that one run sees, as planned."""
        return self.results[0].run.config.tokens if self.results else None

    @property
    def state(self) -> str:
        """done if any seed is, else the state of the first seed."""
        if self.losses:
            return "done"
        return self.results[0].state if self.results else "not run"

    @property
    def tolerance(self) -> float | None:
        """t s √(1 + 1/n): the paper's one run and our mean of n, both of our spread s.

        None for one seed, and for a miniature, which is held against nothing.
        """
        if self.spread is None or not self.at_paper_scale:
            return None
        return slack(self.spread, len(self.losses))

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
        word = verdict(cell, self.mean, self.tolerance or 0.0, scale)
        return "undecided (one seed)" if self.tolerance is None and word.startswith("deviates") else word


def heads(rows: Sequence[TableRow]) -> tuple[str, ...]:
    """The heads of the first columns of these rows."""
    return ("Size", "Method") if rows[0].sized else ("Method", "Point") if rows[0].point else ("Method",)


def score_columns(rows: Sequence[TableRow]) -> tuple[str, ...]:
    """The scores that stand beside the losses: those printed, or all where nothing is."""
    printed = {column for row in rows for column in row.printed} - {LOSS}
    return tuple(column for column in SCORES if column in printed or not printed)


def short_method(method: str) -> str:
    """A method's label in few words."""
    for name, stands in SHORT:
        method = method.replace(name, stands)
    return method


def own_points(rows: Iterable[TableRow], method: str) -> tuple[tuple[float, float], ...]:
    """(FLOPs, mean loss) of our runs of a method, over the seeds that all its points have, if there are such."""
    done = [row for row in rows if row.method == method and row.flops is not None and row.losses]
    shared = set.intersection(*(set(row.losses) for row in done)) if done else set()
    return tuple(
        (row.flops, statistics.fmean(loss for seed, loss in row.losses.items() if not shared or seed in shared))
        for row in done
        if row.flops is not None
    )
