"""Programs compiled ahead of time for two TPU slices: overlap, bytes, memory. Skipped only where libtpu is missing."""

import base64
import importlib.util
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import rig
import tiny

from experiments.streaming.base import data_parallel, streaming
from repro.diloco import wire
from repro.errors import UserError
from repro.machines.compile import Topology, _program, compile_run, topology
from repro.machines.placement import Overrides, Placement, mesh_for, place, resources_for
from repro.machines.programs import Program, Programs
from repro.spec.actions import Action
from repro.spec.config import FragmentConfig, ModelConfig, RunConfig, SyncConfig
from repro.spec.shapes import fragment_shapes, parameter_shapes
from repro.training.state import Layout
from repro.training.step import Stepper

pytestmark = [pytest.mark.compiles]
needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")

MODEL = ModelConfig("tpu", layers=4, ffn_width=512, heads=1, vocab=256, seq_len=64, compute_dtype="bfloat16")
ONE_LAYER = FragmentConfig("sequential", layers=1, embedding="own")  # five fragments
LAYER = (1, False)
TILE_BYTES = 4096  # what the compiler fills arrays up to: 8 x 128 values of 32 bits
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
    resources = replace(mesh_for(config, 4, 2), outer_on_host=host)
    return of_pair(Stepper(Layout.of(config, resources, devices=list(pair().devices))), key)


def of_pair(stepper: Stepper, key: tuple[Action, ...]) -> Program:
    """One program of a stepper for the pair."""
    return _program(stepper, key, 1, pair(), Programs())


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
def test_gradients_travel_once_between_slices_as_bfloat16() -> None:
    """Data-parallel (M = 1, data = 2), two microbatches: all gradients in one transfer of 16 bits a value, the tied
    embedding's two as their sum; beside it the loss alone."""
    config = run_of(None)
    placed = Placement("v5e:2x2", 2, replace(resources_for(config, 4, 2), microbatches=2))
    found = compile_run(config, placed, pair(), Programs())
    assert found.fits and not found.tried
    (program,) = found.programs
    assert (program.name, program.steps, found.cycle) == ("inner step", 1, 1)
    loss, gradients = sorted(program.schedule.transfers, key=lambda t: t.bytes)
    assert (gradients.operation, gradients.dtype, gradients.members) == ("ALL_REDUCE", "bf16", 2)
    assert (loss.dtype, loss.times) == ("f32", 1) and loss.bytes <= TILE_BYTES
    assert found.bytes is not None
    values = sum(int(np.prod(s)) for leaves in parameter_shapes(MODEL).values() for s in leaves.values())
    assert found.bytes.payload == found.bytes.collective == 2 * values
    assert 2 * values <= 4 * gradients.bytes < 2 * values + 4 * TILE_BYTES  # each of four chips fills up a tile
    assert found.bytes.hlo == 4 * program.schedule.bytes == found.bytes.moved  # four chips a slice; a ring of two


@needs_libtpu
@pytest.mark.slow
def test_what_is_waited_for_does_not_overlap() -> None:
    """DiLoCo (τ = 0): everything in one transfer of 16 bits a value, after the inner update."""
    sync = tiny.synced(every=5, delays=(0,), mix=0.0, fragments=tiny.WHOLE, codec="bfloat16")
    config = tiny.run_config(sync, batch=16, steps=30, model=MODEL)
    stepper = Stepper(Layout.of(config, mesh_for(config, 4, 2), devices=list(pair().devices)))
    schedule = of_pair(stepper, stepper.key(5)).schedule
    (transfer,) = schedule.transfers
    assert transfer.start > schedule.updated and not transfer.independent
    values = sum(int(np.prod(s)) for leaves in parameter_shapes(MODEL).values() for s in leaves.values())
    assert 2 * values <= 4 * transfer.bytes < 2 * values + 4 * 4  # the norm gains split over four chips


@needs_libtpu
@pytest.mark.slow
def test_what_does_not_fit_says_by_how_much_and_what_would() -> None:
    """35M of the paper at four times its batch on chips of 16 GiB: microbatches are named, and compiled."""
    config = replace(data_parallel("35M"), model=replace(data_parallel("35M").model, layers=3))
    config = replace(config, sync=streaming(30), replicas=2, batch=256)
    asked = Overrides(microbatches=1, remat="none", attention="xla", outer_on_host=False)
    placed = replace(place(config, asked), resources=resources_for(config, 4, 2, asked=asked))
    found = compile_run(config, placed, pair(), Programs())
    assert found.tried and "GiB more than" in found.tried[0].reason
    assert found.fits and found.resources.microbatches > 1


@needs_libtpu
@pytest.mark.slow
def test_flash_attention_lowers_the_memory() -> None:
    """The library's kernel, in two microbatches, at the paper's head size and 1,024 positions."""
    wide = replace(MODEL, ffn_width=1024, heads=4, seq_len=1024)
    config = replace(run_of(1), model=wide)
    mesh = mesh_for(config, 4, 2)
    assert mesh.attention == "flash"
    totals = []
    for attention in ("flash", "xla"):
        resources = replace(mesh, attention=attention, microbatches=2)
        stepper = Stepper(Layout.of(config, resources, devices=list(pair().devices)))
        program = of_pair(stepper, ())
        assert program.schedule.transfers == ()
        totals.append(program.memory.total)
    assert totals[0] < 0.9 * totals[1]


@needs_libtpu
def test_a_program_is_known_wherever_the_checkout_lies() -> None:
    """A kernel carries the names of its source files, in base64: not of the folders they lie in."""
    config = replace(run_of(1), model=replace(MODEL, ffn_width=1024, heads=4, seq_len=1024))
    resources = mesh_for(config, 4, 2)
    assert resources.attention == "flash"
    stepper = Stepper(Layout.of(config, resources, devices=list(pair().devices)))
    kernels = re.findall(r"body\\22: \\22([A-Za-z0-9+/=]+)\\22", stepper.lower(()).as_text())
    assert kernels
    for kernel in map(base64.b64decode, kernels):
        assert b"attention" in kernel and str(Path(__file__).parents[2]).encode() not in kernel
        assert b"site-packages" not in kernel


@needs_libtpu
def test_an_unknown_topology_is_told() -> None:
    for name in ("v99:1x1", "v5e:3x77"):
        with pytest.raises(UserError, match="v5e:4x4"):
            topology(name, 2)


def test_libtpu_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"libtpu.*pip install"):
        topology("v5e:2x2", 2)


def test_a_fence_changes_nothing_but_the_schedule() -> None:
    """On CPU the trajectory is unchanged with the inner step in a loop of one trip."""
    config = tiny.run_config(tiny.synced(fragments=tiny.WHOLE), steps=6)
    free, fenced = (rig.drive(config, replace(tiny.TWO, fence=fence)) for fence in (False, True))
    for a, b in zip((*free.params[-1], *free.outer[-1]), (*fenced.params[-1], *fenced.outer[-1]), strict=True):
        rig.assert_close(a, b, 1e-6)
