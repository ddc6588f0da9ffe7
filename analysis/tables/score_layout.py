"""How downstream scores are shown: cells of a table, a table of their own for each metric, differences, legend."""

from collections.abc import Iterator

from analysis.paper.published import verdict
from analysis.render import Grid
from analysis.tables.contents import Table
from analysis.tables.rows import TableRow, heads, score_columns
from analysis.tables.score_statistics import Score, difference
from experiments.streaming.base import DP
from repro.evaluation.tasks import BOS_RULE, METRICS, TABLE_METRIC, TASKS

NOT_EVALUATED = "not evaluated"
NOTHING = "–"
WORDS = {"HellaSwag": "HellaSwag (HSwag)", "Piqa": "Piqa", "Arc Easy": "Arc Easy (ArcE)"}
CHANCE = {task.column: task.chance for task in TASKS.values() if task.column}


def score_cell(row: TableRow, column: str) -> str:
    """`26.9 ± 1.4` in percent; what is missing otherwise."""
    score = row.score(column, TABLE_METRIC)
    if score is None:
        return NOT_EVALUATED if row.losses else NOTHING
    return _with_error(score.mean, score.standard_error)


def short_cell(row: TableRow, column: str) -> str:
    """`26.9`, for a terminal: the errors stand in a table below."""
    score = row.score(column, TABLE_METRIC)
    if score is None:
        return ("n/e" if row.losses else NOTHING) if row.results else NOTHING
    return f"{100 * score.mean:.1f}"


def csv_line(row: TableRow, column: str) -> tuple[str, ...]:
    """A line under the columns of `analysis.tables.layout`; percent, as printed."""
    printed = row.printed[column].text if column in row.printed else ""
    score = row.score(column, TABLE_METRIC)
    if score is None:
        return (row.name, column, "", "", "0", printed, "", NOT_EVALUATED if row.losses else row.state, "")
    spread = "" if score.spread is None else f"{100 * score.spread:.8g}"
    tolerance = _tolerance(row, score)
    numbers = (f"{100 * score.mean:.8g}", spread, str(len(score.by_seed)), printed, tolerance and f"{tolerance:.8g}")
    said = f"{score_verdict(row, column)} ({_named(score)}, standard error {_percent(score.standard_error)})"
    return (row.name, column, *map(str, numbers), said, " ".join(row.evaluated_ids))


def score_verdict(row: TableRow, column: str) -> str:
    """The verdict on a score: only whole sets at paper scale are held against a printed cell."""
    score = row.score(column, TABLE_METRIC)
    if score is None:
        return NOT_EVALUATED
    scale = row.results[0].run.config.scale
    if scale != "paper":
        return f"{scale}: no paper verdict"
    if score.partial:
        return "partial: no verdict"
    if column not in row.printed:
        return "not published"
    return verdict(row.printed[column], 100 * score.mean, float(_tolerance(row, score) or 0.0), scale)


def _tolerance(row: TableRow, score: Score) -> float | str:
    """2 √2 standard errors, in percent: the paper's run and ours each answer questions drawn like these."""
    if score.partial or row.results[0].run.config.scale != "paper" or score.standard_error is None:
        return ""
    return 100 * 2 * 2**0.5 * score.standard_error


def score_grids(table: Table, metrics: tuple[str, ...] = METRICS) -> Iterator[Grid]:
    """For each metric the scores with their errors, and the differences from Data-Parallel where it is a row."""
    columns = score_columns(table.rows) if table.experiment.scored else ()
    rows = [row for row in table.rows if any(row.score(column, TABLE_METRIC) for column in columns)]
    beside = any(row.method == DP for row in rows)
    for metric in metrics if rows else ():
        differences = tuple(f"{column}:\ndifference" for column in columns) if beside else ()
        lines = tuple(_line(row, rows, metric, columns)[: len(row.cells) + len(columns) * (1 + beside)] for row in rows)
        title = f"Downstream scores ({table.scale}): {metric}, in percent, ± standard error"
        yield Grid(title, (*heads(rows), *columns, *differences), lines, left=len(heads(rows)))


def _line(row: TableRow, rows: list[TableRow], metric: str, columns: tuple[str, ...]) -> tuple[str, ...]:
    base = next((r for r in rows if r.point == row.point and r.method == DP), None)
    scores = {column: row.score(column, metric) for column in columns}
    cells = [NOTHING if s is None else _with_error(s.mean, s.standard_error) for s in scores.values()]
    return (*row.cells, *cells, *(_difference(s, base, column) for column, s in scores.items()))


def _difference(score: Score | None, base: TableRow | None, column: str) -> str:
    """`+0.8 ± 1.2 (inside)`: paired with Data-Parallel at the same size."""
    other = base.score(column, score.metric) if base and score else None
    if score is None or other is None or score is other:
        return NOTHING
    gap = difference(score, other)
    return f"{_with_error(gap.mean, gap.standard_error, '+')} {'inside' if gap.inside else 'beyond'}"


def score_legend(table: Table) -> Iterator[str]:
    """Metric, split, count, prompts, chance and what the differences say."""
    if not table.experiment.scored:
        return  # what a scored experiment shares runs with would show some
    columns = score_columns(table.rows)
    named = {
        c: first for c in columns if (first := next((s for r in table.rows if (s := r.score(c, TABLE_METRIC))), None))
    }
    words = ", ".join(WORDS[column] for column in columns)
    if not named:
        if table.cells:
            yield f"{words}: not evaluated on our runs yet (`python -m repro evaluate`)."
        return
    parts = [f"{c}: {_named(s)}, chance {100 * CHANCE[c]:.0f}" for c, s in named.items()]
    yield f"{words}: {TABLE_METRIC} in percent. {'; '.join(parts)}."
    yield (
        f"The paper does not say whether its scores are acc or acc_norm; ours are {TABLE_METRIC}, an assumption. "
        f"Zero-shot, lm-eval's prompts ({', '.join(s.fact('prompt') for s in named.values())}). BOS: {BOS_RULE}."
    )
    if any(row.method == DP for row in table.rows):
        yield (
            "A difference is from Data-Parallel at the same point, over the same questions, ± its paired standard "
            "error, of the seeds too where there are several; inside: its 95 % t interval holds 0, so that the two "
            "methods can't be told apart by it. Of equal methods, one in twenty differences is beyond."
        )
    if table.scale != "paper":
        yield f"Scores at scale {table.scale} are not compared with the paper's."
    elif not any(s.partial for s in named.values()):
        yield "Scores: tolerance beyond the printed rounding 2 √2 standard errors."


def _named(score: Score) -> str:
    return f"{score.metric}, {score.asked}"


def _with_error(share: float, error: float | None, sign: str = "") -> str:
    return f"{100 * share:{sign}.1f}" + ("" if error is None else f" ± {_percent(error)}")


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.1f}"
