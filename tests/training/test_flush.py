"""The final flush: its bytes, what is scored and exported, and a run that goes on without (oracle: test_diloco)."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import cut_run
import jax
import numpy as np
import pytest
import rig
import tiny
from safetensors.numpy import load_file

from repro.diloco import wire
from repro.errors import Interrupted, UserError
from repro.evaluation.evaluate import load_parameters
from repro.machines import hlo
from repro.results.safetensors import export
from repro.runs.extend import extend, longer
from repro.runs.folder import RunFolder
from repro.spec.actions import flush_involved
from repro.spec.config import CodecConfig, RunConfig, SyncConfig
from repro.spec.experiment import vary
from repro.spec.fragments import cut
from repro.spec.payload import fragment_bytes
from repro.spec.shapes import fragment_shapes
from repro.training.checkpoint import Checkpoints
from repro.training.metrics import read_metrics
from repro.training.scored import evaluated_parameters, lowered_flush
from repro.training.state import Layout

pytestmark = pytest.mark.compiles

WHOLE = tiny.run_config(replace(tiny.synced(fragments=tiny.WHOLE), flush="last"), steps=4)
KINDS = ("outer", "first", "average")
EXPORTS: dict[str, dict[str, Any]] = {"end": {}, "middle": {"step": 14}, "first": {"which": "first"}}


def flushing(**options: Any) -> SyncConfig:
    return replace(tiny.synced(**options), flush="last")


def test_the_flush_is_one_gather_of_the_payload_for_each_fragment() -> None:
    layout = Layout.of(tiny.run_config(flushing(codec="e3m0"), batch=8), tiny.SHARDED)
    items = flush_involved(layout.config.sync, layout.fragments, 2, 12, 12)
    compiled = lowered_flush(layout.recipe, tuple(item.action for item in items)).compile()
    axes = {"replica": 2, "data": 2, "fsdp": 2}
    sent = [c for c in hlo.collectives(compiled.as_text(), axes) if "replica" in c.axes]
    shapes = [fragment_shapes(tiny.MODEL, *f.kind) for f in layout.fragments]
    sizes = [wire.part_bytes(s, CodecConfig("e3m0"), fsdp=2, parts=1) for s in shapes]
    assert [c.kind for c in sent] == ["all-gather"] * 3
    assert sorted(c.results for c in sent) == sorted((("u8", (2, size)),) for size in sizes)
    # The embedding's one norm has five bytes, split in two: a byte of padding.
    assert 2 * sum(sizes) == sum(fragment_bytes(CodecConfig("e3m0"), s) for s in shapes) + 1


def test_a_flush_that_is_not_finite_ends_the_run_with_its_step_and_fragment() -> None:
    layout = Layout.of(WHOLE, tiny.TWO)
    state = rig.begin(layout)
    state.step = WHOLE.steps
    query = np.array(state.params["layers"]["query"])
    query[1, 1, 0, 0] = np.nan
    state.params["layers"]["query"] = jax.device_put(query, state.params["layers"]["query"].sharding)
    with pytest.raises(UserError, match="fragment 0 in the flush after step 4 is not finite"):
        evaluated_parameters(layout, state, "outer")
    evaluated_parameters(layout, state, "average")


STEPS = 16
# H = 6, τ = 2: codes are on their way after step 7 and after step 13, which is the end of the shorter run.
RUN = tiny.corpus_config(flushing(every=6, delays=(2,), fragments=tiny.MERGED, codec="e3m0"), steps=STEPS)
UNFLUSHED = replace(RUN, sync=replace(RUN.sync, flush="none"))


def final(folder: RunFolder, config: RunConfig, step: int) -> Any:
    checkpoints = Checkpoints(folder.checkpoints)
    state = checkpoints.restore(Layout.of(config, tiny.TWO), step)
    checkpoints.close()
    flight = {p: entry["codes"] for p, entry in state.flight.items()}
    return jax.tree.map(np.asarray, (state.params, state.inner, state.outer, flight))


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def losses(folder: RunFolder) -> dict[str, float]:
    """By the kind of parameters, of the summary."""
    summary = folder.summary()
    assert summary is not None
    return {name.split("-")[0]: entry["loss"] for name, entry in summary["validations"].items()}


def curve(folder: RunFolder) -> dict[int, float]:
    """Validation losses by step."""
    rows = read_metrics(folder.metrics).to_pylist()
    return {row["step"]: row["validation_loss"] for row in rows if row["validation_loss"] is not None}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, smoke_tokens: Path) -> tuple[RunFolder, RunFolder]:
    """A finished run with a flush, and the same run without one."""
    root = tmp_path_factory.mktemp("flush")
    return tuple(cut_run.run(config, tiny.TWO, root, smoke_tokens) for config in (RUN, UNFLUSHED))


def test_what_is_saved_is_unflushed_and_what_is_scored_is_not(both: tuple[RunFolder, RunFolder]) -> None:
    flushed, plain = both
    assert same(final(flushed, RUN, STEPS), final(plain, UNFLUSHED, STEPS))
    ours, theirs = losses(flushed), losses(plain)
    assert {kind: ours[kind] == theirs[kind] for kind in KINDS} == {"outer": False, "first": True, "average": True}
    assert len(set(ours.values())) == 3  # Table 3's kinds stay different
    assert curve(flushed)[STEPS] == ours["outer"]
    assert {t: x for t, x in curve(flushed).items() if t < STEPS} == {
        t: x for t, x in curve(plain).items() if t < STEPS
    }


def test_parameters_to_evaluate_and_export_are_flushed_at_the_end_alone(both: tuple[RunFolder, RunFolder]) -> None:
    flushed, plain = both
    for step in (14, STEPS):
        for kind in KINDS:
            ours = load_parameters(flushed, RUN, step, kind)[1]
            theirs = load_parameters(plain, UNFLUSHED, step, kind)[1]
            assert same(ours, theirs) == ((step, kind) != (STEPS, "outer"))
    layout = Layout.of(RUN, tiny.TWO)
    checkpoints = Checkpoints(flushed.checkpoints)
    here = evaluated_parameters(layout, checkpoints.restore(layout, STEPS), "outer")
    checkpoints.close()
    there = load_parameters(flushed, RUN, None, "outer")[1]  # on one device
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6), here, there)


@pytest.mark.parametrize(("stage", "step"), [("validating", STEPS), ("saving", STEPS)])
def test_a_run_that_is_cut_around_its_last_step_ends_the_same(
    both: tuple[RunFolder, RunFolder], stage: str, step: int, tmp_path: Path, smoke_tokens: Path
) -> None:
    """Cut before the last state is saved, and asked to stop after: the second time nothing but the scores are made."""

    def die(message: dict[str, Any]) -> None:
        if (message["stage"], message["step"]) == (stage, step):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cut_run.run(RUN, tiny.TWO, tmp_path, smoke_tokens, report=die)
    heard: dict[str, Any] = {}
    with pytest.raises(Interrupted, match="stopped after step 16 of 16; it is saved"):
        asked = lambda: heard.get("stage") == "validating" and heard["step"] == STEPS  # noqa: E731
        cut_run.run(RUN, tiny.TWO, tmp_path, smoke_tokens, report=heard.update, stop_asked=asked)
    again = cut_run.run(RUN, tiny.TWO, tmp_path, smoke_tokens)
    assert losses(again) == losses(both[0])
    assert curve(again) == curve(both[0])
    assert same(final(again, RUN, STEPS), final(both[0], RUN, STEPS))


def test_an_extended_run_goes_on_unflushed(tmp_path: Path, smoke_tokens: Path) -> None:
    short = replace(RUN, steps=13)
    long = longer(short, 13)
    cut_run.run(short, tiny.TWO, tmp_path / "two", smoke_tokens)
    folder = extend(tmp_path / "two", "smoke", 13, smoke_tokens.parents[1])
    two = cut_run.run(long, tiny.TWO, tmp_path / "two", smoke_tokens)
    assert two.run_id == folder.run_id
    one = cut_run.run(long, tiny.TWO, tmp_path / "one", smoke_tokens)
    assert same(final(two, long, 26), final(one, long, 26))
    assert losses(two) == losses(one)
    # The whole run is validated at 13, where the shorter one ends flushed; that one was validated at 7 as well.
    assert {t: x for t, x in curve(two).items() if t >= 13} == curve(one)


def test_an_export_says_that_it_is_flushed(
    both: tuple[RunFolder, RunFolder], tmp_path: Path, smoke_tokens: Path
) -> None:
    cache = smoke_tokens.parents[1]
    out = {name: export(both[0], cache, tmp_path / name, **asked) for name, asked in EXPORTS.items()}
    configs = {name: json.loads((path / "config.json").read_text(encoding="utf-8")) for name, path in out.items()}
    flushes = {name: facts.get("flush") for name, facts in configs.items()}
    assert flushes == {
        "end": "last",
        "middle": None,
        "first": None,
    }
    assert "after step 16 of 16 and a final flush" in (out["end"] / "README.md").read_text(encoding="utf-8")
    params = load_parameters(both[0], RUN, STEPS, "outer")[1]
    saved = load_file(out["end"] / "model.safetensors")
    np.testing.assert_array_equal(saved["layers.up"], params["layers"]["up"])


def test_data_parallel_has_no_flush_and_a_cut_has_one_program() -> None:
    assert flush_involved(None, (), 1, 12, 12) == ()
    with pytest.raises(UserError, match="flush='last': data-parallel has no sync"):
        vary(tiny.run_config(None, replicas=1), sync__flush="last")
    sync = flushing()
    pieces = cut(sync.fragments, 3)
    assert flush_involved(sync, pieces, 2, 11, 12) == ()
    items = flush_involved(sync, pieces, 2, 12, 12)
    assert [(item.fragment, item.taken) for item in items] == [(0, 12), (1, 12), (2, 12)]
    assert all(item.action.sync and not item.action.mix for item in items)
