"""A run in one process or in several: it agrees to rounding, and goes on from one to the other."""

import re
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import cut_run
import jax
import numpy as np
import process_rig
import pytest
import tiny
from held_runs import holding

from repro.commands.cli import main
from repro.corpus.tokens import Batches, open_tokens
from repro.diloco.resources import Resources
from repro.errors import UserError
from repro.runs.folder import RunFolder, open_folder
from repro.spec.config import RunConfig
from repro.spec.identity import config_text
from repro.training import processes
from repro.training.checkpoint import Checkpoints
from repro.training.loop import Pace, _Loop
from repro.training.metrics import read_metrics
from repro.training.processes import Cluster
from repro.training.state import Layout

CUT = 13  # codes of the send of step 12 are on their way
# Whole fragments, so that three programs do: syncs are taken at 4, 8, 12, and land two steps later.
CONFIG = tiny.corpus_config(tiny.synced(every=4, delays=(2,), fragments=tiny.WHOLE))
SLICED = Resources(replica=2, data=1, fsdp=2, unroll=False)
SPREAD = Resources(replica=2, data=2, fsdp=1, unroll=False)


def options(resources: Resources) -> list[str]:
    mesh = {"replica": resources.replica, "data": resources.data, "fsdp": resources.fsdp}
    return [word for axis, extent in mesh.items() for word in (f"--{axis}", str(extent))]


def in_processes(config: RunConfig, root: Path, tokens: Path, devices: list[int], resources: Resources) -> RunFolder:
    """Train in one process an entry of `devices`, to the end."""
    words = [*options(resources), "--checkpoint-every", str(CUT)]
    cast = process_rig.launch(config, root, tokens.parents[1], devices=devices, options=words)
    for code, output in cast.wait():
        assert code == 0, output
    return open_folder(root, config)


def curve(folder: RunFolder) -> dict[str, list[Any]]:
    return read_metrics(folder.metrics).to_pydict()


def losses(folder: RunFolder) -> np.ndarray:
    """(steps, M)."""
    found = curve(folder)
    return np.array([found[name] for name in found if name.startswith("loss_")], np.float32).T


def final(folder: RunFolder, config: RunConfig) -> Any:
    checkpoints = Checkpoints(folder.checkpoints)
    state = checkpoints.restore(Layout.of(config, SPREAD if config.sync else tiny.ONE), config.steps)
    checkpoints.close()
    return jax.tree.map(np.asarray, (state.params, state.outer))


def assert_same_first_loss(ours: RunFolder, theirs: RunFolder) -> None:
    """To 4 ulp: nothing but the order of sums differs."""
    one, other = losses(ours)[0], losses(theirs)[0]
    assert np.all(np.abs(one - other) <= 4 * np.spacing(other)), (one, other)


def assert_close(ours: Any, theirs: Any, atol: float) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=atol), ours, theirs)


def cut_back(folder: RunFolder, step: int, last: int) -> None:
    """As if the run had been killed after its checkpoint of `step`."""
    shutil.rmtree(folder.checkpoints / str(last))
    (folder.path / "summary.json").unlink()
    checkpoints = Checkpoints(folder.checkpoints)
    assert checkpoints.steps() == [step]
    checkpoints.close()


