"""A table of trained runs written out: the columns of ours and the paper's, and CSV lines. It always says its scale."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from analysis.laws.powers import Interval
from analysis.paper.fits import Line
from analysis.paper.published import Published, verdict
from analysis.paper.simulated import Account
from analysis.render import Document, Grid, Notes
from analysis.tables import score_layout, similarity
from analysis.tables.contents import Table
from analysis.tables.notes import closing, lead, legend
from analysis.tables.rows import FLOPS, LABELS, LOSS, TableRow, heads, score_columns, short_method
from repro.evaluation.tasks import METRICS, TABLE_METRIC
from repro.words import short as rounded

COLUMNS = ("row", "column", "ours", "spread", "n", "paper", "tolerance", "verdict", "runs", "metric_version")
NOTHING = "–"
SHORT_HEADS = {LOSS: "Eval\nLoss", "HellaSwag": "\nHSwag", "Piqa": "\nPiqa", "Arc Easy": "\nArcE"}


def document(
    table: Table, picture: Path | None = None, judgements: Sequence[Grid] = (), terminal: bool = False
) -> Document:
    """The whole account, `judgements` on its runs included; `terminal` has the same rows in columns that fit."""
    title = f"{table.experiment.title} ({table.experiment.place})"
    grid = _terminal_grid(table) if terminal else _grid(table)
    sections: list[Grid | Notes] = [grid, Notes("", tuple(legend(table)))]
    if table.accounts:
        sections.append(_accounts(table.accounts))
    sections += score_layout.score_grids(table, (TABLE_METRIC,) if terminal else METRICS)
    sections += similarity.sections(table)
    sections += judgements
    if any(slope.ours or slope.paper for slope in table.slopes):
        sections.append(_slopes(table))
    name = "" if table.scale == "paper" else f", at scale {table.scale}"
    return Document(title + name, tuple(lead(table)), (*sections, *closing(table)), picture)


def csv_rows(table: Table) -> tuple[tuple[str, ...], ...]:
    """Lines under `COLUMNS`: every printed cell once, in printed order, beside our run of it or of its miniature;
    where nothing is printed, our rows.
    """
    known = ((result.run.run_id, result.metric_version) for result in table.results)
    versions = {run_id: version for run_id, version in known if version is not None}

    def versioned(line: tuple[str, ...]) -> tuple[str, ...]:
        return (*line, " ".join(map(str, sorted({versions[run_id] for run_id in line[-1].split()}))))

    return tuple(versioned(line) for line in _lines(table))


def _lines(table: Table) -> tuple[tuple[str, ...], ...]:
    if not table.cells:
        own = (line for row in table.rows for line in _own_lines(row, table.experiment.scored))
        return (*own, *similarity.csv_lines(table))
    rows = {row.paper_row: row for row in table.rows}
    first = {row.paper_row.split(LABELS)[0]: row for row in reversed(table.rows)}
    accounts = {(account.row, account.column): account for account in table.accounts}
    lines = []
    for cell in table.cells:
        if (cell.row, cell.column) in accounts:
            lines.append(_account_line(accounts[cell.row, cell.column]))
        elif cell.column == FLOPS:
            lines.append(_flops_line(first[cell.row], cell, table.scale))
        elif cell.column == LOSS:
            lines.append(_loss_line(rows[cell.row]))
        else:
            lines.append(score_layout.csv_line(rows[cell.row], cell.column))
    return tuple(lines)


def _own_lines(row: TableRow, scored: bool) -> Iterator[tuple[str, ...]]:
    yield _loss_line(row)
    for column in score_columns((row,)) if scored else ():
        if row.score(column, TABLE_METRIC) is not None:
            yield score_layout.csv_line(row, column)


def _loss_line(row: TableRow) -> tuple[str, ...]:
    paper = row.printed[LOSS].text if LOSS in row.printed else ""
    numbers = (_full(row.mean), _full(row.spread), str(len(row.losses)), paper, _full(row.tolerance))
    return (row.name, LOSS, *numbers, row.verdict, " ".join(row.run_ids))


def _account_line(account: Account) -> tuple[str, ...]:
    """Counted at paper scale: no run, no spread, no tolerance."""
    ours = _full(account.ours)
    return (account.row, account.column, ours, "", "", account.paper.text, "0", account.verdict, "")


def _flops_line(row: TableRow, cell: Published, scale: str) -> tuple[str, ...]:
    """FLOPs follow from the config, so they are judged with or without a run, at paper scale alone."""
    if row.flops is None:
        return (row.point, FLOPS, "", "", "0", cell.text, "", "not run", "")
    at_paper = scale == "paper"
    said = verdict(cell, row.flops, 0.0, scale) if at_paper else f"{scale}: no paper verdict"
    tolerance = "0" if at_paper else ""
    runs = " ".join(row.run_ids)
    return (row.point, FLOPS, _full(row.flops), "", str(len(row.losses)), cell.text, tolerance, said, runs)


def _grid(table: Table) -> Grid:
    columns, names = score_columns(table.rows), heads(table.rows)
    sized = table.rows[0].sized
    head = (*names, _budget_head(sized), LOSS, "±", "n")
    if not table.cells:
        return _own_grid(table, head, len(names))
    paper = (*(("Paper: size",) if sized else ()), f"Paper: {LOSS}", *(f"Paper: {score}" for score in columns))
    rows = tuple(
        (
            *(*row.cells, _budget(row), *_loss(row)),
            *(score_layout.score_cell(row, column) for column in columns),
            *_printed(row, columns),
            row.verdict,
        )
        for row in table.rows
    )
    return Grid(_heading(table), (*head, *columns, *paper, "Verdict"), rows, left=len(names), last_left=True)


def _own_grid(table: Table, head: tuple[str, ...], left: int) -> Grid:
    """Rows of a figure; beside them, where a table of the paper prints the same run's loss, that loss."""
    if not any(LOSS in row.printed for row in table.rows):
        rows = tuple((*row.cells, _budget(row), *_loss(row), row.state) for row in table.rows)
        return Grid(_heading(table), (*head, "State"), rows, left=left, last_left=True)
    rows = tuple(
        (*row.cells, _budget(row), *_loss(row), row.printed[LOSS].text if LOSS in row.printed else "", row.verdict)
        for row in table.rows
    )
    return Grid(_heading(table), (*head, f"Paper: {LOSS}", "Verdict"), rows, left=left, last_left=True)


