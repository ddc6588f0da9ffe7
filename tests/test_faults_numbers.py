"""Numbers that are what they say: each case names the fault, found by use, that it holds."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from repro import evaluator, worker
from repro.errors import UserError
from repro.experiment import expand, load
from repro.identity import config_text
from repro.jax_settings import FLAGS, PINNED, clean, in_force, pin
from repro.sweep import environment

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
@pytest.mark.parametrize("word", ["--xla_cpu_enable_fast_math=true", "--xla_allow_excess_precision=false", "flags.txt"])
def test_a_flag_of_xla_that_may_change_a_number_is_refused_by_its_name(variable: str, word: str):
    with pytest.raises(UserError, match=f"{variable} holds '{word}'"):
        clean({variable: f"--xla_dump_to=x {word}"})


def test_the_environment_of_a_sweep_holds_no_setting_that_changes_a_number(monkeypatch: pytest.MonkeyPatch):
    for name, value in TAKEN_OUT.items():
        monkeypatch.setenv(name, value)
    assert not TAKEN_OUT.keys() & environment(smoke=True).keys()
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
    from repro import train

    return train.train(*[None] * 5)  # type: ignore[arg-type]


def _train_command(tmp_path: Path) -> object:
    from repro import train_cli

    config = tmp_path / "config.json"
    config.write_text(config_text(expand(load("table3"), "smoke")[0].config))
    parser = argparse.ArgumentParser()
    train_cli.add_arguments(parser)
    return train_cli.main(parser.parse_args([str(config), "--root", str(tmp_path)]))


def _bench(_: Path) -> object:
    from repro import bench

    return bench.main()


def _compile(_: Path) -> object:
    from repro import compile_cli

    return compile_cli._compile(argparse.Namespace(), [], (), [])


def _export(_: Path) -> object:
    from repro import export_cli

    return export_cli._parameters(None, argparse.Namespace())  # type: ignore[arg-type]


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
    monkeypatch.setattr("repro.train_cli.Stop", object)  # it would answer the signals of the tests
    with pytest.raises(UserError, match="fast_math"):
        ENTRIES[name](tmp_path)
