"""Attempts of a run in folders of their own, and what one takes over from those before it. No JAX.

An attempt writes into `attempts/<n>` alone, n being the number of its lease. Before it trains it shares the checkpoints
and curves of the attempt that came furthest, then says so in `from.json`: a folder without that is a
half-made one and counts for nothing. So a worker that wakes after its run was taken over finds its folder as it left
it, or gone, and can touch nothing of its successor's.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from repro import disk
from repro.errors import UserError
from repro.files import create_bytes, is_bucket, listing, read_bytes, remove_tree, share_tree

# In this order: a live attempt writes the curve up to a checkpoint before the checkpoint, so none of it is missed.
KEPT = ("checkpoints", "metrics", "syncs")
TRIES = 20


def attempt_path(run: Path, number: int) -> Path:
    """Where attempt `number` writes."""
    return run / "attempts" / f"{number:06d}"


def saved_steps(home: Path) -> list[int]:
    """Steps of the complete checkpoints of an attempt, ascending."""
    steps = sorted(int(name) for name in listing(home / "checkpoints") if name.isdecimal())
    return [step for step in steps if completed(home, step).exists()] if is_bucket(home) else steps


def completed(home: Path, step: int) -> Path:
    """What appears when the checkpoint of `step` is complete: its folder, in a bucket orbax's mark in it."""
    folder = home / "checkpoints" / str(step)
    return folder / "commit_success.txt" if is_bucket(home) else folder


def attempts(run: Path) -> Iterator[tuple[int, Path]]:
    """(number, folder) of the attempts that began; 0 is the run's own folder, where nobody leased the run."""
    yield 0, run
    for name in listing(run / "attempts"):
        if name.isdecimal() and read_bytes(run / "attempts" / name / "from.json") is not None:
            yield int(name), run / "attempts" / name


def furthest(run: Path) -> Path:
    """The folder of the attempt with the newest checkpoint, the later one of two."""
    return _furthest(run)[2]


def _furthest(run: Path) -> tuple[int, int, Path]:
    return max((max(saved_steps(home), default=-1), number, home) for number, home in attempts(run))


def begin(run: Path, number: int) -> Path:
    """Make the folder of attempt `number`, with what the furthest of the others reached; safe beside all of them."""
    home = attempt_path(run, number)
    for _ in range(TRIES):
        remove_tree(home)
        step, source, path = _furthest(run)
        try:
            for name in KEPT:
                if step >= 0 and listing(path / name):
                    share_tree(path / name, home / name, _unfinished)
            _share_older(run, (number, source), home)
        except OSError as error:
            if (path / "from.json").exists() and not _vanished(error):
                raise UserError(f"{home} could not be made ({disk.reason(error)}): {disk.advice(error)}.") from error
            continue  # the source was deleted or went on meanwhile: look again
        if source == 0 or (path / "from.json").exists():
            facts = json.dumps({"attempt": source, "step": step if step >= 0 else None})
            create_bytes(home / "from.json", facts.encode())
            _drop_overtaken(run, number, step)
            return home
    raise UserError(f"{run}: its attempts changed while they were read, {TRIES} times: run again.")


def _share_older(run: Path, taken: tuple[int, ...], home: Path) -> None:
    """The checkpoints of other attempts, soon dropped, at which a part of the curve ends: should those of the furthest
    all be damaged, one of these may be sound. Not in a bucket, where each would be a copy.
    """
    for other, path in attempts(run) if not is_bucket(run) else ():
        for step in set(saved_steps(path)) - set(saved_steps(home)) if other not in taken else ():
            if any(part.endswith(f"-{step:09d}.parquet") for part in listing(home / "metrics")):
                share_tree(path / "checkpoints" / str(step), home / "checkpoints" / str(step), _unfinished)


def drop_ahead(run: Path, number: int, step: int) -> None:
    """Delete what the attempts before `number` hold of steps after `step`: found damaged, it would be taken again."""
    for other, home in attempts(run):
        for later in saved_steps(home) if other < number else ():
            if later > step:
                remove_tree(home / "checkpoints" / str(later))


def drop_others(run: Path, number: int) -> None:
    """Delete the attempts that the one which finished the run makes superfluous."""
    for name in listing(run / "attempts"):
        if name != attempt_path(run, number).name:
            _drop(run / "attempts" / name)


def _drop_overtaken(run: Path, number: int, step: int) -> None:
    """Delete earlier attempts that reached less than `step`: no attempt that ended the run is among them."""
    for other, home in list(attempts(run)):
        if 0 < other < number and max(saved_steps(home), default=-1) < step:
            _drop(home)


def _drop(home: Path) -> None:
    (home / "from.json").unlink(missing_ok=True)  # first, so that who is reading the rest learns of it
    remove_tree(home)


def _unfinished(name: str) -> bool:
    return "orbax-checkpoint-tmp" in name or name.startswith(".part-")


def _vanished(error: OSError) -> bool:
    """Whether the files that could not be shared were gone; shutil collects the reasons of a whole tree."""
    reasons = error.args[0] if error.args and isinstance(error.args[0], list) else None
    if reasons is None:
        return isinstance(error, FileNotFoundError)
    return all("No such file" in str(reason) for *_, reason in reasons)
