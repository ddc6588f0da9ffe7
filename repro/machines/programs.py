"""Compiled programs, each once: what the compiler says of one, kept by everything that it is made from.

Runs share programs: H, τ, α, rates and seeds reach a program as arguments or as constants of the same shape. Within a
process a program is known by the form of its recipe; between processes by the text that the compiler is given, so that
compiling a whole paper can be interrupted.
"""

import hashlib
import importlib.metadata
import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

from repro.files import read_json, write_json
from repro.machines.placement import GIB
from repro.machines.transfers import Schedule, read_schedule
from repro.spec.actions import Action
from repro.spec.identity import from_json
from repro.training.step import Stepper


@dataclass(frozen=True)
class ProgramMemory:
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
    """One compiled program; `steps` of a run's cycle use it."""

    name: str
    key: str  # of what it is made from
    steps: int
    seconds: float  # compiling
    memory: ProgramMemory
    schedule: Schedule


class DoesNotFit(Exception):
    """The compiler's own words on how much memory is missing, and the bytes that it needs."""

    def __init__(self, words: str, needed_bytes: int) -> None:
        super().__init__(words)
        self.needed_bytes = needed_bytes


class Programs:
    """Compiles a program unless it is known; `folder` keeps what was found between processes."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._known: dict[Any, Program | DoesNotFit] = {}

    def get(self, stepper: Stepper, actions: tuple[Action, ...], topology: str, slices: int) -> Program:
        """The program of these actions on slices of a topology; DoesNotFit where the compiler gives up."""
        form = (stepper.layout.recipe.of_program(actions).form, actions, topology, slices)
        if form not in self._known:
            self._known[form] = self._kept(stepper, actions, topology, slices)
        program = self._known[form]
        if isinstance(program, DoesNotFit):
            raise program
        return program

    def _kept(self, stepper: Stepper, actions: tuple[Action, ...], *where: Any) -> Program | DoesNotFit:
        lowered = stepper.lower(actions)
        identity = json.dumps([*where, versions(), lowered.as_text()])
        key = hashlib.sha256(identity.encode()).hexdigest()[:12]
        path = None if self._folder is None else self._folder / f"{key}.json"
        kept = read_json(path) if path else None
        if kept is not None:
            return DoesNotFit(**kept) if "words" in kept else from_json(Program, kept, f"{path}: program")
        program = compile_program(lowered, action_words(actions), key)
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            failed = isinstance(program, DoesNotFit)
            write_json(
                path, {"words": str(program), "needed_bytes": program.needed_bytes} if failed else asdict(program)
            )
        return program


def versions() -> dict[str, str]:
    """What a compiled program depends on."""
    return {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "libtpu")}


def compile_program(lowered: Any, name: str, key: str) -> Program | DoesNotFit:
    """Compile, and read what there is to know."""
    began = time.perf_counter()
    try:
        program = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return _shortage(name, str(error))
    seconds = time.perf_counter() - began
    return Program(name, key, 0, seconds, _memory(program), read_schedule(program.as_text()))


def action_words(actions: tuple[Action, ...]) -> str:
    """What a program adds to the inner step, in words."""
    return "; ".join(map(_describe, actions)) or "inner step"


def _describe(action: Action) -> str:
    layers, embed = action.kind
    what = " + ".join([f"{layers} layers"] * bool(layers) + ["embedding"] * embed)
    done = ["send"] * action.send + ["move a part"] * (action.parts > 1) + ["sync"] * action.sync
    done += ["apply"] * action.apply + ["mix"] * (action.mix and not (action.apply or action.sync))
    return f"{', '.join(done)}: {what}"


def _memory(program: Any) -> ProgramMemory:
    stats = program.memory_analysis()
    return ProgramMemory(
        arguments=stats.argument_size_in_bytes,
        outputs=stats.output_size_in_bytes,
        aliased=stats.alias_size_in_bytes,
        temporaries=stats.temp_size_in_bytes,
        code=stats.generated_code_size_in_bytes,
        resting=0,
        host=stats.host_argument_size_in_bytes + stats.host_temp_size_in_bytes,
    )


_SIZE = r"([\d.]+)([KMGT])"
_UNITS = {"K": 2**10, "M": 2**20, "G": GIB, "T": 2**40}


def _shortage(name: str, text: str) -> DoesNotFit:
    """From the compiler's sentence on needed and available memory; ValueError where it can't be read."""
    used = re.search(rf"Used {_SIZE} of {_SIZE} hbm", text)
    temporaries = re.search(rf"HLO temporaries \({_SIZE}\) exceeds available HBM \({_SIZE}\)", text)
    match = used or temporaries
    if match is None:
        raise ValueError(f"the compiler lacks memory, but its sentence is a new one: {text[:300]}")
    needed, available = (float(match[i]) * _UNITS[match[i + 1]] for i in (1, 3))
    what = "" if used else " for temporaries alone"
    over = (needed - available) / GIB
    words = f"{name}: {needed / GIB:.2f} GiB{what} of {available / GIB:.2f}, {over:.2f} GiB more than there is"
    return DoesNotFit(words, int(needed))
