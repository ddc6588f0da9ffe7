"""Which transfers between TPU slices a compiled program makes, and what it does between their start and end.

Read from the text of a scheduled module: XLA for TPU orders the instructions of every computation as they
run. A collective between slices is a send and a recv that name one rendezvous and a megascale transfer type;
the program waits at the recv's done. The parts of a step are told by the scopes that `repro.diloco.program` opens.
"""

import math
import re
from dataclasses import dataclass

from repro.machines.hlo import ELEMENT_BYTES

_INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%(?P<name>\S+) = (?P<type>.*?) (?P<kind>[a-z][a-z0-9-]*)\((?P<operands>[^)]*)"
)
_HEADER = re.compile(r"^(?P<entry>ENTRY )?%(?P<name>\S+) \(.*\{$")
_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([\d,]*)\]")
_WORK = ("fusion", "convolution", "dot", "while", "conditional", "custom-call", "convert")


@dataclass(frozen=True)
class Transfer:
    """One collective between slices, as one chip takes part in it.

    `operation` is XLA's name of it (ALL_GATHER, ALL_REDUCE); dtype and shape are of what the chip gives;
    `members` slices or replicas exchange; `times` a step (a loop's trips); start and done are positions in
    the schedule of the entry computation, those of the loop for a transfer inside one. `independent` says
    that no instruction of the inner step needs what arrives and none is needed for what is given.
    """

    operation: str
    dtype: str
    shape: tuple[int, ...]
    members: int
    times: int
    start: int
    done: int
    independent: bool

    @property
    def bytes(self) -> int:
        """What one chip gives in a step: the payload."""
        return ELEMENT_BYTES[self.dtype] * math.prod(self.shape) * self.times

    @property
    def moved(self) -> float:
        """What goes through one chip's link in a step: (M - 1) payloads of a gather, 2 (M - 1) / M of a ring."""
        factor = 2 * (self.members - 1) / self.members if self.operation == "ALL_REDUCE" else self.members - 1
        return factor * self.bytes


@dataclass(frozen=True)
class Schedule:
    """A step's program as it runs: `length` instructions, where the forward pass begins and the inner update
    ends, and its transfers between slices in the order of their starts."""

    length: int
    forward: int
    updated: int
    transfers: tuple[Transfer, ...]

    def overlaps(self, transfer: Transfer) -> bool:
        """Whether a transfer starts before the forward pass and is awaited after the inner update."""
        return transfer.start < self.forward and transfer.done > self.updated

    @property
    def bytes(self) -> int:
        """What one chip gives to other slices in this program."""
        return sum(t.bytes for t in self.transfers)

    @property
    def moved(self) -> float:
        """What goes through one chip's link in this program."""
        return sum(t.moved for t in self.transfers)


@dataclass(frozen=True)
class _Instruction:
    name: str
    kind: str
    line: str
    type: str
    operands: tuple[str, ...]


_Computations = dict[str, list[_Instruction]]


def read_schedule(text: str) -> Schedule:
    """The schedule of a compiled TPU module; ValueError where its parts can't be told."""
    computations, entry = _computations(text)
    order = computations[entry]
    inner = [i for i, instruction in enumerate(order) if _in_step(instruction)]
    forward = [i for i in inner if _is_forward(order[i])]
    if not forward:
        raise ValueError("no instruction of the forward pass in the entry computation")
    transfers = [t for name in computations for t in _transfers(computations, entry, name)]
    return Schedule(len(order), forward[0], inner[-1], tuple(sorted(transfers, key=lambda t: (t.start, t.done))))


def _computations(text: str) -> tuple[_Computations, str]:
    computations: _Computations = {}
    entry, current = "", []
    for line in text.splitlines():
        if header := _HEADER.match(line):
            current = computations[header["name"]] = []
            entry = header["name"] if header["entry"] else entry
        elif match := _INSTRUCTION.match(line):
            operands = tuple(word.strip().lstrip("%") for word in match["operands"].split(","))
            current.append(_Instruction(match["name"], match["kind"], line, match["type"], operands))
    if not entry:
        raise ValueError("no entry computation: not the text of a compiled module")
    return computations, entry


def _in_step(instruction: _Instruction) -> bool:
    """Whether it computes something of the inner step."""
    return instruction.kind in _WORK and "/inner/" in instruction.line


def _is_forward(instruction: _Instruction) -> bool:
    """Whether it is of the forward pass, or a loop that holds it: that of a fenced step, of its microbatches."""
    return (instruction.kind == "while" or "jvp(" in instruction.line) and "transpose(" not in instruction.line


