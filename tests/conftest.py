"""Settings of every test process, made before anything imports JAX; light tests never import it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from repro.diloco.jax_settings import xla_flags

if TYPE_CHECKING:
    import fake_bucket

# Eight simulated devices: enough for replica × data × fsdp of two each.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = "8"
# Compiled programs are kept between test runs, in a folder that git ignores and that may be deleted.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / "cache" / "xla-tests"))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_LEGACY_PRNG_KEY"] = "error"
# Most of a cold run is LLVM: the same HLO, translated without effort, as in a smoke run.
os.environ["XLA_FLAGS"] = xla_flags(os.environ.get("XLA_FLAGS", ""), smoke=True)


def pytest_configure(config: pytest.Config) -> None:
    """A cache entry that another process is still writing can't be read: JAX says so and compiles."""
    config.addinivalue_line("filterwarnings", "ignore:Error reading persistent compilation cache entry")
    config.addinivalue_line("filterwarnings", "ignore:Error writing persistent compilation cache entry")
    # Where one file of a checkpoint is damaged, orbax leaves the reads of the others to the garbage collector.
    left = "Exception ignored in.*_read_array_index_and_device_put"
    config.addinivalue_line("filterwarnings", f"ignore:{left}:pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="session")
def smoke_tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared smoke corpus: a token folder."""
    from repro.corpus.prepare import prepare

    return prepare("smoke", tmp_path_factory.mktemp("cache"))


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator["fake_bucket.Store"]:
    """A stand-in for Google's buckets, which gcsfs, orbax and tensorstore are told of by the environment."""
    import fake_bucket  # an HTTP server, which few tests need

    with fake_bucket.serve() as (store, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield store
    assert store.refused == []
