"""Numbers that are what they say: each case names the fault, found by use, that it holds."""

import argparse
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.registry import load
from repro.diloco.jax_settings import FLAGS, LITTLE_EFFORT, PINNED, clean, in_force, pin
from repro.errors import UserError
from repro.evaluation import evaluator
from repro.results.collected import load as load_records
from repro.results.collected import save
from repro.results.read import Result
from repro.runs import worker
from repro.runs.provenance import MARK, commit, dirty
from repro.runs.sweep import environment
from repro.spec.experiment import expand
from repro.spec.identity import config_text

KEPT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "2",
    "JAX_COMPILATION_CACHE_DIR": "gs://bucket/xla",
    "JAX_COORDINATOR_ADDRESS": "host:1",
    "JAX_LOG_COMPILES": "1",
    "JAX_DEBUG_NANS": "1",
    "XLA_FLAGS": "--xla_dump_to=x --xla_force_host_platform_device_count=4",
    "PATH": "/bin",
}
TAKEN_OUT = {
    "JAX_THREEFRY_PARTITIONABLE": "0",
    "JAX_DEFAULT_PRNG_IMPL": "rbg",
    "JAX_ENABLE_X64": "1",
    "JAX_DEFAULT_MATMUL_PRECISION": "bfloat16",
    "JAX_USE_HLO_LOGISTIC_LOWERING": "1",  # of a later JAX than one of those that are pinned here
    "JAX_NO_SUCH_SETTING_YET": "1",
    "NVIDIA_TF32_OVERRIDE": "0",
}
OTHER_VALUES = {
    "jax_threefry_partitionable": False,
    "jax_default_prng_impl": "rbg",
    "jax_enable_x64": True,
    "jax_random_seed_offset": 1,
    "jax_default_matmul_precision": "highest",
    "jax_numpy_dtype_promotion": "strict",
}


def test_settings_of_jax_that_may_change_a_number_are_taken_out_and_all_others_kept():
    assert clean(KEPT | TAKEN_OUT) == KEPT


@pytest.mark.parametrize("variable", FLAGS)
@pytest.mark.parametrize("word", ["--xla_cpu_enable_fast_math=true", "--xla_backend_optimization_level=3", "flags.txt"])
def test_a_flag_of_xla_that_may_change_a_number_is_refused_by_its_name(variable: str, word: str):
    with pytest.raises(UserError, match=f"{variable} holds '{word}'"):
        clean({variable: f"--xla_dump_to=x {word}"})


def test_the_environment_of_a_sweep_holds_no_setting_that_changes_a_number(monkeypatch: pytest.MonkeyPatch):
    for name, value in TAKEN_OUT.items():
        monkeypatch.setenv(name, value)
    assert not TAKEN_OUT.keys() & environment(smoke=True).keys()
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=x --xla_backend_optimization_level=0")
    assert environment(smoke=False)["XLA_FLAGS"].endswith(" ".join(LITTLE_EFFORT))  # the last word wins
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    with pytest.raises(UserError, match="fast_math"):
        environment(smoke=False)


def test_what_a_process_set_by_hand_is_put_back_and_what_is_in_force_is_told(monkeypatch: pytest.MonkeyPatch):
    import jax

    pin()
    before = in_force()
    for name, value in TAKEN_OUT.items():
        monkeypatch.setenv(name, value)
    try:
        for name, value in OTHER_VALUES.items():
            jax.config.update(name, value)
        assert in_force() != before
    finally:
        pin()
    assert in_force() == before
    assert not TAKEN_OUT.keys() & os.environ.keys()
    known = {name: value for name, value in PINNED.items() if name in jax.config.values}
    assert before == known | {"XLA_FLAGS": os.environ["XLA_FLAGS"].strip()}


def _train(_: Path) -> object:
    from repro.training import loop

    return loop.train(*[None] * 5)  # type: ignore[arg-type]


def _train_command(tmp_path: Path) -> object:
    from repro.commands import train as train_cli

    config = tmp_path / "config.json"
    config.write_text(config_text(expand(load("table3"), "smoke")[0].config), encoding="utf-8")
    parser = argparse.ArgumentParser()
    train_cli.add_arguments(parser)
    return train_cli.main(parser.parse_args([str(config), "--root", str(tmp_path)]))


def _bench(_: Path) -> object:
    from repro.commands import bench

    return bench.main()


