"""The training loop: what ends a run, and what it refuses before it compiles anything."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import cut_run
import jax
import numpy as np
import pytest
import tiny

from repro.corpus.tokens import Batches, open_tokens
from repro.diloco.resources import local_resources
from repro.errors import UserError
from repro.runs.folder import open_folder
from repro.spec.config import RunConfig
from repro.spec.validation import validation_interval
from repro.training.metrics import read_metrics
from repro.training.state import TrainState
from repro.training.step import Stepper

pytestmark = pytest.mark.compiles

DILOCO = tiny.corpus_config(tiny.synced(every=3, delays=(0,), mix=0.0, fragments=tiny.WHOLE, codec="bfloat16"))
ALONE = tiny.corpus_config(None)


def poison(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Make one parameter of the last replica NaN before `step`."""
    call = Stepper.__call__

    def spoiled(self: Stepper, state: TrainState, tokens: jax.Array) -> Any:
        if state.step + 1 == step:
            up = np.array(state.params["layers"]["up"])
            up[-1, 0, 0, 0] = np.nan
            state.params["layers"]["up"] = jax.device_put(up, state.params["layers"]["up"].sharding)
        return call(self, state, tokens)

    monkeypatch.setattr(Stepper, "__call__", spoiled)
    monkeypatch.setattr(Stepper, "free", lambda *_: 0)  # each call is a step


def test_a_non_finite_outer_gradient_ends_the_run_with_the_name_of_the_fragment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, smoke_tokens: Path
) -> None:
    poison(monkeypatch, step=6)
    with pytest.raises(UserError, match=r"fragment 0 \(layers 0, 1, 2 and embedding\) applied at step 6 is not finite"):
        cut_run.run(DILOCO, tiny.TWO, tmp_path, smoke_tokens)
    assert open_folder(tmp_path, DILOCO).summary() is None


def test_a_non_finite_loss_ends_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, smoke_tokens: Path) -> None:
    poison(monkeypatch, step=4)
    with pytest.raises(UserError, match=r"the loss of step 4 is \[.*nan\]: lower the learning rate"):
        cut_run.run(ALONE, tiny.ONE, tmp_path, smoke_tokens)


def test_a_run_leaves_its_curve_and_summary(tmp_path: Path, smoke_tokens: Path) -> None:
    seen: list[dict[str, Any]] = []
    folder = cut_run.run(DILOCO, tiny.TWO, tmp_path, smoke_tokens, report=seen.append)
    curve, summary = read_metrics(folder.metrics).to_pydict(), folder.summary()
    assert summary is not None
    assert curve["step"] == list(range(1, DILOCO.steps + 1))
    every = validation_interval(DILOCO)
    assert [s for s, x in zip(curve["step"], curve["validation_loss"], strict=True) if x is not None] == [
        s for s in curve["step"] if s % every == 0 or s == DILOCO.steps
    ]
    assert curve["loss_0"] != curve["loss_1"]
    assert summary["validations"]["outer-64"]["loss"] == curve["validation_loss"][-1]
    assert summary["tokens"] == DILOCO.tokens == DILOCO.steps * 4 * 8
    # Untrained, a model of 256 tokens is at ln 256 = 5.55 nats.
    assert 3.5 < summary["validations"]["average-64"]["loss"] < 5.6
    assert [m["step"] for m in seen if m["stage"] == "training"] == curve["step"]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (replace(ALONE, model=replace(ALONE.model, vocab=128)), "has a vocabulary of 256 and the model 128"),
        (replace(ALONE, steps=1_000_000), "1000000 steps of 4×8 tokens need more than the one epoch"),
        (replace(ALONE, model=replace(ALONE.model, seq_len=10**7)), "too few for one sequence of 10000000"),
    ],
)
def test_what_does_not_fit_the_tokens_is_one_sentence(
    config: RunConfig, sentence: str, tmp_path: Path, smoke_tokens: Path
) -> None:
    with pytest.raises(UserError, match=sentence):
        cut_run.run(config, tiny.ONE, tmp_path, smoke_tokens)
    assert open_folder(tmp_path, config).summary() is None


def test_a_batch_that_does_not_divide_over_devices_is_one_sentence(tmp_path: Path, smoke_tokens: Path) -> None:
    with pytest.raises(UserError, match="4 sequences a replica over data=8"):
        cut_run.run(ALONE, replace(tiny.ONE, data=8), tmp_path, smoke_tokens)


@pytest.mark.parametrize(
    ("config", "devices", "mesh"),
    [
        (ALONE, 1, (1, 1, 1)),
        (ALONE, 2, (1, 2, 1)),
        (ALONE, 3, (1, 2, 1)),  # four sequences don't divide over three
        (DILOCO, 1, (1, 1, 1)),
        (DILOCO, 8, (2, 1, 2)),  # two sequences a replica
        (tiny.run_config(tiny.synced(), replicas=3, batch=6), 2, (1, 1, 2)),
    ],
)
def test_the_default_placement(config: RunConfig, devices: int, mesh: tuple[int, int, int]) -> None:
    found = local_resources(config, devices)
    assert (found.replica, found.data, found.fsdp) == mesh
    found.check(config)


def test_all_methods_see_the_same_examples(smoke_tokens: Path) -> None:
    tokens = open_tokens(smoke_tokens)
    one, two = (Batches(tokens, 8, 4, replicas, seed=0) for replicas in (1, 2))
    for step in range(3):
        np.testing.assert_array_equal(one.batch(step, 0), np.concatenate([two.batch(step, 0), two.batch(step, 1)]))
