"""What of JAX and XLA can change a number: the same in every process that computes, whatever its environment says.

A run's id promises its numbers, and JAX takes more than a hundred settings from the environment, others in each
release. So those that are known to change no number are let through, by name; the others are taken out before JAX is
imported and hold what JAX has by default. What a process set by hand before is put back where it is known
(`PINNED`). XLA reads flags of its own, which are a person's wish for speed: one that isn't known to be harmless
is refused, as is one at which XLA would end the process. Nothing here chooses devices. `pin` comes first in every
process that computes, and imports JAX; the rest is for parents, which don't.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from enum import Enum
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from repro.errors import UserError

# Beginnings of JAX_… that say where it computes, what it keeps and what it tells.
HARMLESS = (
    *("PLATFORM", "NUM_CPU_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCM_VISIBLE_DEVICES", "ONEAPI_VISIBLE_DEVICES"),
    *("COORDINATOR_", "NUM_PROCESSES", "PROCESS_", "LOCAL_DEVICE_IDS", "DISTRIBUTED_", "CROSS_HOST_", "MTLS_"),
    *("CPU_GET_", "ENABLE_PREEMPTION_SERVICE", "ENABLE_RECOVERABILITY", "FORCE_DCN_", "CHECK_", "DEBUG_"),
    *("COMPILATION_CACHE_", "ENABLE_COMPILATION_CACHE", "PERSISTENT_CACHE_", "RAISE_PERSISTENT_", "SHARE_BINARY_"),
    *("LOG_", "LOGGING_", "EXPLAIN_", "DUMP_", "INCLUDE_", "TRACEBACK_", "TRACER_", "COMPILER_DETAILED_LOGGING_"),
    *("PPRINT_", "LEGACY_PRNG_KEY", "TRANSFER_GUARD", "ENABLE_CHECKS", "HLO_SOURCE_", "CAPTURED_CONSTANTS_"),
)
# Names without JAX_ that JAX or a library below it computes by.
OTHERS = ("EAGER_CONSTANT_FOLDING", "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG")
# Settings that can change a number, as they are by default; a release of JAX may lack some.
PINNED: dict[str, Any] = {
    "jax_threefry_partitionable": True,
    "jax_default_prng_impl": "threefry2x32",
    "jax_random_seed_offset": 0,
    "jax_enable_custom_prng": False,
    "jax_high_dynamic_range_gumbel": False,
    "jax_enable_x64": False,
    "jax_explicit_x64_dtypes": "warn",
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_default_matmul_precision": None,
    "jax_allow_f16_reductions": True,
    "jax_softmax_custom_jvp": False,
    "jax_use_direct_linearize": True,
    "jax_use_shardy_partitioner": True,
    "jax_default_device": None,
    "jax_disable_jit": False,
    "jax_disable_most_optimizations": False,
    "jax_optimization_level": "UNKNOWN",
    "jax_memory_fitting_level": "O2",
    "jax_exec_time_optimization_effort": 0.0,
    "jax_memory_fitting_effort": 0.0,
    "jax_compiler_enable_remat_pass": True,
    "jax_enable_pgle": False,
    "jax_cpu_collectives_implementation": "gloo",
}
FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
# Flags of XLA that change no number, or their beginnings: devices, files, time limits.
HARMLESS_FLAGS = (
    *("xla_force_host_platform_device_count", "xla_dump_", "xla_hlo_profile", "xla_gpu_cuda_data_dir"),
    *("xla_cpu_collective_call_", "xla_cpu_collective_timeout_seconds", "xla_gpu_force_compilation_parallelism"),
    *("xla_gpu_enable_latency_hiding_scheduler", "xla_gpu_enable_command_buffer"),
)
# How hard XLA tries changes a loss by some 1e-8, so a scale decides it and no caller. LLVM's first level makes programs
# as fast as its third, in little over half the time that compiling takes; a smoke run is nearly all compilation and
# takes the zeroth, by the old emitters while they last (a third of the time at this level, none saved at the first). In
# one piece, since a worker has a core: XLA would cut a program up for 32 threads, at a fifth of the work.
ONE_PIECE = "--xla_cpu_parallel_codegen_split_count=1"
LITTLE_EFFORT = ("--xla_backend_optimization_level=1", ONE_PIECE)
EFFORTLESS = ("--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true", ONE_PIECE)
READS_FLAGS = (sys.executable, "-c", "import jax; jax.devices()")
OLD_EMITTERS, LAST_WITH_THEM = "--xla_cpu_use_fusion_emitters=false", (0, 10)  # XLA ends at a flag that it lacks


def pin() -> None:
    """Make this process compute as every other does; before anything asks JAX for a number.

    UserError for a flag of XLA that may change numbers, or that XLA would end the process at.
    """
    kept = clean(os.environ)
    check_flags(kept.get("XLA_FLAGS", ""))
    for name in set(os.environ) - set(kept):
        del os.environ[name]
    import jax  # reads its environment now

    for name in PINNED.keys() & jax.config.values.keys():
        jax.config.update(name, PINNED[name])


def start_jax(cache: Path) -> None:
    """Import JAX, pinned, with compiled programs kept in the cache where the environment names no other place."""
    pin()
    import jax

    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str((cache / "xla").resolve()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def xla_flags(given: str, *, smoke: bool) -> str:
    """XLA_FLAGS of a process that trains on this machine's CPU: those that are `given`, and the effort of the scale."""
    release = tuple(int(part) for part in metadata.version("jaxlib").split(".")[:2])
    effort = EFFORTLESS if smoke else LITTLE_EFFORT
    old = (OLD_EMITTERS,) if smoke and release <= LAST_WITH_THEM else ()
    return " ".join((*given.split(), *effort, *old))


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` without what may change numbers. UserError for a flag of XLA that may, which names it."""
    for variable in FLAGS:
        for word in environment.get(variable, "").split():
            own = word in (*LITTLE_EFFORT, *EFFORTLESS, OLD_EMITTERS)
            if not own and not word.lstrip("-").startswith(HARMLESS_FLAGS):
                raise UserError(
                    f"{variable} holds {word!r}, which may change the numbers of a run: take it out; flags such as "
                    "--xla_dump_to and --xla_force_host_platform_device_count are let through."
                )
    return {name: value for name, value in environment.items() if not _counts(name)}


@cache
def check_flags(flags: str) -> None:
    """UserError for XLA_FLAGS that XLA would end the process at, with what XLA says; where it must, a child asks it."""
    simulated = r"--xla_force_host_platform_device_count=\d+"
    known = (*LITTLE_EFFORT, *EFFORTLESS, OLD_EMITTERS)
    if all(word in known or re.fullmatch(simulated, word) for word in flags.split()):
        return
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    done = subprocess.run(READS_FLAGS, env=environment, capture_output=True, encoding="utf-8", errors="replace")
    said = re.search(r"^[EF]\d{4} .*?\] (.*)$", done.stderr, re.MULTILINE)
    if done.returncode and said:
        raise UserError(
            f"XLA would end this process at a flag ({said[1][:200]}): mend it in XLA_FLAGS, or take it out."
        )


def _counts(variable: str) -> bool:
    """Whether a variable of the environment may change numbers."""
    return variable in OTHERS or (
        variable.startswith("JAX_") and not variable.removeprefix("JAX_").startswith(HARMLESS)
    )


def in_force() -> dict[str, Any]:
    """For the provenance: each pinned setting that this JAX has, as it is now, and the flags of XLA."""
    import jax

    values = jax.config.values
    pinned = {name: _plain(values[name]) for name in PINNED if name in values}
    return pinned | {name: os.environ[name] for name in FLAGS if os.environ.get(name)}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name.lower()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