@pytest.mark.compiles
def test_two_processes_agree_with_one_which_goes_on_from_their_checkpoint(tmp_path: Path, smoke_tokens: Path) -> None:
    two = in_processes(CONFIG, tmp_path / "two", smoke_tokens, [2, 2], SLICED)
    one = cut_run.run(CONFIG, SPREAD, tmp_path / "one", smoke_tokens)
    assert curve(two)["step"] == list(range(1, CONFIG.steps + 1))
    assert_same_first_loss(two, one)
    parameters, validation = final(two, CONFIG), curve(two)["validation_loss"]
    assert_close(parameters, final(one, CONFIG), 1e-5)
    np.testing.assert_allclose(losses(two), losses(one), rtol=0, atol=1e-5)

    cut_back(two, CUT, CONFIG.steps)
    assert Layout.of(CONFIG, SPREAD).in_flight(CUT) == [0]
    again = cut_run.run(CONFIG, SPREAD, tmp_path / "two", smoke_tokens)
    assert_close(final(again, CONFIG), parameters, 1e-5)
    assert curve(again)["step"] == list(range(1, CONFIG.steps + 1))
    for ours, theirs in ((curve(again)["validation_loss"], validation), (validation, curve(one)["validation_loss"])):
        assert [x is None for x in ours] == [x is None for x in theirs]
        np.testing.assert_allclose([x or 0 for x in ours], [x or 0 for x in theirs], rtol=0, atol=1e-5)


E3M0 = tiny.corpus_config(tiny.synced(every=6, delays=(3,), fragments=tiny.MERGED, codec="e3m0"))
BLOCKING = replace(tiny.corpus_config(tiny.synced(every=3, delays=(0,), mix=0.0, fragments=tiny.MERGED)), batch=8)
ALONE = tiny.corpus_config(None)
LAYOUTS: dict[str, tuple[RunConfig, list[int], Resources]] = {
    "streaming-fsdp-1": (CONFIG, [2, 2], SPREAD),
    "streaming-one-process": (CONFIG, [4], SLICED),
    "e3m0-fsdp-1": (E3M0, [2, 2], SPREAD),
    "e3m0-fsdp-2": (E3M0, [2, 2], SLICED),
    "blocking": (BLOCKING, [2, 2], SLICED),
    "both-replicas-over-both-processes": (BLOCKING, [2, 2], Resources(replica=1, data=2, fsdp=2, unroll=False)),
    "data-parallel": (ALONE, [2, 2], Resources(data=2, fsdp=2, unroll=False)),
    "data-parallel-sharded-over-processes": (ALONE, [2, 2], Resources(fsdp=4, unroll=False)),
}


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.parametrize(("config", "devices", "resources"), LAYOUTS.values(), ids=LAYOUTS.keys())
def test_layouts_agree(
    config: RunConfig, devices: list[int], resources: Resources, tmp_path: Path, smoke_tokens: Path
) -> None:
    here = tiny.TWO if config.sync else tiny.ONE
    there = in_processes(config, tmp_path / "there", smoke_tokens, devices, resources)
    one = cut_run.run(config, here, tmp_path / "one", smoke_tokens)
    assert_same_first_loss(there, one)
    if config is E3M0:  # codes flip on rounding errors
        np.testing.assert_allclose(losses(there), losses(one), rtol=0, atol=1e-4)
    else:
        assert_close(final(there, config), final(one, config), 1e-5)


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_one_process_asked_to_stop_stops_all_at_one_step_with_the_state_saved(
    sign: signal.Signals, tmp_path: Path, smoke_tokens: Path
) -> None:
    config = replace(CONFIG, steps=20_000, repeat_data=True)
    folder = open_folder(tmp_path, config)
    cast = process_rig.launch(
        config, tmp_path, smoke_tokens.parents[1], devices=[1, 1], options=["--checkpoint-every", "50"]
    )
    while not (folder.checkpoints / "50").is_dir() and all(m.poll() is None for m in cast.members):
        time.sleep(0.1)
    cast.members[1].send_signal(sign)
    done = cast.wait()
    assert [code for code, _ in done] == [42, 42], done
    stopped = re.search(r"stopped after step (\d+) of 20000; it is saved", done[0][1])
    assert stopped is not None
    step = int(stopped[1])
    assert f"stopped after step {step} of 20000" in done[0][1]
    assert (folder.checkpoints / str(step)).is_dir()
    assert curve(folder)["step"] == list(range(1, step + 1))
    assert folder.summary() is None


