"""Two processes on a shaped link, against the simulator.

As root: `PYTHONPATH=. python tests/support/shaped_link.py [MBIT_PER_S ...]`.

Two network namespaces are joined by a veth pair, both ends held to a rate by `tc tbf`. In each a process of the
ordinary trainer (`python -m repro train`) holds one replica. With τ = 0 a step that synchronises is the inner step,
then the payload on the link; XLA on CPU would not overlap them in any case. The simulator predicts the time of a cycle
of H steps from two measurements, neither of them of the trainer on a shaped link: the run's cycles before the link is
shaped (compute), and a line through the times of bare all-gathers of other sizes on the shaped link (`bare_gather`).
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import process_rig
import tiny

from repro.corpus.prepare import prepare
from repro.network.simulate import Cycle, Link, Send, cycle_time
from repro.runs.folder import open_folder
from repro.spec.config import FragmentConfig, ModelConfig, RunConfig
from repro.spec.fragments import cut
from repro.spec.payload import fragment_bytes
from repro.spec.schedule import is_due
from repro.spec.shapes import fragment_shapes
from repro.training.metrics import read_metrics

NAMES = tuple(f"repro-link-{os.getpid()}-{side}" for side in "ab")  # two of these may run at once
ADDRESSES = "10.213.77.1", "10.213.77.2"
EVERY, CYCLES = 4, 5  # H, and how many cycles are measured on the bare link, and on the shaped one
FIRST, BETWEEN = 1, 3  # cycles before those, and between them: after the first of these the link is shaped
SIZES, REPEATS = (400_000, 1_600_000), 5  # bytes of the bare all-gathers, none of them a payload of a run below
MODEL = ModelConfig("link", layers=3, ffn_width=512, heads=2, vocab=256, seq_len=32, compute_dtype="float32")
CUTS = {
    "diloco": FragmentConfig("whole", 1, "merged"),
    "streaming": FragmentConfig("strided", 1, "merged"),
}
# Bytes of Ethernet, IPv4 and TCP with time stamps in a full frame of 1514 that tbf counts, and what is left for data.
GOODPUT = 1448 / 1514
# Why a link with a rate in each direction takes 3/2 of a payload's time, from gloo's source (allgather.cc,
# transport/tcp/pair.cc): a process posts send and receive of the payload's first half, then of its second. Data waits
# for the peer's word that it is ready to receive, and that word goes into the same first-in-first-out stream as the
# sender's own data. Who comes second finds the first one's words, so each half of its data goes ahead of the word that
# should follow it: the first one sends nothing during the second's first half, then its own two halves.
IN_SEQUENCE = 3 / 2


@dataclass(frozen=True)
class Line:
    """Seconds of a bare all-gather: `bucket_s` + `byte_s` a byte of one process."""

    byte_s: float
    bucket_s: float  # mostly less than 0: what both buckets of tbf hold passes at once
    spread: float  # middle half of the repetitions / median, the worst of the sizes

    def seconds(self, size: float) -> float:
        """How long one send takes."""
        return self.bucket_s + self.byte_s * size


@dataclass(frozen=True)
class Bare:
    """Bare all-gathers on a link: seconds by size (from the second process's call to the last end), who sent when."""

    mbit_per_s: float
    seconds: dict[int, list[float]]
    first_share: float  # of its bytes, that the first process had sent when the second had sent half
    second_share: float  # that the second had sent when the first had sent half

    @property
    def line(self) -> Line:
        """Through the medians."""
        medians = {size: float(np.median(s)) for size, s in self.seconds.items()}
        byte_s, bucket_s = np.polyfit(list(medians), list(medians.values()), 1)
        spread = max(middle_half(s) / medians[size] for size, s in self.seconds.items())
        return Line(float(byte_s), float(bucket_s), spread)

    @property
    def in_sequence(self) -> float:
        """Time a byte over what the rate says: `IN_SEQUENCE` is expected."""
        return self.line.byte_s * self.mbit_per_s * 1e6 * GOODPUT / 8

    def report(self) -> str:
        """One line."""
        return (
            f"all-gather {self.mbit_per_s:4g} Mbit/s  {self.in_sequence:.3f} of a byte's time (gloo: {IN_SEQUENCE:g}), "
            f"{self.line.bucket_s * 1e3:+.1f} ms, spread {self.line.spread:.1%}; first process at "
            f"{self.first_share:.2f} when the second is half through, the second at {self.second_share:.2f} when the "
            "first is"
        )


@dataclass(frozen=True)
class Measured:
    """Seconds of the cycles of a run, on the bare and then on the shaped link, and the simulated cycle."""

    method: str
    mbit_per_s: float
    payload_bytes: int  # of one replica in a cycle
    bare_s: tuple[float, ...]  # cycles on the bare pair
    cycles_s: tuple[float, ...]
    simulated_s: float
    line: Line

    @property
    def compute_s(self) -> float:
        """How long a cycle computes."""
        return float(np.median(self.bare_s))

    @property
    def cycle_s(self) -> float:
        """Measured."""
        return float(np.median(self.cycles_s))

    @property
    def tolerance_s(self) -> float:
        """How far repetitions lie apart (middle halves): cycles, compute, and the bare all-gathers of the line."""
        apart = middle_half(self.bare_s) + middle_half(self.cycles_s)
        return apart + self.line.spread * (self.simulated_s - self.compute_s)

    @property
    def at_once_s(self) -> float:
        """What the cycle would take if both processes sent their payloads at once."""
        return self.compute_s + (self.simulated_s - self.compute_s) / IN_SEQUENCE

    def report(self) -> str:
        """One line."""
        return (
            f"{self.method:<10} {self.mbit_per_s:4g} Mbit/s  payload {self.payload_bytes / 1e6:.2f} MB  compute "
            f"{self.compute_s:.3f} s  transfer {self.cycle_s - self.compute_s:.3f} s  cycle {self.cycle_s:.3f} s, "
            f"simulated {self.simulated_s:.3f} s ({self.cycle_s / self.simulated_s - 1:+.1%}, repetitions within "
            f"{self.tolerance_s / self.simulated_s:.1%})"
        )


def middle_half(seconds: Sequence[float]) -> float:
    """Upper less lower quartile."""
    lower, upper = np.quantile(seconds, (0.25, 0.75))
    return float(upper - lower)


def missing() -> str | None:
    """Why there can be no shaped link here; None when there can."""
    if os.geteuid():
        return "needs root"
    if any(shutil.which(tool) is None for tool in ("ip", "tc")):
        return "needs ip and tc (iproute2)"
    try:
        with shaped(100.0):
            return None
    except subprocess.CalledProcessError as error:
        return f"this kernel refuses {' '.join(error.cmd)}"


@contextmanager
def shaped(mbit_per_s: float | None) -> Iterator[list[list[str]]]:
    """Two namespaces with a link of this rate (None: not shaped); yields the commands that enter them."""
    hosts = [Path("/etc/netns") / name for name in NAMES]
    try:
        for name, address, folder in zip(NAMES, ADDRESSES, hosts, strict=True):
            _ip("netns", "add", name)
            folder.mkdir(parents=True)  # what a process here finds as /etc/hosts: the address others reach it at
            (folder / "hosts").write_text(f"127.0.0.1 localhost\n{address} {socket.gethostname()}\n", encoding="utf-8")
        _ip("link", "add", "veth0", "netns", NAMES[0], "type", "veth", "peer", "name", "veth0", "netns", NAMES[1])
        for name, address in zip(NAMES, ADDRESSES, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "veth0")
            _ip("-n", name, "link", "set", "veth0", "gso_max_size", "1514", "gso_max_segs", "1")
            for device in ("lo", "veth0"):
                _ip("-n", name, "link", "set", device, "up")
            # Every namespace may have reno. BBR, where a machine has it, holds back for 200 ms now and then.
            _ip("netns", "exec", name, "sysctl", "-q", "-w", "net.ipv4.tcp_congestion_control=reno")
        if mbit_per_s is not None:
            hold(mbit_per_s)
        yield [["ip", "netns", "exec", name] for name in NAMES]
    finally:
        for name, folder in zip(NAMES, hosts, strict=True):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            shutil.rmtree(folder, ignore_errors=True)


def hold(mbit_per_s: float) -> None:
    """Shape both directions from now on. The queue takes a whole payload, so that nothing is dropped."""
    for name in NAMES:
        shape = ["rate", f"{mbit_per_s}mbit", "burst", "4kb", "limit", "16mb"]
        _call("tc", "-n", name, "qdisc", "add", "dev", "veth0", "root", "tbf", *shape)


def payloads_sent(payload_bytes: int) -> float:
    """How many payloads have left the first namespace."""
    (link,) = json.loads(_call("ip", "-n", NAMES[0], "-s", "-j", "link", "show", "veth0"))
    return link["stats64"]["tx"]["bytes"] * GOODPUT / payload_bytes


def _ip(*words: str) -> None:
    _call("ip", *words)


def _call(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout


def gather_bare(mbit_per_s: float) -> Bare:
    """Time all-gathers of SIZES on a link of this rate, without a trainer."""
    program, sizes = str(process_rig.ROOT / "tests" / "bare_gather.py"), ",".join(map(str, SIZES))
    with tempfile.TemporaryDirectory() as folder, shaped(mbit_per_s) as prefixes:
        coordinator, files = f"{ADDRESSES[0]}:{process_rig.free_port()}", [Path(folder) / name for name in "01"]
        words = [(coordinator, file.name, sizes, str(REPEATS), str(file)) for file in files]
        _finished(process_rig.start([[*p, sys.executable, program, *w] for p, w in zip(prefixes, words, strict=True)]))
        seen = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return timed(mbit_per_s, seen)


def timed(mbit_per_s: float, seen: list[dict]) -> Bare:
    """Put together what both processes saw: calls (size, begun, ended), samples (time, bytes sent)."""
    sent = [np.array(one["samples"]).T for one in seen]
    seconds, first_shares, second_shares = {}, [], []
    for (size, *a), (_, *b) in zip(*(one["calls"] for one in seen), strict=True):
        begun, ended = max(a[0], b[0]), max(a[1], b[1])
        seconds.setdefault(size, []).append(ended - begun)
        within = np.linspace(begun, ended, 1001)
        passed = [np.interp(within, *samples) for samples in sent]
        shares = [(p - p[0]) / (p[-1] - p[0]) for p in passed]
        first, second = shares if a[0] < b[0] else shares[::-1]
        first_shares.append(first[np.searchsorted(second, 0.5)])
        second_shares.append(second[np.searchsorted(first, 0.5)])
    return Bare(mbit_per_s, seconds, float(np.median(first_shares)), float(np.median(second_shares)))


def _finished(cast: process_rig.Cast) -> None:
    for code, output in cast.wait():
        if code:
            raise RuntimeError(output)


def config_of(method: str) -> RunConfig:
    """A run of two replicas with τ = 0 and what the method sends in float32."""
    sync = replace(tiny.synced(every=EVERY, delays=(0,), mix=0.0), fragments=CUTS[method])
    steps = EVERY * (FIRST + CYCLES + BETWEEN + CYCLES)
    config = tiny.run_config(sync, batch=2, steps=steps)
    return replace(config, model=MODEL, inner=replace(config.inner, learning_rate=1e-4), repeat_data=True)


def cycle_seconds(config: RunConfig, root: Path, cache: Path, mbit_per_s: float) -> tuple[float, ...]:
    """Seconds of each cycle after the first, from the metrics of a run under which the link is shaped half-way."""
    words = ["--checkpoint-every", str(config.steps), "--replica", "2"]
    payload = cycle_of(config)[1]
    with shaped(None) as prefixes:
        cast = process_rig.launch(
            config, root, cache, devices=[1, 1], options=words, prefixes=prefixes, host=ADDRESSES[0]
        )
        while payloads_sent(payload) < FIRST + CYCLES + 1 and cast.members[0].poll() is None:
            time.sleep(0.02)
        hold(mbit_per_s)
        passed = payloads_sent(payload)
        _finished(cast)
    if not passed < FIRST + CYCLES + BETWEEN:
        raise RuntimeError(f"the link was shaped after {passed:.1f} payloads, too late to measure {CYCLES} of them")
    seconds = read_metrics(open_folder(root, config).metrics)["seconds"].to_numpy()
    return tuple(np.diff(seconds[EVERY - 1 :: EVERY]).tolist())


def cycle_of(config: RunConfig, free_bytes: float = 0.0) -> tuple[Cycle, int]:
    """What the trainer does, for the simulator, and the bytes of a cycle. Blocking: ready when the backward ends.

    `free_bytes` of each send take no time.
    """
    sync, model = config.sync, config.model
    assert sync is not None
    pieces, sends, total = cut(sync.fragments, model.layers), [], 0
    for p, piece in enumerate(pieces):
        size = fragment_bytes(sync.codec, fragment_shapes(model, *piece.kind))
        total += size
        at = next(k for k in range(sync.every) if is_due(sync, len(pieces), p, 2 * sync.every + k))
        sends.append(Send(at, (0,), (8.0 * (size - free_bytes),)))
    return Cycle(model.layers, sync.every, tuple(sorted(sends, key=lambda send: send.step))), total


def simulated(config: RunConfig, compute_s: float, line: Line) -> float:
    """Seconds of a cycle by the simulator, on a link with this line."""
    cycle, _ = cycle_of(config, -line.bucket_s / line.byte_s)
    # The simulator's step has 3L boxes, one of them the reduction: the other 3L - 1 make up the compute.
    step = compute_s / EVERY * 3 * MODEL.layers / (3 * MODEL.layers - 1)
    return float(cycle_time(cycle, (step,), Link.of(8e-9 / line.byte_s)))


def measure(method: str, bare: Bare, cache: Path) -> Measured:
    """Run a method on the bare link and then on the shaped one, of the rate of `bare`."""
    config = config_of(method)
    with tempfile.TemporaryDirectory() as folder:
        cycles = cycle_seconds(config, Path(folder), cache, bare.mbit_per_s)
    alone, held = cycles[:CYCLES], cycles[-CYCLES:]
    whole = simulated(config, float(np.median(alone)), bare.line)
    return Measured(method, bare.mbit_per_s, cycle_of(config)[1], alone, held, whole, bare.line)


def main() -> int:
    """Print the bare all-gathers of each rate, and a line for each method."""
    reason = missing()
    if reason:
        print(f"no shaped link: {reason}", file=sys.stderr)
        return 2
    rates = [float(word) for word in sys.argv[1:]] or [10.0, 20.0]
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        prepare("smoke", cache)
        for rate in rates:
            bare = gather_bare(rate)
            print(bare.report(), flush=True)
            for method in CUTS:
                print(measure(method, bare, cache).report(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
