"""The simulator against closed forms, an independent event simulation, and Table 4's published cells."""

import math
from dataclasses import replace
from fractions import Fraction

import des_oracle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.paper.published import by_place, load_cells
from experiments.streaming import figure4
from experiments.streaming.base import SIZES, data_parallel, diloco, streaming
from experiments.streaming.table4 import EXPERIMENT as TABLE4
from repro.errors import UserError
from repro.network.account import run_bytes
from repro.network.methods import METHODS, Method, Network, method
from repro.network.scenario import (
    PAPER_GRID,
    fitted_curve,
    grid_reading,
    least_bandwidth,
    least_delay,
    paper_curve,
    paper_cycle,
    printed_reading,
    run_cycle,
    sync_of,
    trainer_cycle,
)
from repro.network.simulate import (
    Cycle,
    Link,
    Send,
    compute_seconds,
    cycle_time,
    finite_utilisation,
    link_intervals,
    trace,
    utilisation,
)
from repro.spec.config import RunConfig

ONE = Network("1B", 1e9, 24, 0.1)


def _matches(methods, curve=paper_curve, index=-1):
    places = by_place(load_cells("table4"))
    same = 0
    for network in TABLE4.networks:
        for how, published_as in zip(methods, METHODS, strict=True):
            values = curve(TABLE4, network, how)
            for target in TABLE4.targets:
                text = places[f"{network.name} | {published_as.label}", f"{target:.0%}"].text
                if index == -1:
                    same += printed_reading(grid_reading(values, target)) == text
                else:
                    same += printed_reading(float(PAPER_GRID[np.searchsorted(values, target)])) == text
    return same


def test_table4_has_73_of_75_cells_and_misses_two_by_one_bin():
    places = by_place(load_cells("table4"))
    misses = []
    for network in TABLE4.networks:
        for how in METHODS:
            curve = paper_curve(TABLE4, network, how)
            for target in TABLE4.targets:
                point = grid_reading(curve, target)
                cell = places[f"{network.name} | {how.label}", f"{target:.0%}"]
                if printed_reading(point) != cell.text:
                    assert point is not None
                    above = float(PAPER_GRID[np.searchsorted(PAPER_GRID, point) + 1])
                    misses.append((network.name, how.key, target))
                    assert printed_reading(above) == cell.text
    assert misses == [("10B", "streaming-overlap", 0.5), ("100B", "streaming-overlap", 0.95)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda m: replace(m, pattern="sequential"), 61),
        (lambda m: replace(m, delay=2 * m.delay), 46),
        (lambda m: replace(m, bits=32.0 if m.bits == 16 else m.bits), 15),
    ],
    ids=["sequential order", "tau 2", "32-bit baselines"],
)
def test_other_readings_of_the_paper_match_fewer_cells(change, expected):
    assert _matches([change(m) for m in METHODS]) == expected


def test_first_point_at_the_target_matches_three_cells():
    assert _matches(METHODS, index=0) == 3


def test_fitted_finite_run_matches_all_cells():
    assert _matches(METHODS, curve=fitted_curve) == 75


def test_the_spec_has_the_published_layers_and_step_times():
    places = by_place(load_cells("table4"))
    for network in TABLE4.networks:
        assert network.layers == places[network.name, "# layers"].value
        assert network.step_time_s == places[network.name, "Step time (s)"].value
    assert figure4.EXPERIMENT.networks == TABLE4.networks


@given(layers=st.integers(1, 40), step_time=st.floats(0.01, 100))
def test_nodes_of_a_step_last_t_times_one_less_a_third_of_a_layer(layers, step_time):
    nodes = trace(Cycle(layers, 1, ()), (step_time,), 1.0, 1)
    assert len(nodes) == 3 * layers - 1
    total = sum(node.end - node.start for node in nodes)
    assert total == pytest.approx(step_time * (1 - 1 / (3 * layers)))
    assert compute_seconds(layers, step_time) == pytest.approx(total)


