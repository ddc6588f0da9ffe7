"""This suite's step beside those of PyTorch and NanoDO: the same model, a process a contestant, a core for all in turn.

    make bench-peers [NANODO=PATH]

Contestants take turns in blocks, the order changing from block to block, so that a machine that drifts does so for all.
A ratio is the median over blocks of (theirs / ours), with the range that half of the blocks fall in; above 1 this suite
is faster. PyTorch runs in an environment of its own; NanoDO where the path of its source is given.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from repro.commands.peers.serve import SEQUENCE, SHAPES, Shape
from repro.diloco.jax_settings import xla_flags
from repro.errors import UserError
from repro.files import write_bytes
from repro.machines.hardware import ALLOCATOR
from repro.runs.provenance import commit, machine
from repro.words import aligned

BLOCKS, BLOCK_SECONDS = 9, 1.0
TOP = Path(__file__).resolve().parents[2]
OWN = "this suite"
FALLING = 0.98  # of the first loss, at most, after all steps: random tokens, always the same, are learnt by heart


@dataclass(frozen=True)
class Contestant:
    """A program that serves one shape (`repro.commands.peers.serve`), and what it gets of our sweeps' environment."""

    name: str
    command: tuple[str, ...]
    allocator: bool
    flags: str = ""  # of XLA


def contestants(shape: str, torch: Path | None, nanodo: Path | None) -> list[Contestant]:
    """Ours first."""
    step = "repro.commands.peers.{}_step".format
    own = Contestant(OWN, (sys.executable, "-m", step("own"), shape), True, xla_flags("", smoke=False))
    peers = []
    if nanodo is not None:
        peers.append(("NanoDO", (sys.executable, "-m", step("nanodo"), shape, str(nanodo))))
    for how in ("eager", "compile") if torch is not None else ():
        peers.append((f"PyTorch {how}", (str(torch), "-m", step("torch"), shape, how)))
    pairs = [(name, words, allocator) for name, words in peers for allocator in (False, True)]
    return [own, *(Contestant(name + (" + allocator" if a else ""), words, a) for name, words, a in pairs)]


class Server:
    """A running contestant."""

    def __init__(self, contestant: Contestant, environment: dict[str, str]) -> None:
        own = {**environment, **(ALLOCATOR if contestant.allocator else {}), "XLA_FLAGS": contestant.flags}
        self.name = contestant.name
        self._process = subprocess.Popen(
            contestant.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", cwd=TOP, env=own
        )
        self.facts = self._read()

    def seconds(self, steps: int) -> float:
        """How long so many steps take."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        answer = self._read()
        self.loss = answer["loss"]
        return answer["seconds"]

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise UserError(
            f"{self.name} ended without an answer (exit code {self._process.wait()}): see what it says above."
        )


@dataclass(frozen=True)
class Measured:
    """One shape: seconds a step in each block, by contestant, and the facts that each gave of itself."""

    shape: str
    seconds: dict[str, np.ndarray]
    facts: dict[str, dict[str, Any]]

    def quartiles(self, name: str) -> tuple[float, float, float]:
        """Quartiles of a contestant's seconds over ours, block by block."""
        low, middle, high = np.quantile(self.seconds[name] / self.seconds[OWN], (0.25, 0.5, 0.75))
        return float(low), float(middle), float(high)


def time_contestants(shape: str, torch: Path | None, nanodo: Path | None, blocks: int) -> Measured:
    """Time all contestants at one shape. UserError where the models differ or one doesn't learn."""
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    environment = {**os.environ, **threads, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(TOP)}
    servers = [Server(c, environment) for c in contestants(shape, torch, nanodo)]
    try:
        counts = {s.name: max(1, round(BLOCK_SECONDS / max(s.seconds(3) / 3, 1e-6))) for s in servers}
        seconds: dict[str, list[float]] = {s.name: [] for s in servers}
        for block in range(blocks):
            for server in servers[block % len(servers) :] + servers[: block % len(servers)]:
                seconds[server.name].append(server.seconds(counts[server.name]) / counts[server.name])
        _check(servers, SHAPES[shape])
        return Measured(shape, {n: np.array(s) for n, s in seconds.items()}, {s.name: s.facts for s in servers})
    finally:
        for server in servers:
            server.close()


