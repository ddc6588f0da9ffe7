"""The trainer on a link of a known rate takes the time that the simulator says, from compute and bare collectives."""

from pathlib import Path

import numpy as np
import pytest
import shaped_link

MBIT_PER_S = 15.0


@pytest.fixture(scope="module")
def bare() -> shaped_link.Bare:
    reason = shaped_link.missing()
    if reason:
        pytest.skip(reason)
    return shaped_link.gather_bare(MBIT_PER_S)


@pytest.mark.slow
@pytest.mark.compiles
def test_of_two_processes_the_second_sends_half_before_the_first_begins(bare: shaped_link.Bare) -> None:
    print(bare.report())
    assert bare.in_sequence == pytest.approx(shaped_link.IN_SEQUENCE, rel=0.05), bare.report()
    assert bare.first_share < 0.1, bare.report()  # acknowledgements only; 0.5 if both sent at once
    assert bare.second_share > 0.9, bare.report()  # the same the other way round


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.parametrize("method", shaped_link.CUTS)
def test_a_cycle_on_a_shaped_link_takes_the_simulated_time(
    method: str, bare: shaped_link.Bare, smoke_tokens: Path
) -> None:
    found = shaped_link.measure(method, bare, smoke_tokens.parents[1])
    print(found.report())
    assert abs(found.cycle_s - found.simulated_s) <= found.tolerance_s, found.report()
    assert abs(found.cycle_s - found.simulated_s) < abs(found.cycle_s - found.at_once_s), found.report()


def test_bare_all_gathers_are_timed_from_the_second_call_to_the_last_end() -> None:
    # By hand: the second process (at 1 s) sends from 1 to 3 s, the first from 2 to 4 s, 100 bytes each.
    first = {"calls": [(50, 0.0, 3.0), (100, 10.0, 13.0)], "samples": [(0, 0), (2, 0), (4, 100), (12, 100), (14, 200)]}
    second = {"calls": [(50, 1.0, 4.0), (100, 11.0, 14.5)], "samples": [(1, 0), (3, 100), (11, 100), (13, 200)]}
    found = shaped_link.timed(8.0, [first, second])
    assert found.seconds == {50: [3.0], 100: [3.5]}
    assert found.line.byte_s == pytest.approx(0.01) and found.line.bucket_s == pytest.approx(2.5)
    assert found.in_sequence == pytest.approx(0.01 * 1e6 * shaped_link.GOODPUT)
    assert (found.first_share, found.second_share) == pytest.approx((0.0, 1.0), abs=0.01)


@pytest.mark.parametrize("method", shaped_link.CUTS)
def test_the_simulated_cycle_is_compute_and_then_the_link(method: str) -> None:
    # By hand: blocking sends, ready when the backward ends and awaited before the next forward, add up.
    config = shaped_link.config_of(method)
    line = shaped_link.Line(byte_s=8e-7, bucket_s=-0.01, spread=0.0)
    cycle, payload = shaped_link.cycle_of(config)
    assert shaped_link.simulated(config, 3.2, line) == pytest.approx(3.2 + payload * 8e-7 - len(cycle.sends) * 0.01)
    model = shaped_link.MODEL
    d = model.width
    matrices = 4 * d * d + 2 * d * model.ffn_width
    norms = 2 * d + 2 * model.head_size
    assert payload == 4 * (model.layers * (matrices + norms) + (model.vocab + model.seq_len + 1) * d)


def test_the_tolerance_is_what_repetitions_differ_by() -> None:
    line = shaped_link.Line(byte_s=1e-6, bucket_s=0.0, spread=0.1)
    steady = shaped_link.Measured("diloco", 1.0, 1, (1.0,) * 5, (4.0,) * 5, 4.0, line)
    assert steady.tolerance_s == pytest.approx(0.1 * 3.0) and steady.at_once_s == pytest.approx(1.0 + 2.0)
    uneven = shaped_link.Measured("diloco", 1.0, 1, (1.0,) * 5, tuple(np.linspace(3.0, 5.0, 5)), 4.0, line)
    assert uneven.tolerance_s == pytest.approx(0.3 + 1.0)