@given(seconds=st.floats(0, 100), layers=st.integers(2, 12))
def test_data_parallel_closed_form(seconds, layers):
    """Equal layers: the link is either never behind, so only the last reduction is exposed, or always busy
    from the first on; forward(1) waits for layer 1, the last of the queue, and everything after it is
    there.
    """
    bits = seconds * 1e9
    cycle = Cycle(layers, 1, (Send(0, tuple(range(1, layers + 1)), (bits,) * layers),))
    node = 1.0
    backward, forward = (2 * layers - 1) * node, layers * node
    # ready times of layers L..2 are 2, 4, ... after the backward began, layer 1's is one node after layer 2's
    ready = [2 * node * i for i in range(1, layers)] + [backward]
    free = max(r + (layers - i) * seconds for i, r in enumerate(ready))
    expected = max(free, backward) + forward
    assert float(cycle_time(cycle, (3.0 * layers,), Link.of(1.0))) == pytest.approx(expected)


@pytest.mark.parametrize("how", METHODS, ids=lambda m: m.key)
def test_limits_of_bandwidth(how):
    cycle = paper_cycle(ONE, how)
    assert utilisation(cycle, (0.1,), Link.of(math.inf)) == pytest.approx(1.0)
    slow = 1e-6
    # The link is the only thing that takes time: compute over bits.
    expected = compute_seconds(24, 0.1) * cycle.steps / (cycle.bits / (slow * 1e9))
    assert utilisation(cycle, (0.1,), Link.of(slow)) == pytest.approx(expected, rel=1e-3)


@st.composite
def cycles(draw, workers=1, embedding=True):
    layers, steps = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    sends = []
    for step in range(steps):
        sent = draw(st.sets(st.integers(0 if embedding else 1, layers), max_size=layers))
        if sent:
            sends.append(Send(step, tuple(sorted(sent)), tuple(draw(st.integers(0, 5)) * 1e9 for _ in sent)))
    plain = Cycle(layers, steps, tuple(sends))
    delays = st.integers(0, plain.shortest_period - 1)
    return plain.delayed(tuple(draw(delays) for _ in range(workers)))


def _oracle(cycle, node_times, latency, steps, slowness=1):
    sends = {
        s.step: {n: Fraction(int(b), 10**9) * slowness for n, b in zip(s.layers, s.bits, strict=True)}
        for s in cycle.sends
    }
    delays = [cycle.delays[w % len(cycle.delays)] for w in range(len(node_times))]
    return des_oracle.simulate(
        cycle.layers, [Fraction(t) for t in node_times], cycle.steps, sends, delays, Fraction(latency), steps
    )


@settings(max_examples=60, deadline=None)
@given(cycle=cycles(), latency=st.integers(0, 2), steps=st.integers(1, 9))
def test_trace_and_finite_run_are_the_event_simulation(cycle, latency, steps):
    step_time = 3.0 * cycle.layers
    ends, log = _oracle(cycle, [1], latency, steps)
    nodes = trace(cycle, (step_time,), 1.0, steps, float(latency))
    drawn = {n.step: n.end for n in nodes if n.kind == "backward_parameters" and n.layer == 1}
    assert [drawn[s] for s in range(steps)] == pytest.approx([float(e) for e in ends[0]])
    sent = sorted((n.start, n.end, n.step, n.layer) for n in nodes if n.kind == "reduction")
    assert sent == [pytest.approx(tuple(map(float, entry))) for entry in sorted(log)]
    last = max([ends[0][-1], *(end for _, end, _, _ in log)])
    used = finite_utilisation(cycle, step_time, Link.of([1.0], float(latency)), steps)
    assert used == pytest.approx(float(steps * (3 * cycle.layers - 1) / last))


