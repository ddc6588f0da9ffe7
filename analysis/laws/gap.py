"""The gap of each method to Data-Parallel over N, ours and the paper's on one axis, and where our line would take it.

Ours are of other text, at other sizes: at none of them is a gap held against the paper's. What is held against it is
the line through ours where it comes to the paper's sizes, with its interval.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from analysis.calculated import Calculated, Line, Results
from analysis.paper.deciding import Judgement, t_quantile
from analysis.paper.published import Published, by_place, load_cells, printed_interval
from analysis.render import Document, Grid, Notes
from analysis.tables.rows import short_method
from experiments.streaming.base import DP, SIMILAR, SIZES, model
from experiments.streaming.table5 import METHODS
from repro.results.read import Result
from repro.spec.experiment import Calculation
from repro.words import counted

COMPARED = tuple(method for method in METHODS if method != DP)
JUDGED = SIZES[:3]  # 35M, 100M, 200M
LADDERS = ("mini", "small")
LOSS, COLUMN = "Eval Loss", "Gap to Data-Parallel (%)"
NOTHING = "-"


@dataclass(frozen=True)
class Gap:
    """ln(loss / loss of Data-Parallel) of a method at one of our sizes, for each seed that has both."""

    scale: str
    size: str
    params: int
    by_seed: tuple[float, ...]
    runs: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return statistics.fmean(self.by_seed)

    @property
    def spread(self) -> float | None:
        """Standard deviation over the seeds; None for one."""
        return statistics.stdev(self.by_seed) if len(self.by_seed) > 1 else None


@dataclass(frozen=True)
class GapLine:
    """Least squares of the sizes' mean gaps on ln N; at least two sizes."""

    gaps: tuple[Gap, ...]

    @cached_property
    def _logs(self) -> list[float]:
        return [math.log(gap.params) for gap in self.gaps]

    def at(self, params: float) -> float:
        """The gap at N."""
        return sum(w * gap.mean for w, gap in zip(self._weights(params), self.gaps, strict=True))

    def errors(self, params: float) -> tuple[tuple[float, int], ...]:
        """(standard error, degrees of freedom) at N from the sizes and from the seeds, each where it is known.

        From the sizes: their scatter about the line, which holds what isn't one. From the seeds: their spread within
        sizes, pooled.
        """
        weights, sizes = self._weights(params), len(self.gaps)
        errors = []
        if sizes > 2:
            residuals = [gap.mean - self.at(gap.params) for gap in self.gaps]
            scatter = math.sqrt(sum(r * r for r in residuals) / (sizes - 2))
            errors.append((scatter * math.hypot(*weights), sizes - 2))
        degrees = sum(len(gap.by_seed) - 1 for gap in self.gaps)
        if degrees:
            squares = sum((value - gap.mean) ** 2 for gap in self.gaps for value in gap.by_seed)
            part = sum(w * w / len(gap.by_seed) for w, gap in zip(weights, self.gaps, strict=True))
            errors.append((math.sqrt(squares / degrees * part), degrees))
        return tuple(errors)

    def half_width(self, params: float) -> float | None:
        """Half of the 95 % interval at N, the wider of the two; None unless both are known."""
        errors = self.errors(params)
        return max(t_quantile(degrees) * error for error, degrees in errors) if len(errors) == 2 else None

    def judged(self, params: float, low: float, high: float) -> Judgement:
        """Whether the gap at N lies from `low` to `high`, by the wider interval; undecided unless both are known."""
        errors = self.errors(params)
        if len(errors) < 2:
            return Judgement(self.at(params))
        error, degrees = max(errors, key=lambda each: t_quantile(each[1]) * each[0])
        seeds = sum(len(gap.by_seed) for gap in self.gaps)
        return Judgement(self.at(params), error, seeds, degrees, low, high)

    def _weights(self, params: float) -> list[float]:
        mean = statistics.fmean(self._logs)
        squares = sum((x - mean) ** 2 for x in self._logs)
        return [1 / len(self._logs) + (math.log(params) - mean) * (x - mean) / squares for x in self._logs]


def gap_over_params(spec: Calculation, results: Results) -> Calculated:
    """Our gaps, the lines through them, and both at the paper's sizes."""
    runs = _read(results)
    gaps = {method: own_gaps(runs, method) for method in COMPARED}
    lines = {method: GapLine(each) for method, each in gaps.items() if len(each) > 1}
    judged = [_judged(method, size, lines.get(method)) for method in COMPARED for size in JUDGED]
    head = ("Method", "At", "Our line (%)", "95 % (%)", "Paper (%)", "Margin (%)", "Verdict")
    sections = (
        Grid(
            "Our line at the paper's sizes, beside the paper's gaps there",
            head,
            tuple(_row(line, lines) for line in judged),
            left=2,
            last_left=True,
        ),
        _own_grid(gaps),
        Notes("How to read it", tuple(_reading(lines))),
        Notes("What the paper leaves open", spec.assumptions),
    )
    csv_lines = (*judged, *(line for method in COMPARED for line in _own_lines(method, gaps[method])))
    document = Document(f"{spec.title} ({spec.place})", (), sections)
    return Calculated(document, csv_lines, lambda: _figure(gaps, lines))


