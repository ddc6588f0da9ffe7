"""What disks, people and diverging runs do to checkpoints: what is restored is what was saved, or nothing."""

import itertools
import json
import random
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import cut_run
import jax
import numpy as np
import pytest
import rig
import tiny
from jax.experimental import multihost_utils

from repro.diloco.mesh import batch_sharding
from repro.errors import UserError
from repro.runs.folder import open_folder
from repro.training.checkpoint import METADATA, Checkpoints, Damaged
from repro.training.checksums import checksums
from repro.training.metrics import read_metrics
from repro.training.state import Layout, TrainState
from repro.training.step import Stepper

pytestmark = pytest.mark.compiles

# H = 6, τ = 3: after step 7 the codes of fragment 0 are on their way.
CONFIG = tiny.run_config(tiny.synced(every=6, delays=(3,), fragments=tiny.MERGED, codec="e3m0"), batch=8)
ALONE = tiny.corpus_config(None)
OLDER, NEWER = 7, 8


def trained(layout: Layout, folder: Path) -> TrainState:
    """Checkpoints of two steps in `folder`, and the state of the second."""
    stepper, state, checkpoints = Stepper(layout), rig.begin(layout), Checkpoints(folder)
    while state.step < NEWER:
        stepper(state, jax.device_put(rig.tokens(layout.config, state.step + 1), batch_sharding(layout.mesh)))
        if state.step >= OLDER:
            checkpoints.save(state)
    checkpoints.close()
    return state


