"""Miniatures: what of a run at paper scale they follow, and what they don't."""

from dataclasses import replace

import pytest

from experiments.registry import load
from repro.spec.experiment import vary
from repro.spec.scales import at_scale

ROWS = {name: load(name).rows for name in ("table5", "table7", "figure12")}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("scale", ["mini", "smoke"])
def test_a_miniature_takes_no_batch_steps_or_rate_of_paper_scale(name: str, scale: str):
    """A run of as many tokens in other steps, at another rate and warm-up, has the same miniature."""
    for row in ROWS[name]:
        paper = row.config
        moved = replace(paper, batch=4 * paper.batch, steps=paper.steps // 4)
        moved = vary(moved, inner__learning_rate=0.5, inner__warmup_steps=7, inner__weight_decay=0.1)
        assert at_scale(moved, scale, "45k") == at_scale(paper, scale, "45k") is not None