def _read(results: Results) -> list[Result]:
    """Table 5's finished runs at both ladders and the scale that is shown; a toy's alone where that is shown."""
    at_scale = list(results("table5"))
    scales = {result.run.config.scale for result in at_scale}
    beside = () if "smoke" in scales else (scale for scale in LADDERS if scale not in scales)
    every = [*at_scale, *(result for scale in beside for result in results("table5", scale))]
    return [result for result in every if result.loss is not None and not result.diverged]


def own_gaps(results: Iterable[Result], method: str) -> tuple[Gap, ...]:
    """The gaps of a method, by size from the smallest; those of a seed that lacks Data-Parallel are left out."""
    by_size: dict[tuple[int, str, str], dict[str, dict[int, Result]]] = {}
    for result in results:
        config, name = result.run.config, result.run.paper_row.partition(" | ")[2]
        at = by_size.setdefault((config.model.params_by_rule, config.scale, config.model.size), {})
        at.setdefault(name, {})[config.seed] = result
    gaps = []
    for (params, scale, size), losses in sorted(by_size.items()):
        theirs, base = losses.get(method, {}), losses.get(DP, {})
        seeds = sorted(theirs.keys() & base.keys())
        if seeds:
            logs = tuple(math.log(_loss(theirs[seed]) / _loss(base[seed])) for seed in seeds)
            runs = tuple(each[seed].run.run_id for seed in seeds for each in (theirs, base))
            gaps.append(Gap(scale, size, params, logs, runs))
    return tuple(gaps)


def _loss(result: Result) -> float:
    assert result.loss is not None, "only finished runs are read"
    return result.loss


def printed_gap(method: str, size: str) -> tuple[float, float, float]:
    """ln of the paper's loss over its Data-Parallel's, and the least and greatest that the rounding of both allows."""
    place = by_place(load_cells("table5"))
    ours, base = (place[f"{size} | {name}", LOSS] for name in (method, DP))
    (low, high), (base_low, base_high) = printed_interval(ours), printed_interval(base)
    return math.log(_value(ours) / _value(base)), math.log(low / base_high), math.log(high / base_low)


def _value(cell: Published) -> float:
    if cell.value is None:
        raise ValueError(f"Table 5 prints no loss of {cell.row}")
    return cell.value


def _judged(method: str, size: str, line: GapLine | None) -> Line:
    """The line of the CSV: our line at a size of the paper, the paper's gap with what rounding allows, the verdict.

    Its spread is half of the interval of the logarithm.
    """
    paper, low, high = printed_gap(method, size)
    params, base = model(size).params_by_rule, by_place(load_cells("table5"))[f"{size} | {DP}", LOSS]
    margin = SIMILAR / _value(base)
    text = f"{_percent(paper)} ({_percent(low)} to {_percent(high)})"
    row, tolerance = f"{size} | {method}", f"{100 * margin:.2f}"
    if line is None:
        return (row, COLUMN, "", "", "", text, tolerance, "not run", "")
    width = line.half_width(params)
    return (
        row,
        COLUMN,
        _percent(line.at(params)),
        "" if width is None else f"{100 * width:.2f}",
        str(len(line.gaps)),
        text,
        tolerance,
        line.judged(params, low - margin, high + margin).verdict,
        " ".join(dict.fromkeys(run for gap in line.gaps for run in gap.runs)),
    )


def _row(judged: Line, lines: dict[str, GapLine]) -> tuple[str, ...]:
    """The line as the table shows it, with the ends of the interval."""
    size, method = judged[0].split(" | ")
    params, span = model(size).params_by_rule, NOTHING
    if judged[3] and (width := lines[method].half_width(params)) is not None:
        middle = lines[method].at(params)
        span = f"{_percent(middle - width)} to {_percent(middle + width)}"
    return (short_method(method), size, judged[2] or NOTHING, span, *judged[5:8])


def _own_lines(method: str, gaps: Sequence[Gap]) -> Iterator[Line]:
    for gap in gaps:
        spread = "" if gap.spread is None else f"{100 * gap.spread:.2f}"
        row = f"{gap.size} | {method}"
        verdict = f"no verdict ({gap.scale})"
        yield (row, COLUMN, _percent(gap.mean), spread, str(len(gap.by_seed)), "", "", verdict, " ".join(gap.runs))


