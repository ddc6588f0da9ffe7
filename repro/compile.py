"""Runs compiled ahead of time for TPU pods, on a machine without one: do they fit, what crosses the slices, when.

Everything reported is read from the compiled programs: nothing is run, and no chip is needed. libtpu holds
the compiler (the extra `tpu`).
"""

import importlib.metadata
import importlib.util
import math
import os
import re
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.experimental import topologies

from repro.account import rule_bits, send_bytes
from repro.actions import Action
from repro.config import RunConfig
from repro.errors import UserError
from repro.overlap import Schedule, read_schedule
from repro.payload import FORMATS
from repro.resources import Resources, resources_for
from repro.scenario import DATA_PARALLEL_CODEC
from repro.state import Layout
from repro.step import Stepper

GIB = 2**30
# HBM of one chip, GiB, by JAX's device kind. Source: the pages of the TPU generations at cloud.google.com/tpu/docs
# (v4, v5e, v5p, v6e: "HBM capacity" per chip). The compiler keeps some for itself: its own limit is what fails.
HBM_GIB = {"TPU v4": 32, "TPU v5 lite": 16, "TPU v5": 95, "TPU v6 lite": 32}
REMATS = ("none", "dots", "full")
_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",  # no pod to ask
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # compilers may run side by side, chips could not
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",  # of this host, only so that libtpu doesn't complain; the topology is given
    "TPU_WORKER_HOSTNAMES": "localhost",
}


@dataclass(frozen=True)
class Topology:
    """Chips of `slices` slices, in the order of the mesh."""

    name: str
    slices: int
    devices: tuple[Any, ...]

    @property
    def chips(self) -> int:
        """Chips of one slice."""
        return len(self.devices) // self.slices

    @property
    def kind(self) -> str:
        """JAX's name of the chip."""
        return self.devices[0].device_kind

    @property
    def hbm_bytes(self) -> int:
        """Memory of one chip; UserError for a chip that the table lacks."""
        if self.kind not in HBM_GIB:
            raise UserError(f"{self.name} has chips of the kind {self.kind!r}: choose one of {', '.join(HBM_GIB)}.")
        return HBM_GIB[self.kind] * GIB


@dataclass(frozen=True)
class Memory:
    """Bytes on one chip. `total` is what is there at once: arguments, outputs that take no argument's place,
    temporaries, code, and `resting`: the outer state of the fragments that the program doesn't name. `host` are
    arguments and temporaries in pinned memory of the host."""

    arguments: int
    outputs: int
    aliased: int
    temporaries: int
    code: int
    resting: int
    host: int

    @property
    def total(self) -> int:
        """Bytes on the chip."""
        own = self.arguments + self.outputs - self.aliased + self.temporaries + self.code
        return own + self.resting


@dataclass(frozen=True)
class Program:
    """One compiled program of a run; `steps` of a cycle use it."""

    name: str
    steps: int
    seconds: float  # lowering and compiling
    memory: Memory
    schedule: Schedule


@dataclass(frozen=True)
class Bytes:
    """What one replica gives to the slow link in a cycle (H steps; one step where nothing synchronises)."""

    rule: float  # the paper's account
    payload: int  # codes and scales of the trainer
    hlo: int  # what the programs' transfers give, all chips of the replica
    moved: float  # what the collectives move through the replica's link


@dataclass(frozen=True)
class Compiled:
    """A run on a topology. `tried` are the resources that did not fit, each with the compiler's reason;
    `programs` is empty where none did."""

    resources: Resources
    tried: tuple[tuple[Resources, str], ...]
    programs: tuple[Program, ...]
    cycle: int
    bytes: Bytes | None
    flops_per_chip: float  # of a step: 6 N D / chips

    @property
    def fits(self) -> bool:
        """Whether every program compiled within the chip's memory."""
        return bool(self.programs)


class DoesNotFit(Exception):
    """The compiler's own words on how much memory is missing."""


def topology(name: str, slices: int) -> Topology:
    """The chips of `slices` slices like v5e:4x4; UserError without libtpu or for a name that it doesn't know."""
    if slices < 1:
        raise UserError(f"slices={slices}: at least one is needed.")
    if importlib.util.find_spec("libtpu") is None:
        raise UserError("libtpu, which holds the TPU compiler, is missing: pip install -e '.[tpu]' brings it.")
    jax.config.update("jax_platforms", "cpu")  # the compiler alone; a backend would look for chips
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        found = topologies.get_topology_desc(platform="tpu", topology_name=name, num_slices=slices)
    except jax.errors.JaxRuntimeError as error:
        raise UserError(f"topology {name!r} is none that libtpu has ({_sentence(error)}): try v5e:4x4.") from error
    devices = sorted(found.devices, key=lambda d: (getattr(d, "slice_index", 0), d.id))
    return Topology(name, slices, tuple(devices))


def versions() -> dict[str, str]:
    """What a compiled program depends on."""
    return {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "libtpu")}


def compile_run(
    config: RunConfig,
    on: Topology,
    fsdp: int | None = None,
    remat: str | None = None,
    outer_on_host: bool = False,
    fence: bool = True,
) -> Compiled:
    """Compile each program of a run. Where one doesn't fit, recompute more and more (unless `remat` is given),
    then put the outer state on the host."""
    tried: list[tuple[Resources, str]] = []
    for resources in _candidates(config, on, fsdp, remat, outer_on_host, fence):
        try:
            programs = _programs(config, resources, on)
            _check_total(programs, on)
        except DoesNotFit as reason:
            tried.append((resources, str(reason)))
            continue
        return _compiled(config, resources, tuple(tried), programs)
    return _compiled(config, tried[-1][0], tuple(tried), ())


