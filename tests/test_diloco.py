"""The trainer's programs against the NumPy oracle of Algorithms 1 and 2, and the reductions between methods."""

from dataclasses import replace
from typing import Any

import numpy as np
import oracle
import pytest
import rig
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repro.config import FragmentConfig, OuterConfig, RunConfig
from repro.resources import Resources

ATOL = 1e-5
SGD = OuterConfig("sgd", learning_rate=0.7, momentum=0.0)
PLAIN = OuterConfig("nesterov", learning_rate=1.0, momentum=0.0)

CASES: dict[str, dict[str, Any]] = {
    "streaming": dict(sync=rig.synced(every=4, delays=(1,), mix=0.5)),
    "late-worker": dict(sync=rig.synced(every=4, delays=(1, 3), mix=0.25)),
    "two-in-flight": dict(sync=rig.synced(every=4, delays=(3,), mix=0.5, fragments=rig.MERGED)),
    "fewer-steps-than-fragments": dict(sync=rig.synced(every=2, delays=(0,), mix=0.25)),
    "diloco": dict(sync=rig.synced(every=3, delays=(0,), mix=0.0, fragments=rig.WHOLE)),
    "four-replicas": dict(sync=rig.synced(every=3, fragments=rig.WHOLE, outer=SGD), replicas=4),
    "three-replicas-on-one-device": dict(
        sync=rig.synced(every=3, delays=(0, 1, 2), fragments=rig.WHOLE), replicas=3, batch=6, resources=rig.ONE
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_float32_follows_the_oracle(case: dict[str, Any]) -> None:
    case = dict(case)
    resources = case.pop("resources", rig.TWO)
    config = rig.run_config(**case)
    trace = rig.drive(config, resources)
    rig.assert_follows(trace, rig.expected(config), ATOL)
    assert all(flag for flags in trace.finite for flag in flags.values())


def check_drawn(draw: Any, fragments: st.SearchStrategy[FragmentConfig], delays: Any, every: Any) -> None:
    h = draw(every)
    sync = rig.synced(
        every=h,
        delays=draw(delays(h)),
        mix=draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])),
        fragments=draw(fragments),
    )
    config = rig.run_config(sync, steps=draw(st.integers(h, 2 * h + 4)), seed=draw(st.integers(0, 99)))
    rig.assert_follows(rig.drive(config), rig.expected(config), ATOL)


OPTIONS: dict[str, Any] = dict(deadline=None, suppress_health_check=list(HealthCheck))


@settings(max_examples=12, derandomize=True, **OPTIONS)
@given(data=st.data())
def test_drawn_runs_follow_the_oracle(data: st.DataObject) -> None:
    # All of these share seven programs: a fragment at a time, blocking or overlapped with one step.
    cuts = st.sampled_from([rig.STRIDED, rig.SEQUENTIAL])
    check_drawn(data.draw, cuts, lambda h: st.sampled_from([(0,), (1,)]), st.integers(3, 9))


@pytest.mark.slow
@settings(max_examples=150, **OPTIONS)
@given(data=st.data())
def test_many_drawn_runs_follow_the_oracle(data: st.DataObject) -> None:
    cuts = st.sampled_from([rig.STRIDED, rig.SEQUENTIAL, rig.MERGED, rig.WHOLE])
    delays = lambda h: st.tuples(*[st.integers(0, h - 1)] * 2)  # noqa: E731
    check_drawn(data.draw, cuts, delays, st.integers(1, 7))
