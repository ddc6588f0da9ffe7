"""Expected against found: which runs are done, how far the others are, and what became of them. No JAX.

A run that is being trained tells its step and speed with each beat of its lease; of the others the newest checkpoint
says how far they came. Clocks of machines are never compared: one look has to do, so the age of a beat is taken from
the clock that stamped it, that of the file system or bucket, asked by writing there too (`clock_of`).
"""

import contextlib
import json
import os
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from repro.errors import UnusableFile, UserError, pass_over
from repro.files import is_bucket, listing, modified, read_json, write_bytes
from repro.runs import stored
from repro.runs.folder import RunFolder
from repro.runs.leases import beat_record, holder, last_sign, newest
from repro.runs.stored import checked
from repro.runs.takeover import completed, saved_steps
from repro.spec.config import RunConfig
from repro.spec.experiment import PlannedRun, unique
from repro.spec.identity import canonical
from repro.spec.validation import declared
from repro.words import last_line

STATES = ("finished", "running", "stalled", "unclear", "stopped", "failed", "missing")
WATCH_SECONDS = 2.0
Record = dict[str, Any]


def clock_of(root: Path) -> float | None:
    """What time it is, in seconds since 1970, for the file system or bucket that `root` lies in.

    A file is written there and deleted for it, a nameless one where there are such; None where that is not allowed.
    """
    with contextlib.suppress(OSError, UserError):
        if not is_bucket(root):
            with tempfile.TemporaryFile(dir=root) as probe:
                return os.fstat(probe.fileno()).st_mtime
        probe = root / f".clock-{uuid.uuid4().hex}"
        write_bytes(probe, b"")
        at = modified(probe)
        probe.unlink()
        return at
    return None


def states(runs: Iterable[PlannedRun] | None, root: Path, at: float | None) -> list[Record]:
    """One record a run, in order: state, step, loss, tokens/s, seconds left, age of the last checkpoint, reason.

    finished; running: a lease with a recent beat; stalled: its last beat says that it comes forward no more; unclear: a
    lease that has not ended, of which nobody can tell here how old its last beat is; stopped: begun, nobody at it;
    failed, or what its folder holds can't be used; missing: not begun. Without `runs`, those of all folders in `root`.
    `at` is the time by `clock_of`.
    """
    if runs is None:
        return [_state(folder, config, at) for folder, config in folders(root)]
    records = []
    for run in unique(runs):
        folder = RunFolder(root, run.run_id)
        records.append(_state(folder, canonical(run.config), at, run.config))
    return records


def folders(root: Path) -> Iterator[tuple[RunFolder, dict[str, Any]]]:
    """Every run in `root`, by name, and its config as it is stored; what is no run's is named and passed over."""
    for name in listing(root):
        path = root / name / "config.json"
        try:
            config = checked(path, read_json(path), stored.Config)
        except UnusableFile as error:
            pass_over(str(error))
            continue
        if config is not None:
            yield RunFolder(root, name), config


def _state(folder: RunFolder, config: dict[str, Any], at: float | None, expected: RunConfig | None = None) -> Record:
    try:
        if expected is not None:
            folder.check(expected)
        return _record(folder, config, at)
    except UnusableFile as error:
        unusable: Record = {"run": folder.run_id, "steps": config["steps"], "state": "failed", "step": 0}
        return unusable | {"reason": str(error)}


def _record(folder: RunFolder, config: dict[str, Any], at: float | None) -> Record:
    record: Record = {"run": folder.run_id, "steps": config["steps"], "state": "missing", "step": 0}
    files = set(listing(folder.path))
    if "summary.json" in files and (summary := folder.result()) is not None:
        record |= {"state": "finished", "step": summary["steps"], "tokens_per_s": summary["tokens_per_s"]}
        validation = declared(summary, config["scale"], config["model"]["seq_len"])
        return record | ({} if validation is None else {"loss": validation["loss"]})
    if not files:
        return record
    record |= {"state": "stopped"} | _saved(folder, at)
    if "failure.json" in files and (failure := folder.failure()) is not None:
        record |= {"state": "failed", "reason": last_line(failure["reason"])}
    number = newest(folder) if "leases" in files else 0
    if number and (held_by := holder(folder, number)) is not None:
        record |= _held(folder, number, held_by, config, at)
    return record | ({"attempts": number} if number else {})


