"""Runs compiled ahead of time for TPU pods, on a machine without one: do they fit, what crosses the slices, when.

Everything reported is read from the compiled programs: nothing is run, and no chip is needed. libtpu holds
the compiler (the extra `tpu`). A program is compiled once for all runs that share it (`repro.machines.programs`).
"""

import importlib.util
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
from jax.experimental import topologies

from repro.diloco.buffers import outer_struct
from repro.diloco.resources import Resources
from repro.errors import UserError
from repro.machines.placement import GIB, Placement, chip, estimate, mends
from repro.machines.programs import DoesNotFit, Program, Programs
from repro.network.account import Collective, collective_factor, rule_bits, send_bytes
from repro.spec.actions import Action
from repro.spec.config import RunConfig
from repro.spec.formats import FORMATS
from repro.spec.payload import DATA_PARALLEL_CODEC
from repro.training.state import Layout
from repro.training.step import Stepper

TOP = Path(__file__).resolve().parents[2]  # of the checkout
MENDS = 3  # what is tried of the mends that the estimate names
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
    def usable_bytes(self) -> int:
        """What the compiler may give out of one chip's memory."""
        return int(chip(self.name).usable_gib * GIB)


@dataclass(frozen=True)
class Bytes:
    """What one replica gives to the slow link in a cycle (H steps; one step where nothing synchronises)."""

    rule: float  # the paper's account
    payload: int  # codes and scales of the trainer
    collective: float  # what a collective of the payload moves, by the account
    hlo: int  # what the programs' transfers give, all chips of the replica
    moved: float  # what the programs' collectives move through the replica's link


@dataclass(frozen=True)
class Tried:
    """Resources that did not fit: the estimate and the compiler's reason."""

    resources: Resources
    estimate: int
    reason: str


@dataclass(frozen=True)
class Compiled:
    """A run on a topology. `tried` are the resources that did not fit; `programs` is empty where none did."""

    resources: Resources
    estimate: int  # bytes on a chip, by the rule that chose the resources
    tried: tuple[Tried, ...]
    programs: tuple[Program, ...]
    cycle: int
    bytes: Bytes | None
    flops_per_chip: float  # of a step: 6 N D / chips

    @property
    def fits(self) -> bool:
        """Whether every program compiled within the chip's memory."""
        return bool(self.programs)


def topology(name: str, slices: int) -> Topology:
    """The chips of `slices` slices like v5e:4x4; UserError without libtpu or for a name that it doesn't know."""
    chip(name)
    if slices < 1:
        raise UserError(f"slices={slices}: at least one is needed.")
    if importlib.util.find_spec("libtpu") is None:
        raise UserError("libtpu, which holds the TPU compiler, is missing: pip install -e '.[tpu]' brings it.")
    jax.config.update("jax_platforms", "cpu")  # the compiler alone; a backend would look for chips
    # A kernel's text names its source files; without their folders it is one program wherever the checkout lies.
    jax.config.update("jax_hlo_source_file_canonicalization_regex", f"^(.*/site-packages|{re.escape(str(TOP))})/")
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        description = topologies.get_topology_desc(platform="tpu", topology_name=name, num_slices=slices)
    except jax.errors.JaxRuntimeError as error:
        raise UserError(f"topology {name!r} is none that libtpu has ({_sentence(error)}): try v5e:4x4.") from error
    devices = sorted(description.devices, key=lambda d: (getattr(d, "slice_index", 0), d.id))
    return Topology(name, slices, tuple(devices))


def compile_run(config: RunConfig, placed: Placement, on: Topology, programs: Programs) -> Compiled:
    """Compile each program of a run. Where one doesn't fit, find what would: the estimate, scaled by what the
    compiler says, names candidates, and compiling confirms the first that does."""
    tried: list[Tried] = []
    waiting: Iterator[Resources] = iter((placed.resources,))
    while len(tried) <= MENDS and (resources := next(waiting, None)) is not None:
        try:
            compiled = _programs(config, resources, on, programs)
        except DoesNotFit as shortage:
            tried.append(Tried(resources, estimate(config, resources), str(shortage)))
            waiting = mends(config, [t.resources for t in tried], shortage.needed_bytes, on.name, on.slices)
            continue
        return _compiled(config, resources, tuple(tried), compiled)
    return _compiled(config, tried[-1].resources, tuple(tried), ())