def _own_grid(gaps: dict[str, tuple[Gap, ...]]) -> Grid:
    rows = tuple(
        (
            short_method(method),
            gap.size,
            gap.scale,
            f"{gap.params:,}",
            _percent(gap.mean),
            NOTHING if gap.spread is None else f"{100 * gap.spread:.2f}",
            str(len(gap.by_seed)),
        )
        for method, each in gaps.items()
        for gap in each
    )
    return Grid("Our gaps", ("Method", "Size", "Scale", "N", "Gap (%)", "± (%)", "n"), rows, left=3)


def _reading(lines: dict[str, GapLine]) -> Iterator[str]:
    yield "Gap: the loss over that of Data-Parallel of the same size and seed, less 1. ±: over the n seeds."
    yield (
        "Our line: least squares of the sizes' mean ln(loss / loss of Data-Parallel) on ln N. Its 95 % interval is the "
        "wider of two: from the scatter of the sizes about it, and from the spread of the seeds within sizes, pooled; "
        "without three sizes and a size of two seeds there is none, and nothing is decided."
    )
    yield (
        f"Verdict: agrees where the whole interval lies within {SIMILAR:g} nats (the margin) of what the rounding of "
        "the paper's two losses allows (in brackets), disagrees where all of it lies beyond, else undecided."
    )
    for method, line in lines.items():
        spans = ", ".join(
            f"{100 * t_quantile(degrees) * error:.2f} % with {counted(degrees, 'degree')} of freedom"
            for error, degrees in line.errors(model(JUDGED[0]).params_by_rule)
        )
        if spans:
            yield f"{short_method(method)} at {JUDGED[0]}, ± from sizes and from seeds: {spans}."


def _percent(log_ratio: float) -> str:
    return f"{100 * math.expm1(log_ratio):.2f}"


def _figure(gaps: dict[str, tuple[Gap, ...]], lines: dict[str, GapLine]) -> Any:
    """Filled marks are ours, a mark for each scale, hollow ones the paper's; dashed is our line with its interval."""
    from matplotlib import rc_context

    from analysis.figures.style import SCALING, STYLE, legend_below, page_wide

    with rc_context(STYLE):
        figure = page_wide(3.4)
        panel = figure.subplots()
        for colour, method in zip(SCALING[1:], COMPARED, strict=True):
            _series(panel, colour, method, gaps[method], lines.get(method))
        panel.axhline(0, color="0.4", linewidth=0.8)
        panel.set(xscale="log", xlabel="N = 12 d² L + V d", ylabel=COLUMN, ylim=_heights(gaps))
        legend_below(figure, panel, len(COMPARED))
    return figure


def _heights(gaps: dict[str, tuple[Gap, ...]]) -> tuple[float, float]:
    """The range of the axis: room for every point of ours, whatever the interval of a line is."""
    ours = [100 * math.expm1(gap.mean) for each in gaps.values() for gap in each]
    return min([-1.0, *ours]) - 1, max([2.0, *ours]) + 1


def _series(panel: Any, colour: str, method: str, gaps: Sequence[Gap], line: GapLine | None) -> None:
    label, printed = short_method(method), by_place(load_cells("table5"))
    sizes = [size for size in SIZES if printed[f"{size} | {method}", LOSS].value is not None]
    for scale, mark in zip(dict.fromkeys(gap.scale for gap in gaps), "os^", strict=False):
        at = [gap for gap in gaps if gap.scale == scale]
        heights, errors = [100 * math.expm1(gap.mean) for gap in at], [100 * (gap.spread or 0.0) for gap in at]
        counts = [gap.params for gap in at]
        panel.errorbar(counts, heights, errors, fmt=mark, color=colour, label=f"{label}, ours ({scale})")
    theirs = [printed_gap(method, size) for size in sizes]
    heights = [100 * math.expm1(mean) for mean, _, _ in theirs]
    slack = [[100 * (mean - low) for mean, low, _ in theirs], [100 * (high - mean) for mean, _, high in theirs]]
    counts = [model(size).params_by_rule for size in sizes]
    panel.errorbar(counts, heights, slack, fmt="D", color=colour, mfc="white", label=f"{label}, paper (rounding)")
    if line is None:
        return
    ends = math.log(line.gaps[0].params), math.log(model(JUDGED[-1]).params_by_rule)
    over = [math.exp(ends[0] + (ends[1] - ends[0]) * k / 60) for k in range(61)]
    panel.plot(over, [100 * math.expm1(line.at(n)) for n in over], "--", color=colour)
    widths = [width for n in over if (width := line.half_width(n)) is not None]
    if widths:
        pairs = list(zip(map(line.at, over), widths, strict=True))
        low, high = ([100 * math.expm1(mean + sign * width) for mean, width in pairs] for sign in (-1, 1))
        panel.fill_between(over, low, high, color=colour, alpha=0.12, linewidth=0)
