"""The cost of the whole paper: shared runs once, and the sums by hand."""

import json
import math

from analysis.paper.costs import costs, costs_json, costs_text
from experiments.registry import trained
from repro.network.account import run_bytes
from repro.spec.experiment import expand, unique


def test_the_whole_counts_each_run_once():
    *items, whole = costs("paper")
    runs = unique(run for e in trained("all") for run in expand(e, "paper"))
    assert whole.runs == len(runs) == sum(item.runs - item.shared for item in items)
    assert whole.tokens == sum(run.config.tokens for run in runs)
    assert whole.bytes_sent == sum(run_bytes(run.config) * run.config.replicas for run in runs)


def test_chip_hours_are_flops_over_sixty_percent_of_the_chip():
    (table3,) = [cost for cost in costs("paper") if cost.item == "table3"]
    assert math.isclose(table3.chip_hours, table3.flops / (0.6 * 197e12) / 3600)
    assert table3.runs == 1  # three rows read one run


def test_text_and_json_name_every_item():
    found = costs("paper")
    assert all(cost.item in costs_text("paper") for cost in found)
    assert [item["item"] for item in json.loads(costs_json("paper"))["items"]] == [cost.item for cost in found]


def test_tables_come_first_and_figures_by_number():
    order = [cost.item for cost in costs("mini")]
    assert order[0] == "table1" and order.index("figure8") < order.index("figure10") and order[-1] == "all"