def _programs(config: RunConfig, resources: Resources, on: Topology, kept: Programs) -> tuple[Program, ...]:
    stepper = Stepper(Layout.of(config, resources, devices=list(on.devices)))
    uses = Counter(stepper.key(step) for step in _cycle_steps(config))
    # Heaviest first: what doesn't fit shows soonest. What only the first cycles use counts 0 steps.
    keys = sorted(stepper.programs(1, min(config.steps, 3 * _cycle(config))), key=len, reverse=True)
    return tuple(_program(stepper, key, uses[key], on, kept) for key in keys)


def _program(stepper: Stepper, key: tuple[Action, ...], steps: int, on: Topology, kept: Programs) -> Program:
    """A program as this run uses it. The compiler checks a program's own buffers only: the outer state that rests
    beside them is added here."""
    program = kept.get(stepper, key, on.name, on.slices)
    memory = replace(program.memory, resting=_resting_bytes(stepper.layout, key))
    if memory.total > on.usable_bytes:
        over = (memory.total - on.usable_bytes) / GIB
        raise DoesNotFit(
            f"{program.name}: {memory.total / GIB:.2f} GiB with the outer state that rests on the chip, {over:.2f} GiB "
            "more than it has",
            memory.total,
        )
    return replace(program, steps=steps, memory=memory)


def _resting_bytes(layout: Layout, key: tuple[Action, ...]) -> int:
    """The outer state on one chip of the fragments that a program doesn't name."""
    if layout.resources.outer_on_host:
        return 0
    named = Counter(action.kind for action in key)
    kinds = Counter(fragment.kind for fragment in layout.fragments)
    return sum(count * _chip_bytes(outer_struct(layout.recipe, kind)) for kind, count in (kinds - named).items())


def _chip_bytes(tree: Any) -> int:
    structs = jax.tree.leaves(tree)
    return sum(math.prod(s.sharding.shard_shape(s.shape)) * s.dtype.itemsize for s in structs)


def _cycle(config: RunConfig) -> int:
    return config.sync.every if config.sync else 1


def _cycle_steps(config: RunConfig) -> range:
    """A cycle in the middle of the run, where every fragment has synchronised before (or the run's end)."""
    cycle = _cycle(config)
    first = max(1, min(2 * cycle + 1, config.steps - cycle + 1))
    return range(first, min(first + cycle, config.steps + 1))


def _compiled(
    config: RunConfig, resources: Resources, tried: tuple[Tried, ...], programs: tuple[Program, ...]
) -> Compiled:
    flops = config.flops / config.steps / resources.devices
    counted = _bytes(config, resources, programs) if programs else None
    guess = estimate(config, resources)
    return Compiled(resources, guess, tried, programs, _cycle(config), counted, flops)


def _bytes(config: RunConfig, resources: Resources, programs: tuple[Program, ...]) -> Bytes:
    codec = config.sync.codec if config.sync else DATA_PARALLEL_CODEC
    bits = FORMATS[codec.format].bits * codec.keep  # of a value that is dropped the rule counts nothing, nor a mask
    cycle, slices = _cycle(config), _slices(programs)
    # Data-parallel's replica spans the slices: each slice gives its chips' share of the gradients.
    givers = resources.devices // (config.replicas if config.sync else slices)
    payload = sum(send_bytes(config.model, config.sync))
    collective: Collective = "all-gather" if config.sync else "ring"
    members = config.replicas if config.sync else slices
    return Bytes(
        rule=rule_bits(config.model.params_by_rule, bits, cycle, cycle) / 8,
        payload=payload,
        collective=payload * collective_factor(collective, members) if members > 1 else 0.0,
        hlo=givers * sum(p.steps * p.schedule.bytes for p in programs),
        moved=givers * sum(p.steps * p.schedule.moved for p in programs),
    )


def _slices(programs: tuple[Program, ...]) -> int:
    return max((t.members for p in programs for t in p.schedule.transfers), default=1)


def _sentence(error: Exception) -> str:
    return str(error).split("\n")[0].rstrip(".")
