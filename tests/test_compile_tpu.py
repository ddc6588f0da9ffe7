"""Programs compiled ahead of time for two TPU slices: overlap, bytes, memory. Skipped only where libtpu is missing."""

import importlib.util
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import rig
import tiny

from repro import wire
from repro.actions import Action
from repro.compile import Program, Topology, _program, compile_run, topology
from repro.config import FragmentConfig, ModelConfig, RunConfig, SyncConfig
from repro.errors import UserError
from repro.resources import Resources, resources_for
from repro.shapes import fragment_shapes, parameter_shapes
from repro.state import Layout
from repro.step import Stepper

pytestmark = [pytest.mark.compiles]
needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")

MODEL = ModelConfig("tpu", layers=4, ffn_width=512, heads=1, vocab=256, seq_len=64, compute_dtype="bfloat16")
ONE_LAYER = FragmentConfig("sequential", layers=1, embedding="own")  # five fragments
LAYER = (1, False)
SENT = Action(LAYER, send=True, parts=1, apply=True, mix=True)


def run_of(delay: int | None) -> RunConfig:
    """A fragment due at every step, so that for τ = 3 three travel beside each step; data-parallel for None."""
    sync = None if delay is None else tiny.synced(every=5, delays=(delay,), fragments=ONE_LAYER, codec="e3m0")
    return tiny.run_config(sync, replicas=1 if sync is None else 2, batch=16, steps=30, model=MODEL)


@cache
def pair() -> Topology:
    """Two slices of four chips."""
    return topology("v5e:2x2", 2)


@cache
def compiled(delay: int | None, key: tuple[Action, ...], host: bool = False) -> Program:
    """One program for the pair of slices."""
    config = run_of(delay)
    resources = replace(resources_for(config, 4, 2), outer_on_host=host)
    return _program(Stepper(Layout.of(config, resources, devices=list(pair().devices))), key, 1)


def payload(parts: int) -> int:
    """Bytes that one chip gives of a layer fragment's part."""
    sync = run_of(1).sync
    assert isinstance(sync, SyncConfig)
    return wire.part_bytes(fragment_shapes(MODEL, *LAYER), sync.codec, fsdp=4, parts=parts)


@needs_libtpu
def test_a_sent_fragment_travels_beside_the_whole_inner_step() -> None:
    """τ = 1: the transfer starts before the forward pass and is awaited after the inner update."""
    schedule = compiled(1, (SENT,)).schedule
    (transfer,) = schedule.transfers
    assert transfer.independent
    assert transfer.start < schedule.forward
    assert transfer.done > schedule.updated
    assert (transfer.operation, transfer.dtype, transfer.members) == ("ALL_GATHER", "u8", 2)
    assert transfer.bytes == transfer.moved == payload(1)


@needs_libtpu
def test_three_parts_travel_beside_three_steps() -> None:
    """τ = 3, a send at every step: parts 0, 1 and 2 of three fragments beside one step, all overlapped."""
    parts = [Action(LAYER, send=True, parts=3), Action(LAYER, parts=3), Action(LAYER, parts=3, apply=True, mix=True)]
    stepper_keys = set(_keys(3))
    key = next(k for k in stepper_keys if sorted(map(repr, k)) == sorted(map(repr, parts)))
    schedule = compiled(3, key).schedule
    assert len(schedule.transfers) == 3
    for transfer in schedule.transfers:
        assert transfer.independent and schedule.overlaps(transfer)
        assert (transfer.dtype, transfer.bytes) == ("u8", payload(3))


def _keys(delay: int) -> list[tuple[Action, ...]]:
    config = run_of(delay)
    return list(Stepper(Layout.of(config, tiny.TWO)).programs(1, config.steps))


@needs_libtpu
def test_a_step_without_an_event_has_no_traffic_between_slices() -> None:
    assert compiled(1, ()).schedule.transfers == ()


@needs_libtpu
def test_the_outer_state_rests_on_the_host() -> None:
    """§2.5: what a program doesn't name isn't on the chip; what it names is there once, in place of twice."""
    quiet, device = compiled(1, ()).memory, compiled(1, (SENT,)).memory
    host = compiled(1, (SENT,), host=True).memory
    values = sum(int(np.prod(s)) for n, s in fragment_shapes(MODEL, *LAYER).items() if not n.endswith("_norm")) // 4
    fragment = 2 * 4 * values  # outer parameters and momentum, float32, on one of four chips
    assert quiet.host == device.host == 0
    assert host.host >= fragment
    assert device.arguments - host.arguments >= fragment
    # The other fragments rest where the named one does: three layers of four, and the embedding.
    assert host.host and host.resting == 0
    assert device.resting >= 3 * fragment and quiet.resting - device.resting >= fragment
    # Only ids, the weights α and scalars are left of what the send adds to the plain step's arguments.
    assert 0 <= host.arguments - quiet.arguments < 8192


