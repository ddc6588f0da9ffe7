"""Scores over seeds, paired differences, and what a table says of them."""

import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from fabricated import SHARES, evaluation, finish_all, keep, planned, summary

from analysis.paper import published
from analysis.render import WIDTH, terminal_text
from analysis.tables.contents import Table, table5
from analysis.tables.layout import COLUMNS, csv_rows, document
from analysis.tables.rows import TableRow
from analysis.tables.score_layout import score_verdict
from analysis.tables.score_statistics import Score, difference, gather_scores
from experiments.streaming.base import DP
from experiments.streaming.table5 import EXPERIMENT, STREAM_30
from repro.errors import UserError
from repro.evaluation.tasks import standard_error
from repro.results.read import Result, collect


def answers(*right: int) -> dict[str, list[bool]]:
    """acc from the digits, acc_norm all wrong."""
    return {"acc": [bool(r) for r in right], "acc_norm": [False] * len(right)}


def score(*evaluations: dict[str, Any], metric: str = "acc") -> Score:
    found = gather_scores(evaluations, "HellaSwag", metric)
    assert found is not None
    return found


def test_one_seed_has_the_standard_error_of_its_questions():
    one = score(evaluation("r", answers(1, 1, 0, 1, 0, 0, 1, 0, 1, 1)))
    assert one.mean == 0.6 and one.spread is None
    assert one.standard_error == pytest.approx(standard_error(0.6, 10))
    assert score(evaluation("r", answers(1)), metric="acc_norm").mean == 0
    assert gather_scores([evaluation("r", answers(1))], "Piqa", "acc") is None


def test_seeds_average_but_do_not_draw_more_questions():
    """Equal answers of three seeds say no more about other questions than those of one."""
    same = [evaluation(f"r{seed}", answers(1, 0, 1, 1)) for seed in range(3)]
    assert score(*same).standard_error == pytest.approx(score(same[0]).standard_error)
    unlike = score(evaluation("a", answers(1, 0, 1, 1)), evaluation("b", answers(0, 0, 1, 1)))
    assert unlike.answers == (0.5, 0.0, 1.0, 1.0) and unlike.mean == 0.625
    assert unlike.spread == pytest.approx(statistics.stdev([0.75, 0.5]))


def test_unlike_scores_are_never_put_together():
    one = evaluation("one", answers(1, 0))
    for facts in ({"questions_digest": "1"}, {"split": "test"}, {"limit": 2}, {"prompt": "hellaswag 2.0"}, {"of": 9}):
        with pytest.raises(UserError, match="asked in different ways of one, two"):
            score(one, evaluation("two", answers(1, 0), **facts))
        with pytest.raises(ValueError, match="not to be compared"):
            difference(score(one), score(evaluation("two", answers(1, 0), **facts)))
    with pytest.raises(UserError, match="different ways"):
        score(one, evaluation("two", answers(1, 0)) | {"parameters": "first"})
    with pytest.raises(ValueError, match=r"acc on .* compared with acc_norm"):
        difference(score(one), score(one, metric="acc_norm"))


def test_a_difference_is_paired_over_questions():
    """Both get half right; on the same questions nothing differs, on others the error is that of the pairs."""
    one, other = answers(1, 1, 0, 0), answers(0, 0, 1, 1)
    same = difference(score(evaluation("a", one)), score(evaluation("b", one)))
    assert (same.mean, same.standard_error, same.inside) == (0, 0, True)
    swapped = difference(score(evaluation("a", one)), score(evaluation("b", other)))
    assert swapped.mean == 0 and swapped.standard_error == pytest.approx(math.sqrt(4 / 3 / 4))
    ahead = difference(score(evaluation("a", answers(*[1] * 9, 0))), score(evaluation("b", answers(*[0] * 10))))
    assert ahead.mean == pytest.approx(0.9) and ahead.standard_error == pytest.approx(0.1) and not ahead.inside


def tabled(root: Path, scale: str, shares: dict[str, float], seeds: int = 1) -> Table:
    runs = finish_all(root, scale, seeds)
    for run in runs:
        ahead = 0.2 if run.paper_row.endswith(STREAM_30) else 0.0
        keep(run, root, {column: share + ahead for column, share in shares.items()})
    return table5(collect(runs, root), published.load_cells("table5"), EXPERIMENT)


def line(table: Table, row: str, column: str) -> dict[str, str]:
    rows = [dict(zip(COLUMNS, cells, strict=True)) for cells in csv_rows(table)]
    return next(found for found in rows if (found["row"], found["column"]) == (row, column))


def test_a_miniature_shows_metric_part_and_error_and_is_held_against_nothing(tmp_path: Path):
    table = tabled(tmp_path, "mini", SHARES, seeds=2)
    size = table.rows[0].point
    found = line(table, f"{size} | {DP}", "HellaSwag")
    assert (found["ours"], found["n"], found["tolerance"], found["spread"]) == ("24.7", "2", "", "0")
    assert found["verdict"] == (
        "mini: no paper verdict (acc_norm, 1,000 of 10,042 validation questions, standard error 1.4)"
    )
    shown = terminal_text(document(table, terminal=True))
    assert max(map(len, shown.splitlines())) <= WIDTH
    shown = " ".join(shown.split())
    assert "not compared with the paper's" in shown and "1,000 of 10,042 validation questions" in shown
    assert "acc, in percent" not in shown and "acc_norm, in percent" in shown
    whole = terminal_text(document(table))
    assert "(mini): acc, in percent" in whole and "+20.0 ± 1.3 beyond" in whole and "+0.0 ± 0.0 inside" in whole


def test_whole_sets_at_paper_scale_are_judged_both_ways(tmp_path: Path):
    table = tabled(tmp_path, "paper", SHARES)
    assert line(table, f"35M | {DP}", "HellaSwag")["verdict"].startswith("reproduced (acc_norm, 10,042 validation")
    assert line(table, f"35M | {DP}", "Arc Easy")["verdict"].startswith("reproduced (acc_norm, 570 validation")
    assert line(table, f"35M | {STREAM_30}", "HellaSwag")["verdict"].startswith("deviates better")
    assert line(table, f"1B | {DP}", "Piqa")["verdict"].startswith("deviates worse")
    expected = 100 * 2 * math.sqrt(2) * math.sqrt(0.2462 * 0.7538 / 10_041)
    assert float(line(table, f"35M | {DP}", "HellaSwag")["tolerance"]) == pytest.approx(expected, rel=1e-3)


def test_what_is_partly_asked_gets_no_verdict_at_paper_scale():
    run = planned("paper")[0]
    result = Result(run, summary(run.config, 3.5), evaluation=evaluation(run.run_id, answers(1, 0), of=9))
    printed = {c.column: c for c in published.load_cells("table5") if c.row == run.paper_row}
    row = TableRow(run.labels, run.paper_row, (result,), printed)
    assert score_verdict(row, "HellaSwag") == "partial: no verdict" and score_verdict(row, "Piqa") == "not evaluated"