def _terminal_grid(table: Table) -> Grid:
    if not table.cells:
        return _grid(table)
    columns, names = score_columns(table.rows), heads(table.rows)
    sized = table.rows[0].sized
    ours = (*names, _budget_head(sized), SHORT_HEADS[LOSS], "±", "n", *(SHORT_HEADS[column] for column in columns))
    paper = (*(("size",) if sized else ()), *(SHORT_HEADS[c].split("\n")[1] for c in (LOSS, *columns)))
    rows = tuple(
        (
            *(*row.cells, _budget(row), *_loss(row)),
            *(score_layout.short_cell(row, column) for column in columns),
            *_printed(row, columns),
            row.verdict.replace("no paper verdict", "no verdict"),  # for the width; the heading says whose
        )
        for row in table.rows
    )
    head = (*ours, *(f"paper\n{name}" for name in paper), "verdict")
    return Grid(_heading(table), head, rows, left=len(names), last_left=True)


def _loss(row: TableRow) -> tuple[str, str, str]:
    mean = NOTHING if row.mean is None else f"{row.mean:.3f}"
    spread = NOTHING if row.spread is None else f"{row.spread:.3f}"
    return mean, spread, str(len(row.losses))


def _budget_head(sized: bool) -> str:
    return "FLOPs" if sized else "Tokens"


def _budget(row: TableRow) -> str:
    """FLOPs where sizes are compared, else the tokens that our run sees."""
    if row.flops is None or row.tokens is None:
        return NOTHING
    return f"{row.flops:.2g}".replace("e+", "e") if row.sized else rounded(row.tokens)


def _printed(row: TableRow, columns: tuple[str, ...]) -> tuple[str, ...]:
    size = (row.paper_row.split(LABELS)[0],) if row.sized else ()
    return (*size, *(row.printed[column].text if column in row.printed else "" for column in (LOSS, *columns)))


def _heading(table: Table) -> str:
    if table.scale == "paper":
        return "Ours beside the paper's" if table.cells else "Ours"
    if table.cells:
        return f"Ours ({table.scale}) beside the paper's row of the same method, at another size: never compared"
    return f"Ours ({table.scale})"


def _accounts(accounts: tuple[Account, ...]) -> Grid:
    head = ("Row", "Column", "Ours", "Paper", "Verdict", "In true units")
    rows = tuple((a.row, a.column, f"{a.ours:.4g}", a.paper.text, a.verdict, a.true) for a in accounts)
    title = "Hours and bytes at paper scale: accounts, which need no run (`make accounts` says how they are counted)"
    return Grid(title, head, rows, left=2)


def _slopes(table: Table) -> Grid:
    head = (
        "Method",
        f"Ours ({table.scale})",
        "Ours: power law",
        "Paper: its cells",
        "Paper: printed",
        "Paper: power law",
    )
    rows = tuple(
        (
            short_method(slope.method_run),
            _slope(slope.ours),
            _slope(slope.ours_power, slope.intervals[0]),
            _slope(slope.paper),
            slope.printed.text if slope.printed else NOTHING,
            _slope(slope.paper_power, slope.intervals[1]),
        )
        for slope in table.slopes
    )
    title = "Slope of the loss on ln FLOPs, and exponent of a power law (±: half of 95 % of a bootstrap over sizes)"
    return Grid(title, head, rows)


def _slope(line: Line | None, interval: Interval | None = None) -> str:
    """The slope, and half the interval that it has over sizes, where there is one."""
    if line is None:
        return NOTHING
    return f"{line.slope:.5f}" + ("" if interval is None else f" ± {(interval[1] - interval[0]) / 2:.4f}")


def _full(value: float | None) -> str:
    return "" if value is None else f"{value:.8g}"
