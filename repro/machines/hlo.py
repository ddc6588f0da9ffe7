"""What a compiled program moves, read from its HLO text: every collective, its payload and the mesh axes it crosses.

XLA writes device groups in three spellings; all become lists of positions in the mesh:

    {{0,1},{2,3}}                                  the groups themselves
    [4,2]<=[2,2,2]T(0,2,1)                         a transposed range, cut into rows
    mesh['a'=2,'b'=4], device_ids=([2,2,2]T(0,2,1)) {'a','b':(1)2}    axes (or parts of axes) of a mesh

What travels between TPU slices shows as send and recv instead: `repro.machines.transfers`.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

Groups = list[tuple[int, ...]]

_KINDS = "all-gather|all-reduce|reduce-scatter|(?:ragged-)?all-to-all|collective-(?:permute|broadcast)"
_INSTRUCTION = re.compile(rf"^\s*(?:ROOT )?%?\S+ = (?P<type>.*?) (?P<kind>{_KINDS})(?P<start>-start)?\(")
_SHAPE = re.compile(r"([a-z][a-z0-9]*)\[([\d,]*)\]")
ELEMENT_BYTES = {"pred": 1, "u8": 1, "s8": 1, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "u32": 4, "s32": 4, "f32": 4}


@dataclass(frozen=True)
class Collective:
    """One collective instruction: (dtype, shape) of each result on one device, and the axes its groups cross."""

    kind: str
    results: tuple[tuple[str, tuple[int, ...]], ...]
    axes: frozenset[str]
    line: str

    @property
    def dtypes(self) -> set[str]:
        """Element types of the results."""
        return {dtype for dtype, _ in self.results}

    @property
    def bytes(self) -> int:
        """Bytes of the results on one device."""
        return sum(ELEMENT_BYTES[dtype] * math.prod(shape) for dtype, shape in self.results)


def collectives(text: str, mesh: Mapping[str, int]) -> list[Collective]:
    """All collectives of a compiled module for a mesh of these axes (devices in row-major order)."""
    listed = []
    for line in text.splitlines():
        match = _INSTRUCTION.match(line)
        if match is None:
            continue
        results = tuple((d, _numbers(s)) for d, s in _SHAPE.findall(match["type"]))
        if match["start"]:  # (operands, results, ...): the results follow the operands
            results = results[len(results) // 2 :]
        groups = device_groups(line, math.prod(mesh.values()))
        listed.append(Collective(match["kind"], results, crossed(groups, mesh), line.strip()))
    return listed


def crossed(groups: Groups, mesh: Mapping[str, int]) -> frozenset[str]:
    """The axes along which some group's members differ."""
    sizes = tuple(mesh.values())
    axes = set()
    for group in groups:
        places = np.stack(np.unravel_index(np.array(group), sizes))
        axes |= {name for name, row in zip(mesh, places, strict=True) if len(set(row.tolist())) > 1}
    return frozenset(axes)


def device_groups(line: str, devices: int) -> Groups:
    """The groups (or source and target pairs) of one instruction; ValueError where none can be read."""
    if pairs := re.search(r"source_target_pairs=\"?\{(\{.*?\})\}", line):
        return _listed(pairs[1])
    attribute = re.search(r"replica_groups=(.*)", line)
    if attribute is None:
        raise ValueError(f"no device groups in: {line.strip()[:200]}")
    text = attribute[1]
    if text.startswith("{{"):
        return _listed(text[1 : text.index("}}") + 1])
    if text.startswith("{}"):
        return [tuple(range(devices))]
    if text.startswith("mesh["):
        return _mesh_groups(text)
    if iota := re.match(r"\[(\d+),(\d+)\]<=(\[[\d,]+\](?:T\([\d,]+\))?)", text):
        return _rows(_iota(iota[3]).reshape(int(iota[1]), int(iota[2])))
    raise ValueError(f"unknown spelling of device groups: {text[:200]}")


def _mesh_groups(text: str) -> Groups:
    match = re.match(r"mesh\[(.*?)\](?:, device_ids=\((.*?\]?(?:T\([\d,]+\))?)\))? \{(.*?)\}", text)
    if match is None:
        raise ValueError(f"unknown spelling of device groups: {text[:200]}")
    sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", match[1])}
    order = _iota(match[2]) if match[2] else np.arange(math.prod(sizes.values()))
    # An axis or its part 'a':(before)size is one factor of the whole shape.
    parts = {
        name: (int(b or 1), int(s or sizes[name]))
        for name, b, s in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", match[3])
    }
    shape, chosen = [], []
    for name, size in sizes.items():
        before, part = parts.get(name, (1, 1))
        chosen.append(len(shape) + 1)
        shape += [before, part, size // (before * part)]
    kept = [axis for axis in range(len(shape)) if axis not in chosen]
    members = math.prod(shape[axis] for axis in chosen)
    return _rows(order.reshape(shape).transpose(*kept, *chosen).reshape(-1, members))


def _iota(text: str) -> np.ndarray:
    """`[2,4]T(1,0)`: a range of that shape, transposed, flat. A plain list of ids `0,2,1,3` stands for itself."""
    match = re.fullmatch(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    if match is None:
        return np.array(_numbers(text))
    dims = _numbers(match[1])
    ids = np.arange(math.prod(dims)).reshape(dims)
    return (ids.transpose(_numbers(match[2])) if match[2] else ids).reshape(-1)


def _listed(text: str) -> Groups:
    return [_numbers(group) for group in re.findall(r"\{([\d,]*)\}", text)]


def _rows(grid: np.ndarray) -> Groups:
    return [tuple(row) for row in grid.tolist()]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)
