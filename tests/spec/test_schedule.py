"""The schedule against the paper's own conditions, as the oracle writes them, and the events that follow from it."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import oracle
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from repro.spec.config import SyncConfig
from repro.spec.schedule import (
    QUIET,
    age_at_end,
    events,
    flushed,
    is_due,
    offsets,
    replica_delays,
    sends_applied,
    sync_steps,
)

EVERY = st.integers(1, 40)
COUNT = st.integers(1, 12)


@st.composite
def syncs(draw: st.DrawFn, replicas: int = 3) -> SyncConfig:
    every = draw(st.integers(1, 12))
    delays = draw(st.lists(st.integers(0, every - 1), min_size=1, max_size=replicas))
    delays = delays if len(delays) == replicas else delays[:1]
    return tiny.synced(every=every, delays=tuple(delays))


def due_steps(every: int, count: int, fragment: int, steps: int) -> list[int]:
    offset = oracle.spread_offsets(every, count)[fragment]
    return [t for t in range(1, steps + 1) if oracle.is_due(t, every, offset)]


def test_the_example_of_the_paper() -> None:
    # §2.2: H = 100, two fragments: 100, 200, … and 150, 250, …
    sync = tiny.synced(every=100, delays=(1,))
    assert list(sync_steps(sync, 2, 0, 300)) == [100, 200, 300]
    assert list(sync_steps(sync, 2, 1, 300)) == [150, 250]


@pytest.mark.parametrize(
    ("every", "count", "expected"),
    [
        (100, 3, (0, 33, 66)),
        (30, 4, (0, 7, 14, 21)),
        (5, 5, (0, 1, 2, 3, 4)),
        (2, 5, (0, 0, 0, 1, 1)),
        (1, 3, (0, 0, 0)),
    ],
)
def test_offsets(every: int, count: int, expected: tuple[int, ...]) -> None:
    assert offsets(every, count) == expected


@given(every=EVERY, count=COUNT, data=st.data())
def test_each_fragment_is_due_exactly_every_h_steps(every: int, count: int, data: st.DataObject) -> None:
    sync = tiny.synced(every=every, delays=(0,))
    fragment = data.draw(st.integers(0, count - 1))
    due = [t for t in range(-3, 4 * every + 1) if is_due(sync, count, fragment, t)]
    assert due == due_steps(every, count, fragment, 4 * every)
    assert every <= due[0] < 2 * every  # it has trained H steps before its first sync
    assert all(b - a == every for a, b in pairwise(due))
    assert list(sync_steps(sync, count, fragment, 4 * every)) == due


@given(every=EVERY, count=COUNT)
def test_one_fragment_a_step_unless_there_are_more_fragments_than_steps(every: int, count: int) -> None:
    sync = tiny.synced(every=every, delays=(0,))
    for step in range(every, 3 * every):
        due = [p for p in range(count) if is_due(sync, count, p, step)]
        assert len(due) <= (1 if count <= every else -(-count // every))


@given(every=st.integers(2, 40), count=COUNT, data=st.data())
def test_the_other_sign_and_an_early_first_sync(every: int, count: int, data: st.DataObject) -> None:
    fragment = data.draw(st.integers(0, count - 1))
    offset = oracle.spread_offsets(every, count)[fragment]
    plus = replace(tiny.synced(every=every, delays=(0,)), offset_sign=1)
    early = replace(plus, offset_sign=-1, first_sync="due")
    steps = range(1, 3 * every)
    assert [t for t in steps if is_due(plus, count, fragment, t)] == [
        t for t in steps if t >= every and (t + offset) % every == 0
    ]
    assert [t for t in steps if is_due(early, count, fragment, t)] == [t for t in steps if (t - offset) % every == 0]


@given(sync=syncs(), count=st.integers(1, 6))
def test_events_send_move_apply_and_mix_each_gradient_once(sync: SyncConfig, count: int) -> None:
    steps, replicas = 4 * sync.every + 5, 3
    delays = replica_delays(sync, replicas)
    least = min(delays)
    wanted: dict[int, set] = defaultdict(set)
    for p in range(count):
        for t in due_steps(sync.every, count, p, steps):
            if least == 0:
                wanted[t].add(("sync", p))
            else:
                wanted[t + 1].add(("send", p))
                wanted[t + least].add(("apply", p))
                wanted |= {t + 1 + k: wanted[t + 1 + k] | {("part", p, k, least)} for k in range(least)}
            for m, delay in enumerate(delays):
                wanted[t + delay].add(("mix", p, m))
    for step in range(1, steps + 1):
        found = events(sync, count, replicas, step)
        named = [("send", p) for p in found.sends] + [("sync", p) for p in found.syncs]
        named += [("apply", p) for p in found.applies] + [("part", *part) for part in found.parts]
        named += [("mix", p, m) for p, late in found.mixes for m in late]
        assert len(named) == len(set(named))
        assert set(named) == wanted[step]
        assert found.quiet == (not wanted[step])


def test_data_parallel_is_always_quiet() -> None:
    assert {events(None, 0, 1, step) for step in range(1, 50)} == {QUIET}


def test_replicas_with_delays_of_their_own() -> None:
    # Figure 10: one outer update at t + min τ; the late worker mixes the same copy in later.
    sync = tiny.synced(every=5, delays=(1, 3))
    assert events(sync, 1, 2, 6).applies == (0,)
    assert events(sync, 1, 2, 6).mixes == ((0, (0,)),)
    assert events(sync, 1, 2, 8).applies == ()
    assert events(sync, 1, 2, 8).mixes == ((0, (1,)),)
    assert events(sync, 1, 2, 7).quiet


@given(sync=syncs(), count=st.integers(1, 6), steps=st.integers(1, 60))
def test_what_is_pending_at_the_end_is_dropped(sync: SyncConfig, count: int, steps: int) -> None:
    flushing = replace(sync, flush="last")
    for p in range(count):
        arrived = [t for t in due_steps(sync.every, count, p, steps) if t + min(sync.delays) <= steps]
        assert age_at_end(sync, count, p, steps) == steps - (arrived[-1] if arrived else 0)
        assert sends_applied(sync, count, p, steps) == len(arrived)
        assert age_at_end(flushing, count, p, steps) == 0
        assert sends_applied(flushing, count, p, steps) == len(arrived) + 1
    assert flushed(flushing, count, steps, steps) == tuple(range(count))
    assert [*flushed(flushing, count, steps - 1, steps), *flushed(sync, count, steps, steps)] == []
