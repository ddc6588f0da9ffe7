"""The rule that lays a run on TPU slices: pure, checked against the mesh it must give, and every run of the paper."""

from dataclasses import asdict, replace

import pytest
import tiny

from experiments.registry import experiment_names, load
from experiments.streaming.base import c4, data_parallel, diloco, streaming
from repro.diloco.resources import Resources
from repro.errors import UserError
from repro.machines.placement import (
    FILL,
    GIB,
    SLICES,
    Overrides,
    candidates,
    chip,
    chips_of,
    estimate,
    mends,
    mesh_for,
    place,
    resources_for,
)
from repro.spec.config import RunConfig
from repro.spec.experiment import Experiment, expand, unique


def paper_runs() -> list[RunConfig]:
    specs = [load(name) for name in experiment_names()]
    trained = [spec for spec in specs if isinstance(spec, Experiment) and not spec.derived]
    return [run.config for run in unique(run for spec in trained for run in expand(spec, "paper"))]


def test_every_run_of_the_paper_has_a_place() -> None:
    """Slices of a known topology, one a replica; a mesh that divides everything; within the memory, by the estimate."""
    runs = paper_runs()
    assert len(runs) > 100
    for config in runs:
        placed = place(config)
        assert placed.topology in SLICES
        assert placed.slices == (config.replicas if config.sync else 2)
        assert placed.resources.devices == placed.slices * chips_of(placed.topology)
        placed.resources.check(config)
        assert estimate(config, placed.resources) <= FILL * chip(placed.topology).usable_gib * GIB
        shared = max(1, placed.resources.devices // config.batch)  # chips that a sequence is laid on
        assert (placed.resources.attention, placed.resources.sequence) == ("flash", shared)


def test_the_largest_model_takes_the_most_chips() -> None:
    chips = [chips_of(place(data_parallel(size)).topology) for size in ("35M", "500M", "1B", "4B")]
    assert chips == sorted(chips) and chips[0] < chips[-1]


@pytest.mark.parametrize(
    ("replicas", "slices", "mesh"), [(2, 2, (2, 1, 8)), (2, 4, (2, 2, 8)), (4, 2, (4, 1, 4)), (1, 2, (1, 2, 8))]
)
def test_a_replica_a_slice_or_several(replicas: int, slices: int, mesh: tuple[int, int, int]) -> None:
    config = tiny.run_config(tiny.synced(), replicas=replicas, batch=64)
    found = mesh_for(config, chips=8, slices=slices)
    assert (found.replica, found.data, found.fsdp) == mesh
    assert found.devices == 8 * slices
    assert found.attention == "xla"  # the kernel doesn't take so small a model


def test_narrower_sharding_leaves_the_slice_to_data_parallelism() -> None:
    config = tiny.run_config(tiny.synced(), batch=64)
    assert mesh_for(config, chips=8, slices=2, fsdp=2) == Resources(2, 4, 2, unroll=False, fence=True)


def test_fewer_sequences_than_chips_share_them() -> None:
    """At 1B two replicas have 128 sequences each, and Data-Parallel 64 a slice: on 256 chips one is cut in 2 and 4."""
    for config in (data_parallel("1B"), c4("1B", diloco(30)), c4("1B", streaming(100))):
        found = resources_for(config, chips=256, slices=2)
        assert (found.fsdp, found.sequence, found.shares) == (256, 2 if config.sync else 4, 128)
        found.check(config)


def test_what_cannot_be_placed_is_told() -> None:
    config = tiny.run_config(tiny.synced(), batch=4)
    with pytest.raises(UserError, match="at most 2 chips"):
        mesh_for(config, chips=8, slices=2)
    with pytest.raises(UserError, match="2 replicas on 3 slices"):
        mesh_for(config, chips=4, slices=3)
    with pytest.raises(UserError, match="fsdp=3"):
        mesh_for(config, chips=4, slices=2, fsdp=3)
    with pytest.raises(UserError, match="fsdp=0"):
        mesh_for(config, chips=4, slices=2, fsdp=0)
    for name in ("v99:2x2", "v5e", "v5e:", "v5e:2x", "v5e:0x2"):
        with pytest.raises(UserError, match="v5e:4x4"):
            chips_of(name)


def test_each_knob_lowers_the_estimate() -> None:
    config = replace(data_parallel("1B"), sync=streaming(100), replicas=2)
    base = mesh_for(config, 16, 2)
    plain = estimate(config, base)
    lighter = ({"microbatches": 8}, {"remat": "full"}, {"outer_on_host": True}, {"remat": "dots"})
    assert all(estimate(config, replace(base, **knob)) < plain for knob in lighter)
    assert estimate(config, replace(base, attention="xla")) > plain
    assert estimate(config, mesh_for(config, 32, 2)) < plain


def test_what_a_person_asks_for_stands() -> None:
    config = replace(data_parallel("1B"), sync=streaming(100), replicas=2)
    asked = Overrides(fsdp=8, microbatches=4, remat="full", attention="xla", outer_on_host=True, fence=False)
    found = asdict(resources_for(config, 16, 2, asked=asked))
    assert {name: found[name] for name in asdict(asked)} == asdict(asked)


def test_mends_are_lighter_and_untried_and_fit_by_the_estimate() -> None:
    config = replace(data_parallel("1B"), sync=streaming(100), replicas=2)
    tried = [replace(mesh_for(config, 16, 2, fsdp=8), microbatches=2)]
    needed = 20 * GIB
    found = list(mends(config, tried, needed, "v5e:4x4", 2))
    assert {r.fsdp for r in found} == {8, 16} and {r.remat for r in found} == {"none", "dots", "full"}
    assert {r.outer_on_host for r in found} == {False, True}
    scale = needed / estimate(config, tried[0])
    for resources in found:
        assert resources not in tried
        assert scale * estimate(config, resources) <= chip("v5e").usable_gib * GIB
        resources.check(config)


def test_mends_of_data_parallel_stay_inside_a_slice() -> None:
    """Its two groups are two slices: parameters are never sharded over both."""
    config = data_parallel("1B")
    found = list(mends(config, [mesh_for(config, 16, 2)], 40 * GIB, "v5e:4x4", 2))
    assert found and {(r.data, r.fsdp) for r in found} == {(2, 16)}


def test_candidates_end_with_the_outer_state_on_the_host() -> None:
    config = replace(data_parallel("4B"), sync=streaming(100), replicas=2)
    found = list(candidates(mesh_for(config, 16, 2), config))
    assert [r.microbatches for r in found[:4]] == [1, 2, 4, 8]
    assert [(r.remat, r.outer_on_host) for r in found[-3:]] == [("dots", False), ("full", False), ("full", True)]
