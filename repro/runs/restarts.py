"""How often a run was started without coming forward: kept in its folder, as what starts it may not count. No JAX.

runs/<id>/unmet/<k>         the k-th start in a row of which the processes did not all meet
          given_up.json     {"lease": n}: the run was given up, and starts after lease n count anew
"""

from collections.abc import Callable
from pathlib import Path

from repro.files import create_bytes, listing, read_json, remove_tree, write_json
from repro.runs.folder import RunFolder
from repro.runs.leases import newest
from repro.runs.takeover import attempts, saved_steps

LONGEST_S = 3600.0  # that is waited for the others


def unmet(folder: RunFolder) -> int:
    """How many starts in a row did not meet."""
    return len(listing(folder.path / "unmet"))


def note_unmet(folder: RunFolder, before: int) -> Callable[[], None]:
    """Notes one more than were `before`; all processes of a start note the same one."""

    def note() -> None:
        create_bytes(folder.path / "unmet" / f"{before + 1:06d}", b"{}")

    return note


def forget_unmet(folder: RunFolder) -> None:
    """The processes met."""
    remove_tree(folder.path / "unmet")


def patience(within_s: float, before: int) -> float:
    """How long to wait for the others: twice as long after each start in vain, up to an hour or what was asked for."""
    return min(within_s * 2.0 ** min(before, 60), max(LONGEST_S, within_s))


def fruitless(folder: RunFolder, number: int) -> int:
    """How many leases before `number` came to no new checkpoint, since one did or since the run was given up."""
    newest_steps = [(attempt, home, max(saved_steps(home), default=-1)) for attempt, home in attempts(folder.path)]
    reached = max(step for _, _, step in newest_steps)
    makers = [attempt for attempt, home, step in newest_steps if step == reached > _began_with(home)]
    given_up = (read_json(folder.path / "given_up.json") or {"lease": 0})["lease"]
    return number - 1 - max([given_up, *makers])


def _began_with(home: Path) -> int:
    """The step of the checkpoint that an attempt took over; -1 for none."""
    step = (read_json(home / "from.json") or {"step": None})["step"]
    return -1 if step is None else step


def give_up(folder: RunFolder) -> None:
    """From now on starts count anew: the run is launched again on request only."""
    forget_unmet(folder)
    write_json(folder.path / "given_up.json", {"lease": newest(folder)})


def restarts_sentence(folder: RunFolder, starts: int) -> str:
    """Why the run is given up."""
    return (
        f"{folder.run_id} was started {starts} times in a row without a new checkpoint: look at the logs of its "
        "processes, then launch it with --retry-failed."
    )