def test_a_save_asks_no_preemption_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop asks it by its looks: a step between them would be taken for one, and a signal never be heard."""
    asked: list[int] = []
    monkeypatch.setattr(multihost_utils, "reached_preemption_sync_point", lambda step: bool(asked.append(step)))
    trained(Layout.of(ALONE, tiny.ONE), tmp_path)
    assert asked == []


def numbers(state: TrainState) -> Any:
    codes = {p: entry["codes"] for p, entry in state.flight.items()}
    return jax.tree.map(np.asarray, (state.params, state.inner, state.outer, codes))


def same(one: Any, other: Any) -> bool:
    return jax.tree.all(jax.tree.map(np.array_equal, one, other))


def files(checkpoint: Path) -> list[Path]:
    return sorted(path for path in checkpoint.rglob("*") if path.is_file())


def flip(path: Path) -> None:
    """Flip one bit, always the same one of a file of this name and size."""
    content = bytearray(path.read_bytes())
    content[random.Random(len(content)).randrange(len(content))] ^= 16
    path.write_bytes(content)


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def test_no_damage_to_any_file_goes_unnoticed(tmp_path: Path) -> None:
    layout, found = Layout.of(ALONE, tiny.ONE), 0
    saved = numbers(trained(layout, tmp_path / "whole"))
    others = itertools.cycle((halve, empty, Path.unlink))
    for path in files(tmp_path / "whole" / str(NEWER)):
        for damage in (flip, next(others)):
            spoiled = tmp_path / "spoiled"
            shutil.copytree(tmp_path / "whole", spoiled)
            damage(spoiled / path.relative_to(tmp_path / "whole"))
            checkpoints = Checkpoints(spoiled)
            try:
                assert same(numbers(checkpoints._restore(layout, NEWER)), saved), (damage, path)
            except Damaged:
                found += 1
            checkpoints.close()
            shutil.rmtree(spoiled)
    assert found >= 6  # some files hold nothing that a restore needs


def test_wrong_numbers_in_sound_files_are_noticed(tmp_path: Path) -> None:
    layout = Layout.of(CONFIG, tiny.ONE)
    state = trained(layout, tmp_path)
    metadata = tmp_path / str(NEWER) / METADATA
    before = checksums({"params": state.params})[0]["params"][0]
    assert metadata.read_text(encoding="utf-8").count(str(before)) == 1
    metadata.write_text(metadata.read_text(encoding="utf-8").replace(str(before), str(before ^ 1)), encoding="utf-8")
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(UserError, match=f"step {NEWER} .*not those that were saved.*delete its folder"):
        checkpoints.restore(layout, NEWER)
    checkpoints.close()


@pytest.mark.parametrize("resources", [tiny.ONE, tiny.SHARDED], ids=["one device", "eight devices"])
def test_a_damaged_newest_one_gives_way_to_the_one_before_on_any_layout(resources: Any, tmp_path: Path) -> None:
    trained(Layout.of(CONFIG, tiny.TWO), tmp_path)
    checkpoints, layout = Checkpoints(tmp_path), Layout.of(CONFIG, resources)
    older = numbers(checkpoints.restore(layout, OLDER))
    for path in files(tmp_path / str(NEWER)):
        halve(path)
    told: list[str] = []
    state = checkpoints.newest(layout, told.append)
    assert state is not None
    assert state.step == OLDER
    assert same(numbers(state), older)
    assert len(told) == 1
    assert told[0].startswith(f"the checkpoint of step {NEWER} is damaged (")
    assert told[0].endswith(f"deleted; going on from step {OLDER}.")
    assert "\n" not in told[0]
    assert checkpoints.steps() == [OLDER]
    checkpoints.close()


def test_where_none_is_sound_all_stay_and_one_sentence_says_so(tmp_path: Path) -> None:
    layout = Layout.of(CONFIG, tiny.ONE)
    trained(layout, tmp_path)
    for step in (OLDER, NEWER):
        for path in files(tmp_path / str(step)):  # the numbers may lie in more than one of them
            halve(path)
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(UserError, match=rf"no checkpoint .*step {NEWER}: .*; step {OLDER}: .*to start afresh\.$"):
        checkpoints.newest(layout, lambda _: None)
    assert checkpoints.steps() == [OLDER, NEWER]
    checkpoints.close()


def test_a_checkpoint_of_before_there_were_checksums_is_restored(tmp_path: Path) -> None:
    layout = Layout.of(CONFIG, tiny.ONE)
    saved = numbers(trained(layout, tmp_path))
    metadata = tmp_path / str(NEWER) / METADATA
    metadata.write_text(
        json.dumps(json.loads(metadata.read_text(encoding="utf-8")) | {"custom_metadata": {}}), encoding="utf-8"
    )
    checkpoints = Checkpoints(tmp_path)
    assert same(numbers(checkpoints.restore(layout, NEWER)), saved)
    checkpoints.close()


def test_checksums_follow_their_formula_and_not_the_layout() -> None:
    found = []
    for resources in (tiny.ONE, tiny.TWO, tiny.SHARDED):
        state = rig.begin(Layout.of(CONFIG, resources))
        found.append(checksums({"params": state.params}))
    up = np.asarray(state.params["layers"]["up"])
    place = [leaf is state.params["layers"]["up"] for leaf in jax.tree.leaves(state.params)].index(True)
    bits = up.ravel().view(np.uint32).astype(object)
    expected = sum(int(x) * (2 * i + 1) for i, x in enumerate(bits)) % 2**32
    assert found[0][0]["params"][place] == expected
    assert found[0] == found[1] == found[2]
    assert found[0][1]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_not_saved(value: float, tmp_path: Path) -> None:
    state, checkpoints = rig.begin(Layout.of(CONFIG, tiny.TWO)), Checkpoints(tmp_path)
    rows = state.outer[1]["state"][0].trace
    name = next(iter(rows))
    spoiled = np.array(rows[name])
    spoiled.flat[-1] = value
    rows[name] = jax.device_put(spoiled, rows[name].sharding)
    with pytest.raises(UserError, match="after step 0 are not finite: they were not saved"):
        checkpoints.save(state)
    checkpoints.close()
    assert Checkpoints(tmp_path).steps() == []


def test_a_run_that_diverges_leaves_its_last_good_checkpoint_from_which_it_ends_as_if_it_had_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, smoke_tokens: Path
) -> None:
    whole = cut_run.run(ALONE, tiny.ONE, tmp_path / "whole", smoke_tokens)
    call = Stepper.__call__

    def spoiled(self: Stepper, state: TrainState, tokens: jax.Array) -> Any:
        done = call(self, state, tokens)
        if state.step == 2 * cut_run.EVERY:  # the loss of this step is still finite
            up = state.params["layers"]["up"]
            state.params["layers"]["up"] = jax.device_put(np.full(up.shape, np.nan, up.dtype), up.sharding)
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Stepper, "__call__", spoiled)
        patch.setattr(Stepper, "free", lambda *_: 0)  # each call is a step
        for _ in range(2):
            with pytest.raises(UserError, match=f"the parameters after step {2 * cut_run.EVERY} are not finite"):
                cut_run.run(ALONE, tiny.ONE, tmp_path / "cut", smoke_tokens)
    folder = open_folder(tmp_path / "cut", ALONE)
    assert [int(path.name) for path in folder.checkpoints.iterdir()] == [cut_run.EVERY]
    cut_run.run(ALONE, tiny.ONE, tmp_path / "cut", smoke_tokens)
    assert (
        read_metrics(folder.metrics)
        .drop_columns(["seconds"])
        .equals(read_metrics(whole.metrics).drop_columns(["seconds"]))
    )


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a full disk: what is written past `size` bytes of a file fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_ends_the_run_with_one_sentence_and_it_goes_on_when_there_is_room(
    tmp_path: Path, smoke_tokens: Path, capfd: pytest.CaptureFixture
) -> None:
    whole = cut_run.run(ALONE, tiny.ONE, tmp_path / "whole", smoke_tokens)
    folder = open_folder(tmp_path / "cut", ALONE)
    held = []

    def fill(message: dict[str, Any]) -> None:
        if message["stage"] == "training" and message["step"] > cut_run.EVERY and not held:
            while not (folder.checkpoints / str(cut_run.EVERY)).is_dir():
                pass
            held.append(files_of_at_most(12_000))
            held[0].__enter__()

    try:
        # What pytest captures lies in a file too, which the limit must not reach.
        with capfd.disabled(), pytest.raises(UserError, match=r"could not be written \(.*free some space"):
            cut_run.run(ALONE, tiny.ONE, tmp_path / "cut", smoke_tokens, report=fill)
    finally:
        held[0].__exit__(None, None, None)
    assert folder.summary() is None
    # What still writes of the save that failed would have ended with its process: here it keeps its path for itself.
    folder = open_folder((tmp_path / "cut").rename(tmp_path / "again"), ALONE)
    told: list[dict[str, Any]] = []
    cut_run.run(ALONE, tiny.ONE, tmp_path / "again", smoke_tokens, report=told.append)
    assert min(m["step"] for m in told if m["stage"] == "training") == cut_run.EVERY + 1
    ours, theirs = (read_metrics(f.metrics).drop_columns(["seconds"]) for f in (folder, whole))
    assert ours.equals(theirs)


def test_a_run_tells_of_the_damage_and_ends_as_if_there_had_been_none(tmp_path: Path, smoke_tokens: Path) -> None:
    config = replace(ALONE, steps=20)
    folder = cut_run.run(config, tiny.ONE, tmp_path, smoke_tokens)
    whole, curve = folder.summary(), read_metrics(folder.metrics).drop_columns(["seconds"])
    (folder.path / "summary.json").unlink()
    for path in files(folder.checkpoints / "20"):
        halve(path)
    told: list[dict[str, Any]] = []
    noted: dict[str, Any] = {}
    cut_run.run(config, tiny.ONE, tmp_path, smoke_tokens, report=told.append, note=noted.update)
    warning = "the checkpoint of step 20 is damaged"
    assert [m["step"] for m in told if m.get("warning", "").startswith(warning)] == [14]
    assert len(noted["warnings"]) == 1
    assert read_metrics(folder.metrics).drop_columns(["seconds"]).equals(curve)
    again = folder.summary()
    assert again is not None
    assert whole is not None
    assert again["validations"] == whole["validations"]
