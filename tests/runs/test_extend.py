"""A finished run is extended to what one trained from the beginning with the same schedule would be, bit for bit."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny

from analysis.paper.assumptions import assumptions
from repro.commands.cli import main
from repro.errors import UserError
from repro.runs.extend import extend, longer
from repro.runs.folder import open_folder
from repro.spec.config import RunConfig
from repro.spec.identity import config_text, run_id

T, MORE = 7, 9
# H = 6, τ = 2: codes are on their way after step 7, the last of the shorter run.
SHORT = tiny.corpus_config(tiny.synced(every=6, delays=(2,), fragments=tiny.MERGED, codec="e3m0"), steps=T)


def finished(config: RunConfig, root: Path) -> Path:
    """A run folder with the least that `extend` looks at."""
    folder = open_folder(root, config)
    folder.write_summary({"run_id": folder.run_id})
    for name in ("metrics", "syncs", f"checkpoints/{config.steps}"):
        (folder.path / name).mkdir(parents=True)
        (folder.path / name / "file").write_text(name, encoding="utf-8")
    return folder.path


@pytest.mark.compiles
def test_the_longer_run_is_the_shorter_one_up_to_its_end() -> None:
    from repro.diloco.optim import learning_rate

    long = longer(SHORT, MORE)
    rates = [learning_rate(long.inner, t, long.steps) for t in range(1, long.steps + 1)]
    assert rates[:T] == [learning_rate(SHORT.inner, t, T) for t in range(1, T + 1)]
    assert rates[T:] == [SHORT.inner.learning_rate * SHORT.inner.final_fraction] * MORE
    assert longer(longer(SHORT, 4), 5) == long  # in two goes as in one
    assert run_id(long) != run_id(replace(SHORT, steps=T + MORE))
    assert "schedule_steps" not in config_text(SHORT)


def test_the_schedule_is_a_named_assumption() -> None:
    def key(config: RunConfig) -> list[str]:
        return [made.choice for made in assumptions(config) if made.key == "schedule of an extended run"]

    assert key(SHORT) == []
    assert key(longer(SHORT, MORE)) == ["that of 7 steps, then its final rate to step 16"]


def test_the_folder_of_the_longer_run_holds_what_it_starts_from(tmp_path: Path, smoke_tokens: Path) -> None:
    finished(SHORT, tmp_path)
    for _ in range(2):
        folder = extend(tmp_path, run_id(SHORT), MORE, smoke_tokens.parents[1])
        assert folder.run_id == run_id(longer(SHORT, MORE))
        assert (folder.path / "checkpoints" / str(T) / "file").exists()
        assert json.loads((folder.path / "extended.json").read_text(encoding="utf-8")) == {
            "run": run_id(SHORT),
            "step": T,
        }
        assert not list(folder.path.rglob(".part-*"))
        assert folder.summary() is None


def refused(root: Path, steps: int, tokens: Path) -> str:
    before = sorted(root.rglob("*"))
    with pytest.raises(UserError) as caught:
        extend(root, "smoke", steps, tokens.parents[1])
    assert sorted(root.rglob("*")) == before
    return str(caught.value)


def test_a_run_without_a_log_of_syncs_is_extended_too(tmp_path: Path, smoke_tokens: Path) -> None:
    alone = tiny.corpus_config(None, steps=T)
    path = finished(alone, tmp_path)
    shutil.rmtree(path / "syncs")
    folder = extend(tmp_path, run_id(alone), MORE, smoke_tokens.parents[1])
    assert sorted(p.name for p in folder.path.iterdir()) == ["checkpoints", "config.json", "extended.json", "metrics"]


def test_what_can_not_be_extended_is_one_sentence_and_writes_nothing(tmp_path: Path, smoke_tokens: Path) -> None:
    path = finished(SHORT, tmp_path)
    assert "--steps 0: a run is extended by one step or more" in refused(tmp_path, 0, smoke_tokens)
    assert "need more than the one epoch" in refused(tmp_path, 10**6, smoke_tokens)
    shutil.rmtree(path / "checkpoints" / str(T))
    assert "has lost the checkpoint of its last step, 7" in refused(tmp_path, 1, smoke_tokens)
    (path / "summary.json").unlink()
    assert "is not finished" in refused(tmp_path, 1, smoke_tokens)
    shutil.rmtree(path)
    finished(replace(SHORT, inner=replace(SHORT.inner, final_fraction=0.0)), tmp_path)
    assert "ends at a learning rate of 0" in refused(tmp_path, 1, smoke_tokens)
    assert main(["extend", "nothing", "--steps", "1", "--root", str(tmp_path)]) == 2


@pytest.mark.slow
def test_an_extension_ends_with_the_bits_of_a_run_from_the_beginning(tmp_path: Path, smoke_tokens: Path) -> None:
    import cut_run
    import jax
    import numpy as np

    from repro.training.checkpoint import Checkpoints
    from repro.training.metrics import read_metrics
    from repro.training.state import Layout

    long = longer(SHORT, MORE)
    layout = Layout.of(long, tiny.TWO)
    assert layout.in_flight(T) == [0]

    def final(root: Path) -> Any:
        checkpoints = Checkpoints(open_folder(root, long).checkpoints)
        state = checkpoints.restore(layout, long.steps)
        checkpoints.close()
        return jax.tree.map(np.asarray, (state.params, state.inner, state.outer))

    cut_run.run(SHORT, tiny.TWO, tmp_path / "two", smoke_tokens)
    extend(tmp_path / "two", run_id(SHORT), MORE, smoke_tokens.parents[1])
    steps: list[int] = []
    two = cut_run.run(long, tiny.TWO, tmp_path / "two", smoke_tokens, report=lambda m: steps.append(m["step"]))
    assert min(step for step in steps if step) >= T
    one = cut_run.run(long, tiny.TWO, tmp_path / "one", smoke_tokens)
    jax.tree.map(np.testing.assert_array_equal, final(tmp_path / "two"), final(tmp_path / "one"))
    # The shorter run was validated at its end, where the longer one has no reason to be.
    ours, theirs = (read_metrics(f.metrics).drop_columns(["seconds", "validation_loss"]) for f in (two, one))
    assert ours.equals(theirs)
    one_summary, two_summary = one.summary(), two.summary()
    assert one_summary is not None
    assert two_summary is not None
    assert two_summary["validations"] == one_summary["validations"]