def _held(folder: RunFolder, number: int, held_by: Record, config: dict[str, Any], at: float | None) -> Record:
    """What the last beat of a lease tells that has not ended; nothing when it is older than the lease."""
    beat = beat_record(folder, number)
    sign = last_sign(folder, number)  # after the beat was read: a network file system then looks again
    if "stalled_s" in beat:
        state: Record = {"state": "stalled", "since": _time(sign - beat["stalled_s"])}
    elif at is None:
        state = {"state": "unclear", "last_sign": _time(sign)}
    elif at - sign <= held_by["lease_s"]:
        state = {"state": "running"}
    else:
        return {}
    worker = {"worker": f"{held_by['host'].split()[0]}:{held_by['pid']}"} if held_by["host"] else {}
    return state | worker | _progress(config, beat)


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _saved(folder: RunFolder, at: float | None) -> Record:
    """The newest checkpoint, and how many seconds ago it was written, where that can be known."""
    home = folder.home
    steps = saved_steps(home)
    if not steps:
        return {}
    age = {} if at is None else {"checkpoint_age_s": max(round(at - modified(completed(home, max(steps)))), 0)}
    return {"step": max(steps), **age}


def _progress(config: dict[str, Any], beat: Record) -> Record:
    """What the last beat of a worker tells."""
    progress = {key: beat[key] for key in ("stage", "step", "loss", "tokens_per_s") if key in beat}
    if progress.get("tokens_per_s") and "stalled_s" not in beat:
        left = (config["steps"] - progress["step"]) * config["batch"] * config["model"]["seq_len"]
        progress["seconds_left"] = round(left / progress["tokens_per_s"])
    return progress


def totals(records: list[Record]) -> Record:
    """Runs in each state, the share of all steps that is done, and the speed of those running."""
    counts = {state: sum(r["state"] == state for r in records) for state in STATES}
    steps = sum(r["steps"] for r in records)
    done = sum(min(r["step"], r["steps"]) for r in records) / max(steps, 1)
    speed = sum(r.get("tokens_per_s", 0.0) for r in records if r["state"] == "running")
    return {"runs": len(records), **counts, "share_of_steps": done, "tokens_per_s": speed}


def status_json(runs: Iterable[PlannedRun] | None, root: Path, at: float | None) -> str:
    """The records and the totals as JSON."""
    records = states(runs, root, at)
    return json.dumps({"runs": records, "totals": totals(records)}, indent=1)


def status_text(runs: Iterable[PlannedRun] | None, root: Path, at: float | None) -> str:
    """A line a run and a line of totals."""
    records = states(runs, root, at)
    sums = totals(records)
    counts = ", ".join(f"{sums[state]} {state}" for state in STATES if sums[state])
    line = f"{len(records)} runs: {counts or f'none in {root}'}"
    if sums["share_of_steps"]:
        line += f"; {100 * sums['share_of_steps']:.0f} % of all steps"
    if sums["running"]:
        line += f"; {sums['tokens_per_s'] / 1000:.1f}k tokens/s"
    return "\n".join([*map(_line, records), line])


def watch_runs(runs: Iterable[PlannedRun] | None, root: Path) -> None:
    """Show the text on the screen, renewed every two seconds, until all are finished or the user interrupts."""
    from rich.live import Live
    from rich.text import Text

    runs = None if runs is None else tuple(runs)
    at, start = clock_of(root), time.monotonic()

    def clock() -> float | None:
        return None if at is None else at + time.monotonic() - start

    with Live(Text(status_text(runs, root, clock())), auto_refresh=False, vertical_overflow="visible") as live:
        while any(r["state"] != "finished" for r in states(runs, root, clock())):
            time.sleep(WATCH_SECONDS)
            live.update(Text(status_text(runs, root, clock())), refresh=True)


def _line(record: Record) -> str:
    state = f"stalled since {record['since']}" if "since" in record else f"{record['state']:<8}"
    words = [f"{record['run']:<40}", state, f"{record['step']}/{record['steps']}"]
    if "loss" in record:
        words.append(f"loss {record['loss']:.4f}  {record['tokens_per_s'] / 1000:.1f}k tokens/s")
    elif "stage" in record:
        words.append(record["stage"])
    if "last_sign" in record:
        words.append(f"last sign at {record['last_sign']}")
    if "seconds_left" in record:
        words.append(f"{_clock(record['seconds_left'])} left")
    if "checkpoint_age_s" in record:
        words.append(f"saved {_clock(record['checkpoint_age_s'])} ago")
    return "  ".join([*words, record.get("worker", ""), record.get("reason", "")]).rstrip()


def _clock(seconds: int) -> str:
    hours, seconds = divmod(max(seconds, 0), 3600)
    return f"{hours}:{seconds // 60:02d}:{seconds % 60:02d}"
