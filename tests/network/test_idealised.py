"""The idealised wall-clock of arXiv 2503.09799, appendix A: by hand, at its limits, and beside the simulator."""

from dataclasses import replace

import pytest

from analysis.laws.wallclock import NETWORKS, disagreement, job_of, simulated_s, timed_points, wire
from repro.errors import UserError
from repro.network.idealised import IdealisedRun, Wire, all_reduce_s, communication_s, wall_clock_s

FAST, SLOW = Wire("fast", 400, 1e-4), Wire("slow", 10, 1e-2)
JOB = IdealisedRun(params=1e9, tokens=2e10, batch_tokens=2e6, chips=100, flops_per_chip=3e14, replicas=2, every=30)


def test_by_hand():
    """One billion 16-bit numbers over 100 chips: 31.68 Gbit in and out, 3.168 s at 10 Gbit/s, and the latency."""
    assert all_reduce_s(1e9, 100, SLOW) == pytest.approx(3.168 + 0.01)
    assert JOB.steps == 10_000 and JOB.compute_s == pytest.approx(6e9 * 2e10 / 3e16)
    within = 2 * 16e9 * (1 - 2 / 100) / 400e9 + 1e-4
    assert communication_s(JOB, FAST, SLOW) == pytest.approx(10_000 * within + 10_000 / 30 * 3.178)
    assert communication_s(replace(JOB, replicas=0), FAST, SLOW) == pytest.approx(10_000 * 3.178)
    assert communication_s(replace(JOB, replicas=1), FAST, SLOW) == pytest.approx(10_000 * 3.178 * 31 / 30)
    assert wall_clock_s(JOB, FAST, SLOW) == pytest.approx(JOB.compute_s + communication_s(JOB, FAST, SLOW))


def test_one_chip_sends_nothing_and_a_wide_wire_leaves_compute():
    assert all_reduce_s(1e9, 1, replace(SLOW, latency_s=0)) == 0
    endless = Wire("endless", 1e12, 0)
    assert wall_clock_s(JOB, endless, endless) == pytest.approx(JOB.compute_s)


def test_twice_the_batch_on_twice_the_chips_halves_both():
    """But for 1 − 1/R."""
    double = replace(JOB, batch_tokens=4e6, chips=200)
    assert double.compute_s == JOB.compute_s / 2
    assert communication_s(double, FAST, SLOW) == pytest.approx(communication_s(JOB, FAST, SLOW) / 2, rel=0.01)


def test_fewer_chips_than_replicas_are_refused():
    with pytest.raises(UserError, match="3 chips for 4 replicas"):
        replace(JOB, chips=3, replicas=4)


def test_the_paper_has_three_networks():
    assert [(wire(n).gbit_per_s, wire(n).latency_s) for n in NETWORKS] == [(10, 1e-2), (100, 1e-3), (400, 1e-4)]


def test_the_simulator_overlaps_what_the_closed_form_adds():
    points = timed_points()
    assert all(1 <= p.ratio < 1.5 for p in points) and len(points) == 63
    by_network = {n: max(p.ratio for p in points if p.network == n and p.replicas == 0) for n in NETWORKS}
    assert by_network["low"] < by_network["medium"] < by_network["high"]
    assert f"{max(p.ratio for p in points):.2f} at 10B" in disagreement(points)[1]


def test_without_exchange_both_are_compute():
    job, endless = replace(job_of("180M", 0), replicas=0), Wire("endless", 1e12, 0)
    assert simulated_s(job, 12, endless, endless) == pytest.approx(job.compute_s, rel=1e-6)


def test_diloco_is_faster_on_every_network():
    """As Figure 6 draws: M = 2 before M = 1 before Data-Parallel, most on the slowest."""
    for name in NETWORKS:
        at = {p.replicas: p.closed_s for p in timed_points() if (p.size, p.network) == ("2.4B", name)}
        assert at[2] < at[1] < at[0]