def _transfers(computations: _Computations, entry: str, name: str) -> list[Transfer]:
    here = computations[name]
    position = {instruction.name: i for i, instruction in enumerate(here)}
    received = {_rendezvous(i): i for i in here if i.kind == "recv" and _operation(i)}
    awaited = {i.operands[0]: i.name for i in here if i.kind == "recv-done"}
    transfers = []
    for send in (i for i in here if i.kind == "send" and _operation(i)):
        recv = received[_rendezvous(send)]
        (dtype, shape), (_, arrived) = _array(send), _array(recv)
        start, done, times = position[send.name], position[awaited[recv.name]], 1
        if name != entry:
            start, times = _loop(computations, entry, name)
            done = start
        operation = _operation(send)
        # A gather receives what every member gives; other operations tell their members as a range of slices.
        gathers = operation == "ALL_GATHER"
        members = math.prod(arrived) // math.prod(shape) if gathers else _slices(send)
        independent = name == entry and _independent(here, send.name, awaited[recv.name])
        transfers.append(Transfer(operation, dtype, shape, members, times, start, done, independent))
    return transfers


def _independent(order: list[_Instruction], send: str, done: str) -> bool:
    """Whether no instruction of the inner step is behind what is given, or before what has arrived."""
    inner = {i.name for i in order if _in_step(i)}
    behind, ahead = {send}, {done}
    for instruction in reversed(order):
        if instruction.name in behind:
            behind.update(instruction.operands)
    for instruction in order:
        if not ahead.isdisjoint(instruction.operands):
            ahead.add(instruction.name)
    return inner.isdisjoint(behind | ahead)


def _rendezvous(instruction: _Instruction) -> str:
    return _attribute(instruction, "_xla_host_transfer_rendezvous")


def _operation(instruction: _Instruction) -> str:
    return _attribute(instruction, "_xla_megascale_transfer_type")


def _slices(instruction: _Instruction) -> int:
    """`{1,2}x{0:3}`: slices 1 and 2, chips 0 to 3 of each."""
    listed = _attribute(instruction, "_xla_megascale_target").split("x")[0].strip("{}")
    ends = [part.split(":") for part in listed.split(",")]
    return sum(int(end[-1]) - int(end[0]) + 1 for end in ends)


def _attribute(instruction: _Instruction, name: str) -> str:
    match = re.search(rf'{name}="([^"]*)"', instruction.line)
    return match[1] if match else ""


def _array(instruction: _Instruction) -> tuple[str, tuple[int, ...]]:
    match = _ARRAY.search(instruction.type)
    if match is None:
        raise ValueError(f"no array in: {instruction.line.strip()[:200]}")
    return match[1], tuple(int(n) for n in match[2].split(",") if n)


def _loop(computations: _Computations, entry: str, body: str) -> tuple[int, int]:
    """Where the entry computation runs a loop's body, and how often; ValueError for other callers."""
    for i, instruction in enumerate(computations[entry]):
        if instruction.kind == "while" and f"body=%{body}" in instruction.line.replace(",", " ").split():
            return i, _trips(computations, entry, instruction)
    raise ValueError(f"a transfer between slices in {body}, which is no loop of the entry computation")


def _trips(computations: _Computations, entry: str, loop: _Instruction) -> int:
    """Trips of `for i in range(first, last)`: a compare with a constant, and what the loop starts from."""
    condition = re.search(r"condition=%([^\s,]+)", loop.line)
    if condition is None:
        raise ValueError(f"a loop without a condition: {loop.line.strip()[:200]}")
    inside = {i.name: i for i in computations[condition[1]]}
    compare = next(i for i in inside.values() if i.kind == "compare")
    last = next(_constant(inside, name) for name in compare.operands if inside[name].kind == "constant")
    outside = {i.name: i for i in computations[entry]}
    first = _constant(outside, outside[loop.operands[0]].operands[0])
    if "direction=LT" not in compare.line:
        raise ValueError(f"a loop that doesn't count up: {compare.line.strip()[:200]}")
    return last - first


def _constant(instructions: dict[str, _Instruction], name: str) -> int:
    """The value of a constant through copies."""
    instruction = instructions[name]
    while instruction.kind in ("copy", "bitcast"):
        instruction = instructions[instruction.operands[0]]
    match = re.search(r"constant\((-?\d+)\)", instruction.line)
    if match is None:
        raise ValueError(f"not a constant: {instruction.line.strip()[:200]}")
    return int(match[1])