def _compile(_: Path) -> object:
    from repro.commands import compile as compile_cli

    return compile_cli._compile(argparse.Namespace(), [], (), [])


def _export(_: Path) -> object:
    from repro.commands import export

    return export._parameters(None, argparse.Namespace())  # type: ignore[arg-type]


ENTRIES: dict[str, Callable[[Path], object]] = {
    "train in Python": _train,
    "train": _train_command,
    "worker": worker._configure_jax,
    "evaluator": evaluator._configure_jax,
    "compile": _compile,
    "export": _export,
    "bench": _bench,
}


@pytest.mark.parametrize("name", ENTRIES)
def test_every_process_that_computes_pins_before_it_does_anything(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    monkeypatch.setattr("sys.argv", ["bench"])
    monkeypatch.setattr("repro.commands.train.Stop", object)  # it would answer the signals of the tests
    with pytest.raises(UserError, match="fast_math"):
        ENTRIES[name](tmp_path)


def _git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=e")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def _source(folder: Path) -> Path:
    """A source tree as an archive holds it."""
    (folder / MARK).parent.mkdir(parents=True)
    (folder / MARK).write_text("text", encoding="utf-8")
    return folder


def _repository(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    _git(folder, "init", "-q")
    (folder / "other").write_text("text", encoding="utf-8")
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "-m", "all")
    return folder


UNKNOWN = {"commit": "unknown", "dirty": None}


def test_the_commit_is_that_of_the_suites_own_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own = _repository(_source(tmp_path / "own"))
    assert len(commit(own)["commit"]) == 40 and commit(own)["dirty"] is False
    monkeypatch.setenv("GIT_DIR", str(_repository(tmp_path / "elsewhere") / ".git"))  # as while a hook runs
    assert len(commit(own)["commit"]) == 40 and commit(own)["dirty"] is False
    (own / "other").write_text("changed", encoding="utf-8")
    assert commit(own)["dirty"] is True


def test_an_archive_unpacked_inside_another_repository_has_no_commit(tmp_path: Path):
    assert commit(_source(tmp_path / "plain")) == UNKNOWN
    assert commit(_source(_repository(tmp_path / "inside") / "suite")) == UNKNOWN
    home = _repository(tmp_path / "home")  # unpacked over its top, where it ignores what it doesn't hold
    (home / ".git" / "info").mkdir(exist_ok=True)
    (home / ".git" / "info" / "exclude").write_text("*", encoding="utf-8")
    assert commit(_source(home)) == UNKNOWN


def test_without_git_or_its_answer_nothing_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own = _repository(_source(tmp_path / "own"))
    (own / ".git" / "index").write_bytes(b"damaged")
    assert commit(own) == UNKNOWN
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(own) == UNKNOWN


@pytest.mark.parametrize(
    ("states", "expected"),
    [((), None), ((False,), False), ((None, False), None), ((True, False), True), ((True, None), True)],
)
def test_a_run_is_clean_when_every_attempt_at_it_was(states: tuple[bool | None, ...], expected: bool | None):
    assert dirty([{"dirty": state} for state in states]) is expected


def _finished(dirty: bool | None, loss: float = 3.0, evaluation: dict[str, object] | None = None) -> Result:
    run = expand(load("table5"), "smoke")[0]
    config, losses = run.config, {"validation_loss": loss, "validation_losses": {"outer": loss}}
    summary = {"run_id": run.run_id, "steps": config.steps, "tokens": config.tokens, **losses}
    return Result(run, summary, {"attempts": [{"commit": "c", "dirty": dirty}]}, evaluation=evaluation)


@pytest.mark.parametrize(("state", "why"), [(None, "no known commit"), (True, "uncommitted changes")])
def test_collect_lets_nothing_unclean_replace_what_is_clean(state: bool | None, why: str, tmp_path: Path):
    path, score = tmp_path / "r.json", {"eval_id": "few", "value": 1, "dirty": False}
    save([_finished(False, evaluation=score)], path)
    assert why in save([_finished(state, 2.0)], path).sentence
    assert "few" in save([_finished(False, evaluation=score | {"value": 2, "dirty": state})], path).sentence
    (record,) = load_records(path).values()
    assert record["summary"]["validation_loss"] == 3.0 and record["evaluations"]["few"]["value"] == 1
    assert not save([_finished(state, 2.0)], tmp_path / "new.json").refused  # it stands where nothing stood
    assert save([_finished(False)], tmp_path / "new.json").replaced