@settings(max_examples=40, deadline=None)
@given(data=st.data(), latency=st.integers(0, 2), node_times=st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_steady_state_is_the_event_simulation_far_out(data, latency, node_times):
    """All durations are small integers, so cycle means differ by more than a transient of 60 cycles can hide,
    and 60 is a multiple of every period that up to six tokens can have.
    """
    cycle = data.draw(cycles(workers=len(node_times)))
    far = 60
    ends, _ = _oracle(cycle, node_times, latency, 2 * far * cycle.steps)
    slowest = [max(worker[k * far * cycle.steps - 1] for worker in ends) for k in (1, 2)]
    expected = float((slowest[1] - slowest[0]) / far)
    step_times = tuple(3.0 * cycle.layers * t for t in node_times)
    found = cycle_time(cycle, step_times, Link.of([1.0, 1.0], float(latency)))
    assert found == pytest.approx(expected, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(cycle=cycles(), scale=st.floats(0.01, 100), rate=st.floats(0.01, 100))
def test_utilisation_depends_on_bits_over_bandwidth_times_step_time(cycle, scale, rate):
    base = utilisation(cycle, (3.0,), Link.of(rate))
    assert utilisation(cycle.scaled(scale), (3.0,), Link.of(rate * scale)) == pytest.approx(base)
    assert utilisation(cycle.scaled(scale), (3.0 * scale,), Link.of(rate)) == pytest.approx(base)


@settings(max_examples=60, deadline=None)
@given(cycle=cycles())
def test_more_bandwidth_never_hurts(cycle):
    curve = utilisation(cycle, (3.0,), Link.of(np.logspace(-2, 3, 60)))
    assert np.all(np.diff(curve) >= -1e-12)
    assert np.all((curve > 0) & (curve <= 1))


@settings(max_examples=60, deadline=None)
@given(cycle=cycles(), rate=st.floats(0.05, 20))
def test_more_overlap_never_hurts(cycle, rate):
    curve = [float(utilisation(cycle.delayed((tau,)), (3.0,), Link.of(rate))) for tau in range(cycle.shortest_period)]
    assert np.all(np.diff(curve) >= -1e-12)


@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("network", TABLE4.networks, ids=lambda n: n.name)
def test_strided_is_at_least_as_good_as_sequential(network, delay):
    strided = Method("a", "a", "fragments", 16.0, delay)
    sequential = replace(strided, pattern="sequential")
    gain = paper_curve(TABLE4, network, strided) - paper_curve(TABLE4, network, sequential)
    assert gain.min() > -1e-12
    assert gain.max() > 0.01


@settings(max_examples=40, deadline=None)
@given(cycle=cycles(), rate=st.floats(0.1, 10))
def test_the_link_sends_every_bit_once_and_one_at_a_time(cycle, rate):
    starts, ends = link_intervals(cycle, (3.0,), Link.of(rate))
    assert float(np.sum(ends - starts)) == pytest.approx(2 * cycle.bits / (rate * 1e9))
    if len(starts):
        assert np.all(starts[1:] >= ends[:-1] - 1e-9)


def test_latency_without_overlap_is_paid_in_full_and_hidden_with_it():
    sends = (Send(0, (1,), (0.0,)),)
    waited = cycle_time(Cycle(1, 4, sends), (3.0,), Link.of(math.inf, 1.5))
    assert waited == pytest.approx(4 * 2.0 + 1.5)
    assert cycle_time(Cycle(1, 4, sends, (1,)), (3.0,), Link.of(math.inf, 1.5)) == pytest.approx(4 * 2.0)


def test_a_steady_state_whose_cycles_alternate():
    """Three steps a cycle, each send awaited two steps later: the critical path returns after two cycles, long and
    short in turn. Layers 1, 3, 2 follow each other on it; the sums are nodes from a forward to the next send.
    """
    sends = tuple(Send(step, (step + 1,), (0.0,)) for step in range(3))
    latency = 100.0
    hops = (3 + 2, 1 + 4, 2 + 5)  # forward(1)..send(3), forward(3)..send(2), forward(2)..send(1)
    found = cycle_time(Cycle(3, 3, sends, (1,)), (9.0,), Link.of(math.inf, latency))
    assert found == pytest.approx((sum(hops) + 3 * latency) / 2)


def test_a_straggler_sets_the_pace_and_the_others_wait():
    cycle = Cycle(1, 5, (Send(0, (1,), (1e9,)),))
    assert cycle_time(cycle, (3.0, 6.0), Link.of(math.inf)) == pytest.approx(5 * 4.0)
    assert utilisation(cycle, (3.0, 6.0), Link.of(math.inf)) == pytest.approx((0.5 + 1) / 2)


def test_a_cycle_with_nothing_to_send_is_compute():
    assert utilisation(Cycle(7, 3, ()), (1.0,), Link.of([1e-9, 1.0])) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("how", METHODS, ids=lambda m: m.key)
def test_least_bandwidth_is_where_the_target_is_reached(how):
    cycle = paper_cycle(ONE, how)
    targets = (0.5, 0.95)
    found = least_bandwidth(cycle, (0.1,), targets)
    for target, rate in zip(targets, found, strict=True):
        assert utilisation(cycle, (0.1,), Link.of(rate)) >= target
        assert utilisation(cycle, (0.1,), Link.of(rate * (1 - 2e-6))) < target


def test_least_bandwidth_is_infinite_where_latency_alone_costs_more():
    cycle = Cycle(1, 1, (Send(0, (1,), (1e9,)),))
    # Compute takes 2 s, so a latency of 1 s caps utilisation at 2/3.
    assert least_bandwidth(cycle, (3.0,), (0.5, 0.7), latency_s=1.0)[1] == math.inf
    assert math.isfinite(least_bandwidth(cycle, (3.0,), (0.5, 0.7), latency_s=1.0)[0])


def test_least_delay_is_the_first_that_reaches():
    cycle = paper_cycle(TABLE4.networks[2], method("streaming"))
    link, target = Link.of(3.2), 0.95
    curve = [float(utilisation(cycle.delayed((t,)), (4.9,), link)) for t in range(8)]
    expected = next(t for t, used in enumerate(curve) if used >= target)
    assert expected > 0
    assert least_delay(cycle, (4.9,), target, link) == expected
    assert least_delay(cycle, (4.9,), 0.99, Link.of(0.5)) is None


@pytest.mark.parametrize("every", [100, 30, 5])
def test_the_trainers_schedule_sends_each_fragment_once_a_period(every):
    sync = replace(streaming(every), delays=(1,))
    cycle = trainer_cycle(24, sync, 2.0, 7.0)
    layers = sorted(layer for send in cycle.sends for layer in send.layers)
    assert layers == list(range(25))
    assert cycle.steps == every
    assert cycle.bits == 24 * 2.0 + 7.0
    assert cycle.delays == (1, 1)


def _config(sync, steps=600) -> RunConfig:
    base = data_parallel("35M")
    inner = replace(base.inner, warmup_steps=0)  # a warm-up is no longer than its run
    return replace(base, sync=sync, replicas=2 if sync else 1, steps=steps, inner=inner)


@pytest.mark.parametrize("sync", [None, diloco(100), streaming(100)], ids=["dp", "diloco", "streaming"])
def test_a_runs_cycle_carries_exactly_its_payload(sync):
    config = _config(sync)
    cycle = run_cycle(config)
    # A run of n periods applies each fragment n times, less what is first due or still travels at the ends.
    periods = config.steps // cycle.steps
    sent = 8 * run_bytes(config)
    assert periods * cycle.bits >= sent >= (periods - 2) * cycle.bits
    if sync is None or sync.fragments.pattern == "whole":
        assert sent == periods * cycle.bits


def test_every_size_of_the_ladder_can_be_simulated():
    for size in SIZES:
        config = replace(data_parallel(size), sync=streaming(100), replicas=2)
        assert 0 < utilisation(run_cycle(config), (0.1,), Link.of(1.0)) <= 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Network("x", 1e9, 0, 1.0),
        lambda: Network("x", -1, 3, 1.0),
        lambda: Network("x", 1e9, 3, math.nan),
        lambda: Link.of(-1.0),
        lambda: Link.of([1.0, 0.0]),
        lambda: Link.of(math.nan),
        lambda: Link.of(1.0, -0.1),
        lambda: Cycle(0, 1, ()),
        lambda: Cycle(2, 1, (Send(0, (3,), (1.0,)),)),
        lambda: Cycle(2, 4, (Send(0, (1,), (1.0,)),), (4,)),
        lambda: Cycle(2, 4, (Send(0, (1,), (1.0,)), Send(2, (1,), (1.0,))), (2,)),
        lambda: Cycle(2, 4, (), (-1,)),
        lambda: Send(0, (1, 1), (1.0, 1.0)),
        lambda: Send(0, (1,), (-1.0,)),
        lambda: paper_cycle(Network("x", 1e9, 2, 1.0), method("streaming")),
        lambda: method("telepathy"),
        lambda: utilisation(Cycle(2, 1, ()), (0.0,), Link.of(1.0)),
        lambda: least_bandwidth(Cycle(2, 1, ()), (1.0,), (1.5,)),
        lambda: sync_of(method("data-parallel"), (1,), 100, 3, "own"),
    ],
)
def test_bad_values_get_a_sentence(wrong):
    with pytest.raises(UserError) as caught:
        wrong()
    assert " " in str(caught.value)