def _check_total(programs: tuple[Program, ...], on: Topology) -> None:
    """The compiler checks a program's own buffers only."""
    largest = max(programs, key=lambda p: p.memory.total)
    over = largest.memory.total - on.hbm_bytes
    if over > 0:
        raise DoesNotFit(
            f"{largest.name}: {largest.memory.total / GIB:.2f} GiB with the outer state that rests on the chip, "
            f"{over / GIB:.2f} GiB more than it has"
        )


def _candidates(
    config: RunConfig, on: Topology, fsdp: int | None, remat: str | None, host: bool, fence: bool
) -> list[Resources]:
    remats = REMATS if remat is None else (remat,)
    ruled = [resources_for(config, on.chips, on.slices, r, fsdp) for r in remats]
    kept = [replace(resources, outer_on_host=host, fence=fence) for resources in ruled]
    if config.sync is not None and not host:
        kept.append(replace(kept[-1], outer_on_host=True))
    return kept


def _programs(config: RunConfig, resources: Resources, on: Topology) -> tuple[Program, ...]:
    stepper = Stepper(Layout.of(config, resources, devices=list(on.devices)))
    uses = Counter(stepper.key(step) for step in _cycle_steps(config))
    # Heaviest first: what doesn't fit shows soonest. What only the first cycles use counts 0 steps.
    keys = sorted(stepper.programs(1, min(config.steps, 3 * _cycle(config))), key=len, reverse=True)
    return tuple(_program(stepper, key, uses[key]) for key in keys)


def _program(stepper: Stepper, key: tuple[Action, ...], steps: int) -> Program:
    began = time.perf_counter()
    try:
        compiled = stepper.lower(key).compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise DoesNotFit(f"{describe(key)}: {_shortage(str(error))}") from error
    seconds = time.perf_counter() - began
    memory = _memory(compiled, _resting_bytes(stepper.layout, key))
    return Program(describe(key), steps, seconds, memory, read_schedule(compiled.as_text()))


def describe(key: tuple[Action, ...]) -> str:
    """What a program adds to the inner step, in words."""
    return "; ".join(map(_describe, key)) or "inner step"


def _describe(action: Action) -> str:
    layers, embed = action.kind
    what = " + ".join([f"{layers} layers"] * bool(layers) + ["embedding"] * embed)
    done = ["send"] * action.send + ["move a part"] * (action.parts > 1) + ["sync"] * action.sync
    done += ["apply"] * action.apply + ["mix"] * (action.mix and not (action.apply or action.sync))
    return f"{', '.join(done)}: {what}"


def _resting_bytes(layout: Layout, key: tuple[Action, ...]) -> int:
    """Outer parameters and momentum on one chip of the fragments that a program doesn't name."""
    if layout.resources.outer_on_host:
        return 0
    named = Counter(action.kind for action in key)
    kinds = Counter(fragment.kind for fragment in layout.fragments)
    return sum(count * _outer_bytes(layout, kind) for kind, count in (kinds - named).items())


def _outer_bytes(layout: Layout, kind: tuple[int, bool]) -> int:
    """Of one fragment on one chip: float32, outer parameters and momentum."""
    structs = layout.outer_struct(kind).values()
    return 2 * 4 * sum(math.prod(s.sharding.shard_shape(s.shape)) for s in structs)


def _memory(compiled: Any, resting: int) -> Memory:
    stats = compiled.memory_analysis()
    return Memory(
        arguments=stats.argument_size_in_bytes,
        outputs=stats.output_size_in_bytes,
        aliased=stats.alias_size_in_bytes,
        temporaries=stats.temp_size_in_bytes,
        code=stats.generated_code_size_in_bytes,
        resting=resting,
        host=stats.host_argument_size_in_bytes + stats.host_temp_size_in_bytes,
    )


def _cycle(config: RunConfig) -> int:
    return config.sync.every if config.sync else 1


def _cycle_steps(config: RunConfig) -> range:
    """A cycle in the middle of the run, where every fragment has synchronised before (or the run's end)."""
    cycle = _cycle(config)
    first = max(1, min(2 * cycle + 1, config.steps - cycle + 1))
    return range(first, min(first + cycle, config.steps + 1))


def _compiled(
    config: RunConfig, resources: Resources, tried: tuple[tuple[Resources, str], ...], programs: tuple[Program, ...]
) -> Compiled:
    chips = resources.devices // config.replicas
    flops = config.flops / config.steps / resources.devices
    counted = _bytes(config, resources, programs, chips) if programs else None
    return Compiled(resources, tried, programs, _cycle(config), counted, flops)


def _bytes(config: RunConfig, resources: Resources, programs: tuple[Program, ...], chips: int) -> Bytes:
    codec = config.sync.codec if config.sync else DATA_PARALLEL_CODEC
    cycle = _cycle(config)
    # Data-parallel's replica spans the slices: each slice gives its chips' share of the gradients.
    givers = chips if config.sync else resources.devices // _slices(programs)
    return Bytes(
        rule=rule_bits(config.model.params_by_rule, FORMATS[codec.format].bits, cycle, cycle) / 8,
        payload=sum(send_bytes(config.model, config.sync)),
        hlo=givers * sum(p.steps * p.schedule.bytes for p in programs),
        moved=givers * sum(p.steps * p.schedule.moved for p in programs),
    )


def _slices(programs: tuple[Program, ...]) -> int:
    return max((t.members for p in programs for t in p.schedule.transfers), default=1)


def _sentence(error: Exception) -> str:
    return str(error).split("\n")[0].rstrip(".")


def _shortage(text: str) -> str:
    """The compiler's sentence on used and available memory, or its first line."""
    match = re.search(r"Used \S+ of \S+ hbm\. Exceeded hbm capacity by [^\s]+?(?=\.(?:\s|$))", text)
    return match[0] if match else text.split("\n")[0][:300]
