"""Plans against closed forms, the paper's columns and a walk through the steps."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.paper.plan import Plan, plan, plan_json, plan_text
from experiments.streaming import table2, table4, table5
from repro.errors import UserError
from repro.words import short

ROOT = Path(__file__).resolve().parents[2]


def by_row(scale: str = "paper") -> dict[str, Plan]:
    return {entry.row: entry for entry in plan(table5.EXPERIMENT, scale)}


def test_the_26_runs_of_table_5():
    entries = by_row()
    assert len(entries) == 26
    sizes = {entry.size: short(entry.params) for entry in entries.values()}
    assert list(sizes.values()) == ["35.3M", "88.3M", "184M", "336M", "559M", "1.27B", "4.18B"]


def test_flops_print_as_published_but_where_named():
    off = {entry.size for entry in by_row().values() if not entry.flops_as_printed}
    assert off == {"100M", "500M"}
    assert by_row()["500M | Data-Parallel"].printed_flops == "4.7e19"
    text = plan_text(table5.EXPERIMENT, "paper")
    assert "500M: 3.8e+19 against the printed 4.7e19" in text
    assert "100M: 9.16e+17 against the printed 9.4e17, and 9.35e+17 before" in text  # 2 % fewer tokens than 20 N


def test_printed_numbers_stand_beside_at_paper_scale_alone():
    assert by_row()["100M | Data-Parallel"].printed_budget == "1.5B"
    assert all(e.printed_budget is None and e.printed_flops is None for e in by_row("mini").values())


def test_bytes_of_data_parallel_are_two_a_parameter_a_step():
    entry = by_row()["35M | Data-Parallel"]
    assert entry.bytes_sent == 2 * entry.true_params * entry.steps


def test_streaming_is_sent_and_ages_as_a_walk_through_the_steps_says():
    entry = by_row()["35M | Streaming DiLoCo with overlapped FP4 com., H=100"]
    d, f, v, s, h = 512, 2048, 32_000, 1024, 64
    layer = (6 * d + f) * d // 2 + f * d // 2 + (d + d + h + h) // 2 + (5 * d + f) + 4
    layer -= 2 * d * d // 2  # query, key, value, output are four of d×d: 4d² + f·d twice
    embed = (v + s + 1) * (d // 2 + 1)
    last_taken, sent = {}, 0
    for t in range(1, entry.steps + 1):
        for p, size in enumerate((3 * layer, 3 * layer, embed)):
            if t >= 100 and (t - 33 * p) % 100 == 0 and t + 1 <= entry.steps:
                last_taken[p], sent = t, sent + size
    assert entry.bytes_sent == sent
    assert entry.ages == tuple(entry.steps - last_taken[p] for p in range(3))


def test_json_holds_every_run_and_assumption():
    found = json.loads(plan_json(table5.EXPERIMENT, "mini", seeds=2))
    assert len(found["runs"]) == 24 and found["scale"] == "mini"
    assert {"key", "choice", "reason"} == set(found["assumptions"][0])


def test_every_run_is_a_line_of_the_text_and_assumptions_follow():
    text = plan_text(table5.EXPERIMENT, "mini")
    assert all(entry.run_id in text for entry in plan(table5.EXPERIMENT, "mini"))
    assert text.index("What the paper leaves open") > text.index("In all: 12 runs")


def test_table_2_stands_beside_its_printed_cells():
    lines = plan_text(table2.EXPERIMENT, "paper").splitlines()
    row = next(line.split() for line in lines if line.startswith("35M"))
    assert row == ["35M", "2,048", "6", "8", "512", "64", "35.3M", "35.8M", "708M", "2,048", "6", "8", "700M"]
    assert "Token budget*" not in plan_text(table2.EXPERIMENT, "mini")


def test_a_simulation_has_no_runs_to_plan():
    with pytest.raises(UserError, match="table4 is computed"):
        plan_text(table4.EXPERIMENT, "paper")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "text"), [(999, "999"), (999_499, "999k"), (999_500, "1.00M"), (35_258_368, "35.3M"), (184e6, "184M")]
)
def test_three_digits_and_a_unit(value: float, text: str):
    assert short(value) == text


def test_a_plan_imports_neither_jax_nor_pandas():
    code = (
        "import sys; from experiments.registry import load; from analysis.paper.plan import plan_text;"
        "plan_text(load('table5'), 'paper');"
        "print([m for m in ('jax', 'pandas', 'matplotlib', 'rich', 'tabulate') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.strip() == "[]"
