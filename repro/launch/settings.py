"""Where pods run: a user's own file, launch.toml, which no repository holds. No JAX."""

import tomllib
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from repro.errors import UserError, check_known
from repro.files import read_bytes
from repro.values import PATH, WORD, check_fields, one_of, several, text, whole

EXAMPLE = """\
project = "my-project"                                  # of Google Cloud
zone = "us-west4-a"
cluster = "diloco"                                      # made by `xpk cluster create`
image = "us-docker.pkg.dev/my-project/repro/train:1"    # built from repro/launch/Dockerfile
root = "gs://my-bucket/runs"                            # run folders: configs, checkpoints, results
cache = "/tokens"                                       # in the pod: the folder that holds tokens/
storage = ["tokens"]                                    # what xpk mounts there (`xpk storage attach`)
"""
# What becomes an argument of xpk or a label of Kubernetes.
Word = Annotated[str, WORD]
SEGMENT = (
    r"(?!\.\.?(?:/|\Z))[^/\x00-\x20\x7f?*\[\]#]{1,255}"  # of an object's name; these signs are patterns to some tools
)
BUCKET = rf"gs://[a-z0-9][a-z0-9._-]{{1,220}}[a-z0-9](?:/{SEGMENT})+/?"
Bucket = Annotated[str, text(BUCKET, "gs://BUCKET/PATH, as pods on several machines share a bucket")]
CAPACITIES = ("on-demand", "spot", "flex")


@dataclass(frozen=True)
class Settings:
    """One cluster and its bucket. UserError with the value for what can't be."""

    project: Word
    zone: Word
    cluster: Word
    image: Word
    root: Bucket  # of the run folders
    cache: Annotated[str, text(r"/[^\x00-\x1f\x7f]{0,4095}", "an absolute path, as it is in the pod")]  # of the tokens
    storage: Annotated[tuple[Word, ...], several(0, f"a list, each {WORD.description}")] = ()  # what xpk mounts
    topology: Word | None = None  # chips of a slice such as v5e:8x16; None: the rule's
    slices: Annotated[int, whole(1, 4096)] | None = None  # None: the rule's
    capacity: Word = "on-demand"  # on-demand, spot, flex, or the name of a reservation
    priority: Annotated[str, one_of("very-low", "low", "medium", "high", "very-high")] = "medium"  # of Kueue
    restarts: Annotated[int, whole(1, 10**6)] = 30  # in a row without a new checkpoint, before the run counts as failed
    meet_within_s: Annotated[int, whole(1, 86_400)] = 300  # until all pods of a run are there; doubled after each try
    grace_s: Annotated[int, whole(1, 86_400)] = 120  # from SIGTERM to the kill
    keep_s: Annotated[int, whole(0, 10**7)] = 3600  # an ended JobSet is shown so long, and in its way for as long
    xpk: Annotated[str, PATH] = ".venv-xpk/bin/xpk"

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def programs(self) -> str:
        """Where all pods keep compiled programs, so that a restart loads them: beside the run folders."""
        return self.root.rstrip("/").rpartition("/")[0] + "/xla"


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
        return tomllib.loads((read_bytes(path) or b"").decode())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not TOML ({error}).") from error
