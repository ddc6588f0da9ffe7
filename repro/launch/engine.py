"""What an engine of `launch` is: a type of settings and two functions, `render` and `create`. No JAX.

Settings stand in a user's own file, launch.toml, which no repository holds, or are flags; each field is checked by its
annotation. An engine decides where processes run and who starts them again; what they run is one command for all.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from repro.errors import UnusableFile, UserError, check_known
from repro.files import read_bytes
from repro.runs.folder import RunFolder
from repro.spec.experiment import PlannedRun
from repro.words import last_line

NAME_LIMIT = 40  # of xpk's names


@dataclass(frozen=True)
class Request:
    """Which experiment is launched, as the processes of a run are told."""

    experiment: str
    scale: str
    seeds: int


@dataclass(frozen=True)
class Engine:
    """One way to start runs.

    `render(request, runs, settings, folder)` writes what would be started into the folder, offline, and returns the
    text that says so; `create(request, runs, settings, retry_failed)` starts what isn't there and returns the exit
    code. `example` is a launch.toml and `page` tells of it, both empty where none is read; `flags` are the settings
    that are options too, with their help.
    """

    settings: Any  # a dataclass
    render: Callable[[Request, Sequence[PlannedRun], Any, Path], str]
    create: Callable[[Request, Sequence[PlannedRun], Any, bool], int]
    example: str = ""
    page: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)


def job_name(run_id: str) -> str:
    """What a run's job is called: a function of the run's id, so that a second launch finds the first."""
    slug, _, digest = f"r-{run_id}".rpartition("-")  # a name starts with a letter
    return f"{slug[: NAME_LIMIT - len(digest) - 1].rstrip('-')}-{digest}"


def trainer(run: PlannedRun, request: Request, settings: Any) -> list[str]:
    """What each process of a run calls Python with; `settings` have root, cache, meet_within_s and restarts."""
    words = ["-m", "repro", "train", run.run_id]
    words += ["--experiment", request.experiment, "--scale", request.scale, "--seeds", str(request.seeds)]
    words += ["--root", settings.root, "--cache", settings.cache, "--cluster"]
    return [*words, "--meet-within", str(settings.meet_within_s), "--restarts", str(settings.restarts)]


def create_each(
    runs: Sequence[PlannedRun], root: Path, retry_failed: bool, create: Callable[[PlannedRun], str | None]
) -> int:
    """Start each run that is not finished and didn't fail; 2 where some are left out, and a line for each.

    `create` returns the words for the job that it made, None where one of its name is there already.
    """
    left_out = False
    for run in runs:
        folder = RunFolder(root, run.run_id)
        try:
            folder.check(run.config)
            failure, summary = folder.failure(), folder.summary()
        except UnusableFile as error:
            left_out, words = True, str(error)
        else:
            if summary is not None:
                words = "finished"
            elif failure and not retry_failed:
                left_out = True
                words = f"failed before: {last_line(failure['reason'])} (--retry-failed launches it again)"
            else:
                job = create(run)
                words = f"launched ({job})" if job else f"there already, left alone ({job_name(run.run_id)})"
        print(f"{run.run_id}: {words}", flush=True)
    if left_out:
        raise UserError("some runs failed before, or their folders can't be used, and were not launched.")
    return 0


def read_settings(engine: Engine, path: Path, flags: Mapping[str, Any]) -> Any:
    """The file's settings with the flags over them; UserError when something is missing, unknown or of another kind."""
    written = _read(path)
    known = {each.name: each for each in fields(engine.settings)}
    for name in written:
        check_known(f"{path}: unknown setting", name, list(known))
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in {**written, **flags}.items()}
    missing = [name for name, each in known.items() if each.default is MISSING and name not in given]
    if missing:
        where = f"{path} lacks" if path.is_file() else f"{path} isn't there, and no flag gives"
        raise UserError(
            f"{where} {', '.join(missing)}: write it as below, or as {engine.page} says.\n\n{engine.example}"
        )
    return engine.settings(**given)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((read_bytes(path) or b"").decode())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not TOML ({error}).") from error
