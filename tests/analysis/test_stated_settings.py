"""What the specs take from the paper's text, held to its words: not assumptions, but what it states."""

import re

import pytest
from paper_text import needs_paper, passage

from analysis.paper.published import by_place, load_cells
from experiments.registry import load
from experiments.streaming.base import ABLATED, DP
from repro.spec.config import RunConfig
from repro.spec.experiment import PlannedRun, expand

pytestmark = needs_paper
MAIN = ("table1", "table5")  # the main runs: on Dolma and C4


def number(place: str, words: str) -> float:
    """The one number that stands for (…) in these words, at its place of the text."""
    (text,) = re.findall(words, passage(place))
    return float(text.replace(",", ""))


def planned(name: str) -> tuple[PlannedRun, ...]:
    """The runs of a spec as published."""
    return expand(load(name), "paper")


def configs(name: str) -> list[RunConfig]:
    return [run.config for run in planned(name)]


@pytest.mark.parametrize("name", MAIN)
def test_z_loss(name: str):
    """Section 3.2: a factor of 1e-4."""
    factor = number("section 3.2", r"a Z-loss .* with a factor of \$([\d.e-]+)\$")
    assert {config.model.z_loss for config in configs(name)} == {factor} == {1e-4}


def test_sequence_lengths():
    """1,024 on C4, 2,048 on Dolma."""
    c4 = number("section 3.2", r"from 35 million to 4 billion parameters, all with a sequence length of \$([\d,]+)\$")
    dolma = number("section 3.2.2", r"using a sequence length of \$([\d,]+)\$")
    assert {config.model.seq_len for config in configs("table5")} == {c4} == {1_024}
    assert {config.model.seq_len for config in configs("table1")} == {dolma} == {2_048}


@pytest.mark.parametrize("name", MAIN)
def test_vocabulary(name: str):
    """Table 2: 32,000 at each scale."""
    words = r"For all model scale, the vocabulary size is \$([\d,]+)\$"
    assert {config.model.vocab for config in configs(name)} == {number("Table 2, caption", words)} == {32_000}


def test_overlap_of_the_main_runs():
    """Section 3.3.2: τ = 1."""
    delay = number("section 3.3.2", r"In our main experiments, we used (\d+) step for simplicity")
    ours = [run.config for name in MAIN for run in planned(name) if "overlapped" in run.paper_row]
    ours += [run.config for run in planned("table1") if DP not in run.paper_row]
    assert {config.sync and config.sync.delays for config in ours} == {(delay,)} == {(1,)}


@pytest.mark.parametrize("name", MAIN)
def test_replicas_of_the_main_runs(name: str):
    """Section 3.2: M = 2 wherever there are replicas."""
    replicas = number("section 3.2", r"We use (\d+) DiLoCo replicas")
    assert {c.replicas for c in configs(name) if c.sync} == {replicas} == {2}


def test_size_and_budget_of_the_ablations():
    """Section 3.3: 500M with 11 billion tokens, that of Table 2; ours are within a tenth of it."""
    section = "section 3.3"
    size = number(section, r"on a model of size (\d+) million parameters")
    tokens = number(section, r"a token budget of (\d+) billions") * 1e9
    assert ABLATED == f"{size:.0f}M" == "500M"
    assert tokens == by_place(load_cells("table2"))[ABLATED, "Token budget"].value == 11e9
    for name in ("figure8", "figure11", "figure13"):
        for config in configs(name):
            assert config.model.size == ABLATED and config.tokens == pytest.approx(tokens, rel=0.1), name