@needs_libtpu
def test_gradients_of_matrices_travel_between_slices_as_bfloat16() -> None:
    """Data-parallel (M = 1, data = 2): 16 bits a value as the accounts say; the tied embedding's two
    gradients, as input and as output, each by itself; norm gains and a handful of scalars as float32."""
    found = compile_run(run_of(None), pair())
    assert found.fits and not found.tried
    (program,) = found.programs
    assert (program.name, program.steps, found.cycle) == ("inner step", 1, 1)
    schedule = program.schedule
    shapes = parameter_shapes(MODEL)
    matrices = {
        f"{group}/{name}": int(np.prod(shape))
        for group, leaves in shapes.items()
        for name, shape in leaves.items()
        if not name.endswith("_norm")
    }
    half = sum(t.bytes for t in schedule.transfers if t.dtype == "bf16")
    assert half == 2 * (sum(matrices.values()) + matrices["embed/tokens"]) // 4
    assert sum(t.bytes for t in schedule.transfers if t.dtype != "bf16") < 0.05 * half
    assert found.bytes is not None
    assert found.bytes.hlo == 4 * schedule.bytes == found.bytes.moved  # four chips a slice; a ring of two
    assert found.bytes.payload == 2 * sum(int(np.prod(s)) for leaves in shapes.values() for s in leaves.values())


@needs_libtpu
@pytest.mark.slow
def test_what_is_waited_for_does_not_overlap() -> None:
    """DiLoCo (τ = 0): everything in one transfer of 16 bits a value, after the inner update."""
    sync = tiny.synced(every=5, delays=(0,), mix=0.0, fragments=tiny.WHOLE, codec="bfloat16")
    config = tiny.run_config(sync, batch=16, steps=30, model=MODEL)
    stepper = Stepper(Layout.of(config, resources_for(config, 4, 2), devices=list(pair().devices)))
    schedule = _program(stepper, stepper.key(5), 1).schedule
    (transfer,) = schedule.transfers
    assert transfer.start > schedule.updated and not transfer.independent
    values = sum(int(np.prod(s)) for leaves in parameter_shapes(MODEL).values() for s in leaves.values())
    assert 2 * values <= 4 * transfer.bytes < 2 * values + 4 * 4  # the norm gains split over four chips


@needs_libtpu
def test_an_unknown_topology_is_told() -> None:
    with pytest.raises(UserError, match="v5e:4x4"):
        topology("v99:1x1", 2)


def test_libtpu_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"libtpu.*pip install"):
        topology("v5e:2x2", 2)


def test_a_fence_changes_nothing_but_the_schedule() -> None:
    """The same trajectory on CPU with the inner step in a loop of one trip."""
    config = tiny.run_config(tiny.synced(fragments=tiny.WHOLE), steps=6)
    free, fenced = (rig.drive(config, replace(tiny.TWO, fence=fence)) for fence in (False, True))
    for a, b in zip((*free.params[-1], *free.outer[-1]), (*fenced.params[-1], *fenced.outer[-1]), strict=True):
        rig.assert_close(a, b, 1e-6)


@pytest.mark.parametrize(
    ("replicas", "slices", "mesh"), [(2, 2, (2, 1, 8)), (2, 4, (2, 2, 8)), (4, 2, (4, 1, 4)), (1, 2, (1, 2, 8))]
)
def test_the_rule_of_placement(replicas: int, slices: int, mesh: tuple[int, int, int]) -> None:
    config = tiny.run_config(tiny.synced(), replicas=replicas, batch=64)
    found = resources_for(config, chips=8, slices=slices)
    assert (found.replica, found.data, found.fsdp) == mesh
    assert found.devices == 8 * slices


def test_what_the_rule_cannot_place_is_told() -> None:
    config = tiny.run_config(tiny.synced(), batch=8)
    with pytest.raises(UserError, match="at most 4 chips"):
        resources_for(config, chips=8, slices=2)
    with pytest.raises(UserError, match="2 replicas on 3 slices"):
        resources_for(config, chips=4, slices=3)
    with pytest.raises(UserError, match="fsdp=3"):
        resources_for(config, chips=4, slices=2, fsdp=3)


def test_narrower_sharding_leaves_the_slice_to_data_parallelism() -> None:
    config = tiny.run_config(tiny.synced(), batch=64)
    assert resources_for(config, chips=8, slices=2, fsdp=2) == Resources(2, 4, 2, unroll=False, fence=True)
