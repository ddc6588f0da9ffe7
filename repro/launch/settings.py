"""Where pods run: a user's own file, launch.toml, which no repository holds. No JAX."""

import tomllib
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, get_type_hints

from repro.errors import UserError, check_known

EXAMPLE = """\
project = "my-project"                                  # of Google Cloud
zone = "us-west4-a"
cluster = "diloco"                                      # made by `xpk cluster create`
image = "us-docker.pkg.dev/my-project/repro/train:1"    # built from repro/launch/Dockerfile
root = "gs://my-bucket/runs"                            # run folders: configs, checkpoints, results
cache = "/tokens"                                       # in the pod: the folder that holds tokens/
storage = ["tokens"]                                    # what xpk mounts there (`xpk storage attach`)
"""
CAPACITIES = ("on-demand", "spot", "flex")


@dataclass(frozen=True)
class Settings:
    """One cluster and its bucket. UserError with the value for what can't be."""

    project: str
    zone: str
    cluster: str
    image: str
    root: str  # gs://BUCKET/PATH of the run folders
    cache: str  # absolute path in the pod: tokens as `prepare` left them
    storage: tuple[str, ...] = ()  # names of what xpk mounts
    topology: str | None = None  # chips of a slice such as v5e:8x16; None: the rule's
    slices: int | None = None  # None: the rule's
    capacity: str = "on-demand"  # on-demand, spot, flex, or the name of a reservation
    priority: str = "medium"  # of Kueue: very-low, low, medium, high, very-high
    restarts: int = 1000  # of a pre-empted run, before its JobSet gives up
    grace_s: int = 120  # from SIGTERM to the kill
    keep_s: int = 3600  # an ended JobSet is shown so long, and in its way for as long
    xpk: str = ".venv-xpk/bin/xpk"

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(Settings).items():
            kinds, words = _KINDS[hint]
            value = getattr(self, name)
            if not isinstance(value, kinds) or value == "" or isinstance(value, bool):
                raise UserError(f"{name} = {value!r}: it must be {words}.")
        if not self.root.startswith("gs://") or self.root.count("/") < 3:
            raise UserError(f"root = {self.root!r}: pods on several machines share a bucket, so gs://BUCKET/PATH.")
        if not self.cache.startswith("/"):
            raise UserError(f"cache = {self.cache!r}: give an absolute path, as it is in the pod.")
        for name, least in (("restarts", 0), ("grace_s", 0), ("keep_s", 0), ("slices", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"{name} = {value}: {least} or more.")

    @property
    def programs(self) -> str:
        """Where all pods keep compiled programs, so that a restart loads them: beside the run folders."""
        return self.root.rstrip("/").rpartition("/")[0] + "/xla"


_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a text that isn't empty"),
    int: ((int,), "a whole number"),
    str | None: ((str, NoneType), "a text that isn't empty"),
    int | None: ((int, NoneType), "a whole number"),
    tuple[str, ...]: ((tuple,), "a list of names"),
}


def read_settings(path: Path, flags: dict[str, Any]) -> Settings:
    """The file's settings with the flags over them; UserError when something is missing, unknown or of another kind."""
    found = _read(path)
    known = [field.name for field in fields(Settings)]
    for name in found:
        check_known(f"{path}: unknown setting", name, known)
    given = {**found, **flags}
    missing = [f.name for f in fields(Settings) if f.default is MISSING and f.name not in given]
    if missing:
        where = f"{path} lacks" if path.is_file() else f"{path} isn't there, and no flag gives"
        raise UserError(f"{where} {', '.join(missing)}: write it as below, or as docs/pod.md says.\n\n{EXAMPLE}")
    if isinstance(given.get("storage"), list):
        given["storage"] = tuple(given["storage"])
    return Settings(**given)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder: name a file, as docs/pod.md says.") from error
    except ValueError as error:
        raise UserError(f"{path} is not TOML ({error}).") from error
