"""The trainer on a link of a known rate takes the time that the simulator says, with one fitted factor."""

from pathlib import Path

import pytest
import shaped_link

MBIT_PER_S, TOLERANCE = 5.0, 0.15


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.parametrize("method", shaped_link.CUTS)
def test_a_cycle_on_a_shaped_link_takes_the_simulated_time(method: str, smoke_tokens: Path) -> None:
    reason = shaped_link.missing()
    if reason:
        pytest.skip(reason)
    found = shaped_link.measure(method, MBIT_PER_S, smoke_tokens.parents[1])
    print(found.line())
    assert found.cycle_s == pytest.approx(found.simulated_s, rel=TOLERANCE), found.line()
    assert found.transfer_s == pytest.approx(found.expected_transfer_s, rel=TOLERANCE), found.line()
    assert found.transfer_s > found.bare_s  # else the link would hardly show


@pytest.mark.parametrize("method", shaped_link.CUTS)
def test_the_simulated_cycle_is_compute_and_then_the_link(method: str) -> None:
    # By hand: blocking sends, ready when the backward ends and awaited before the next forward, add up.
    cycle, payload = shaped_link.cycle_of(shaped_link.config_of(method))
    link = shaped_link.Link.of(0.01)
    seconds = float(shaped_link.cycle_time(cycle, (0.9,), link))
    assert seconds == pytest.approx(shaped_link.EVERY * 0.9 * 8 / 9 + payload * 8 / 1e7)
    model = shaped_link.MODEL
    d = model.width
    matrices = 4 * d * d + 2 * d * model.ffn_width
    norms = 2 * d + 2 * model.head_size
    assert payload == 4 * (model.layers * (matrices + norms) + (model.vocab + model.seq_len + 1) * d)