def _check(servers: Sequence[Server], shape: Shape) -> None:
    """UserError unless the models are as large and every loss fell."""
    gains = 2 * (shape.width // shape.heads) * shape.layers  # of QK-norm, which NanoDO lacks
    own = servers[0].facts["parameters"]
    for server in servers:
        lacks = gains if server.name.startswith("NanoDO") else 0
        if server.facts["parameters"] + lacks != own:
            raise UserError(
                f"{server.name} has {server.facts['parameters']} parameters and {OWN} {own}: mend the model."
            )
        if not server.loss < FALLING * server.facts["loss"]:
            raise UserError(f"{server.name}: the loss went from {server.facts['loss']} to {server.loss}.")


def roofline(measured: Measured) -> str:
    """GFLOP/s of our step (6 N a token) over that of a product [tokens, d] x [d, 4 d] by XLA on one core."""
    shape = SHAPES[measured.shape]
    tokens = shape.batch * SEQUENCE
    done = subprocess.run(
        [sys.executable, "-m", "repro.commands.peers.product", str(tokens), str(shape.width), str(4 * shape.width)],
        capture_output=True,
        encoding="utf-8",
        check=True,
        cwd=TOP,
        env={**os.environ, **ALLOCATOR, "JAX_PLATFORMS": "cpu"},
    )
    product = float(done.stdout)
    flops = 6 * (12 * shape.width**2 * shape.layers + shape.vocab * shape.width) * tokens
    step = flops / float(np.median(measured.seconds[OWN])) / 1e9
    return (
        f"{measured.shape}: {step:.0f} GFLOP/s a step (6 N a token) of {product:.0f} in a product: {step / product:.0%}"
    )


def peers_report(all_measured: Sequence[Measured]) -> str:
    """The tables as Markdown."""
    names = list(all_measured[0].seconds)
    head = ("shape (width × layers, V, B)", "ours, tokens/s", *(f"{n} / ours" for n in names[1:]))
    rows = []
    for m in all_measured:
        s = SHAPES[m.shape]
        label = f"{m.shape} {s.width} × {s.layers}, {s.vocab:,}, {s.batch}" + (
            f", M = {s.replicas}" if s.replicas > 1 else ""
        )
        speed = s.batch * SEQUENCE / float(np.median(m.seconds[OWN]))
        ratios = ["{1:.2f} [{0:.2f}, {2:.2f}]".format(*m.quartiles(n)) for n in names[1:]]
        rows.append((label, f"{speed:,.0f}", *ratios))
    versions = ", ".join(f"{n} {f['version']}" for n, f in all_measured[0].facts.items() if "allocator" not in n)
    where, at = machine(), commit()
    lines = [
        f"Commit {at['commit'][:10]}{' with changes' if at['dirty'] else ''}; {where['processor']}, one core; "
        f"Python {platform.python_version()}; {versions}. Load at the end: {os.getloadavg()[0]:.1f}.",
        f"Medians of {len(all_measured[0].seconds[OWN])} interleaved blocks of about {BLOCK_SECONDS:g} s, with the "
        "range of half of them; above 1 ours is faster.",
        *(["NanoDO: not here (give its source by NANODO=PATH)."] if not any("NanoDO" in n for n in names) else []),
        "",
        *markdown_table(head, rows),
        "",
        *(f"- {roofline(m)}" for m in all_measured),
    ]
    return "\n".join(lines)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]


def main() -> int:
    """Measure, print, and leave docs/speed.md where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--torch", type=Path, help="a Python with PyTorch")
    parser.add_argument("--nanodo", type=Path, help="NanoDO's source")
    parser.add_argument("--shapes", default="abcd")
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--write", type=Path, help="a page to write the tables into, such as docs/speed.md")
    args = parser.parse_args()
    measured = []
    for shape in args.shapes:
        print(f"shape {shape} …", file=sys.stderr, flush=True)
        measured.append(time_contestants(shape, args.torch, args.nanodo, args.blocks))
        print("\n".join(aligned(("contestant", "ms a step", "/ ours"), _lines(measured[-1]), left=1)), flush=True)
    text = peers_report(measured)
    print(text)
    if args.write:
        write_bytes(args.write, page(text, args.write).encode())
    return 0


def page(tables: str, old: Path) -> str:
    """The page with new tables; the sections below them, which people write, stay as they are in the `old` one."""
    written = old.read_text(encoding="utf-8") if old.exists() else ""
    _, heading, below = written.partition("\n## ")
    return f"{PAGE}{tables}\n{heading}{below}"


def _lines(measured: Measured) -> list[tuple[str, str, str]]:
    return [
        (name, f"{1e3 * float(np.median(s)):.2f}", f"{measured.quartiles(name)[1]:.2f}")
        for name, s in measured.seconds.items()
    ]


PAGE = """# Speed beside PyTorch and NanoDO

Written by `make bench-peers`. One training step of the same decoder in float32, sequences of 128 tokens, AdamW with
clipping, on one core; ours and PyTorch's with QK-norm and z-loss, NanoDO's without, as its source has none. Shape d is
Streaming DiLoCo with two replicas, synchronisation included, against data-parallel steps of the others on as many
tokens.
Ours has what sweeps start workers with: settings of the C library, and LLVM's first level of effort. "+ allocator"
gives a peer the former; the latter makes NanoDO's step slower.

"""

if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        print(f"repro: {error}", file=sys.stderr)
        sys.exit(2)