@pytest.mark.slow
@pytest.mark.compiles
def test_a_folder_in_use_ends_all_processes_with_one_sentence(tmp_path: Path, smoke_tokens: Path) -> None:
    with holding(open_folder(tmp_path, CONFIG), lease_s=3.0):
        cast = process_rig.launch(CONFIG, tmp_path, smoke_tokens.parents[1], devices=[1, 1])
        for code, output in cast.wait():
            assert code == 2, output
            assert "is being trained by another process" in output
            assert "Traceback" not in output


@pytest.mark.parametrize(
    "resources", [tiny.ONE, tiny.TWO, tiny.SHARDED, SPREAD, Resources(1, 2, 2, unroll=False)], ids=str
)
def test_each_device_gets_its_own_rows_of_the_batch(resources: Resources, tmp_path: Path, smoke_tokens: Path) -> None:
    config = replace(CONFIG, batch=8)
    text = open_tokens(smoke_tokens)
    shares = config.replicas * resources.data * resources.fsdp
    batches = Batches(text, 8, config.batch, shares, config.seed)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    layout = Layout.of(config, resources)
    loop = _Loop(layout, RunFolder(tmp_path, "x"), batches, text, checkpoints, Pace(1, 1), lambda _: None)
    plain = Batches(text, 8, config.batch, config.replicas, config.seed)
    for step in (1, 5):
        rows = np.stack([plain.batch(step - 1, m) for m in range(config.replicas)])
        np.testing.assert_array_equal(np.asarray(loop._tokens(step)), rows)
    checkpoints.close()


def test_losses_of_all_replicas_come_from_the_processes_that_hold_them() -> None:
    # Three replicas over two processes; the middle one spans both. What a process doesn't hold counts for nothing.
    rows = np.array([[1, 2, np.nan], [4, 5, 6]], np.float32)
    held = np.array([[1, 1, 0], [0, 1, 1]], np.float32)
    every = np.stack([[np.stack([np.where(own, row, -1), own]) for row in rows] for own in held])
    np.testing.assert_array_equal(processes.merged(every), rows)


FIRST = (
    "import sys; from repro.training.processes import Cluster, join; join(Cluster(False, sys.argv[1], 2, 0, 1), 2.0)"
)


@pytest.mark.compiles
def test_who_waits_for_the_others_in_vain_ends_with_a_sentence_and_42(tmp_path: Path) -> None:
    """As process 0, which the others should come to, and as another, which finds none; JAX itself would abort."""
    config = tmp_path / "config.json"
    config.write_text(config_text(CONFIG), encoding="utf-8")
    places = [f"127.0.0.1:{process_rig.free_port()}" for _ in range(2)]
    second = ["-m", "repro", "train", str(config), "--root", str(tmp_path / "runs"), "--cache", str(tmp_path)]
    second += ["--coordinator", places[1], "--processes", "2", "--process", "1", "--meet-within", "2"]
    cast = process_rig.start([[sys.executable, "-c", FIRST, places[0]], [sys.executable, *second]])
    for code, output in cast.wait():
        assert code == 42, output
        assert (
            "the processes of the run did not meet (not all were there within 2 seconds): start all of them" in output
        )
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("cluster", "sentence"),
    [
        (dict(coordinator="here:1"), "give all three, or none of them"),
        (dict(processes=2, process=0), "give all three, or none of them"),
        (dict(detected=True, coordinator="here:1", processes=2, process=0), "give all three, or none of them"),
        (dict(coordinator="here:1", processes=2, process=2), "process=2 of 2: processes are numbered from 0"),
    ],
)
def test_a_cluster_that_can_not_be_is_one_sentence(cluster: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Cluster(**cluster)


def test_no_time_to_meet_is_one_sentence() -> None:
    with pytest.raises(UserError, match="--meet-within 0: give the others some seconds"):
        processes.join(Cluster(), 0.0)


def test_a_missing_config_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["train", str(tmp_path / "config.json")]) == 2
    assert "give the config.json of a run" in capsys.readouterr().err
