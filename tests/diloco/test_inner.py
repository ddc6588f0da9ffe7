"""The inner step cut over devices, groups, microbatches and parts of a sequence: always the oracle's trajectory."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import rig
import tiny
from jax.experimental.pallas import tpu as pltpu

from repro.diloco.attention import attention_for, flash
from repro.diloco.derivatives import causal_attention
from repro.diloco.mesh import DATA, REPLICA, ROWS, make_mesh
from repro.diloco.resources import Resources
from repro.errors import UserError
from repro.machines.hlo import collectives
from repro.spec.config import RunConfig
from repro.spec.shapes import parameter_count
from repro.training.state import Layout
from repro.training.step import Stepper

ATOL = 1e-5
LOSS_BYTES = 4
STREAMING = tiny.synced(every=3, delays=(1,), fragments=tiny.WHOLE)
LAYOUTS = {
    "microbatches": Resources(replica=2, microbatches=2, unroll=False),
    "microbatches-of-fsdp": Resources(replica=2, fsdp=2, microbatches=2, unroll=False),
    "groups-and-microbatches": Resources(replica=2, data=2, fsdp=2, microbatches=2, unroll=False),
    "parts-of-a-sequence": Resources(replica=2, fsdp=4, sequence=2, unroll=False),
}


@pytest.mark.compiles
@pytest.mark.parametrize("resources", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_batch_however_cut_follows_the_oracle(resources: Resources) -> None:
    config = tiny.run_config(STREAMING, batch=16, steps=4)
    rig.assert_follows(rig.drive(config, resources), rig.expected(config), ATOL)


@pytest.mark.compiles
def test_gradients_of_groups_cross_once_a_step() -> None:
    """Data-parallel: one collective over `data` for all parameters, whatever the microbatches, and the loss."""
    config = tiny.run_config(None, replicas=1, batch=16)
    resources = Resources(data=2, fsdp=2, microbatches=2, unroll=False)
    over_data = [c for c in _collectives(config, resources) if DATA in c.axes]
    assert {c.kind for c in over_data} == {"all-reduce"}
    # XLA may join the two. Values are float32 here, and the norms are split over two devices, with one of padding.
    moved = 2 * sum(c.bytes for c in over_data)
    assert 0 <= moved - 2 * LOSS_BYTES - 4 * parameter_count(config.model) <= 4


@pytest.mark.compiles
def test_tokens_are_looked_up_in_their_own_group() -> None:
    """Two rows a device of a long vocabulary: left alone, XLA looks some up on devices of the other group."""
    model = replace(tiny.MODEL, vocab=4096, ffn_width=512, seq_len=128, layers=1)
    config = tiny.run_config(None, replicas=1, batch=256, model=model)
    resources = Resources(data=2, fsdp=4, microbatches=16, unroll=False)
    assert {c.kind for c in _collectives(config, resources) if DATA in c.axes} == {"all-reduce"}


@pytest.mark.compiles
@pytest.mark.parametrize("resources", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_step_without_an_event_crosses_no_replicas(resources: Resources) -> None:
    config = tiny.run_config(STREAMING, batch=16)
    assert not [c for c in _collectives(config, resources) if REPLICA in c.axes]


def _collectives(config: RunConfig, resources: Resources):
    stepper = Stepper(Layout.of(config, resources))
    text = stepper.lower(()).compile().as_text()
    return collectives(text, stepper.layout.mesh.shape)


@pytest.mark.compiles
def test_the_flash_kernel_is_the_plain_attention() -> None:
    """In Pallas' TPU interpreter: values and the three gradients, float32, at the paper's head size."""
    keys = jax.random.split(jax.random.key(0), 4)
    q, k, v, g = (jax.random.normal(key, (1, 128, 1, 64)) for key in keys)
    placed = attention_for("flash", make_mesh(Resources()), (DATA, ROWS))
    with pltpu.force_tpu_interpret_mode():
        np.testing.assert_allclose(placed(q / 8, k, v), causal_attention(q / 8, k, v), rtol=0, atol=2e-5)
        theirs = jax.vjp(flash, q / 8, k, v)  # the interpreter has no derivative under `jax.checkpoint`
        flashed = theirs[0], *theirs[1](g)
    plain = jax.vjp(causal_attention, q / 8, k, v)
    for ours, other in zip((plain[0], *plain[1](g)), flashed, strict=True):
        np.testing.assert_allclose(ours, other, rtol=0, atol=2e-5)


def test_what_does_not_divide_is_told() -> None:
    config = tiny.run_config(STREAMING, batch=16)
    for resources, words in (
        (Resources(replica=2, microbatches=3), "microbatches=3 of 8 sequences"),
        (Resources(replica=2, fsdp=4, sequence=3), "sequence=3 does not divide fsdp=4"),
        (Resources(replica=2, fsdp=4, sequence=4), "the 2 heads"),
        (Resources(replica=2, attention="flash"), "attention='flash' with 8 positions"),
    ):
        with pytest.raises(UserError, match=words):
            resources.check(config)
    with pytest.raises(UserError, match="attention='none'"):
        Resources(replica=2, attention="none")
