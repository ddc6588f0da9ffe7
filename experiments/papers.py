"""Which papers there are: `data/papers/<arXiv id>/` with a `paper.toml` each, and the specs in `experiments/<name>/`.

The numbers themselves are read by `analysis.paper.published`; nothing here knows a paper by its name but the default.
"""

import importlib.util
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec

from repro.errors import UserError, check_known
from repro.values import brief, text

PAPERS = Path(__file__).resolve().parents[1] / "data" / "papers"
DEFAULT = "streaming"  # the paper of this suite: its experiments have no prefix, and commands mean it unless told
FILE = "paper.toml"


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a paper.toml says."""

    name: Annotated[str, text("[a-z][a-z0-9]*(-[a-z0-9]+)*", "small letters, digits and dashes")]  # of --paper
    id: Annotated[str, text(r"\d{4}\.\d{5}", "an arXiv id such as 2501.18512")]  # of its folder
    title: str
    short: str  # title, in a few words
    authors: tuple[str, ...]
    year: int
    covers: str  # what of it is here, in a sentence
    states: tuple[str, ...] = ()  # keys of `analysis.paper.assumptions` that it settles itself, so that none is assumed

    @property
    def package(self) -> str:
        """The module that holds its specs."""
        return f"experiments.{self.name.replace('-', '_')}"

    @property
    def prefix(self) -> str:
        """What the names of its experiments begin with, so that no two papers share one."""
        return "" if self.name == DEFAULT else f"{self.name.replace('-', '_')}_"

    @property
    def folder(self) -> Path:
        """Where its numbers and statements lie."""
        return PAPERS / self.id


def papers() -> tuple[Paper, ...]:
    """All of them, the suite's own first, then by arXiv id; UserError for a paper.toml that is wrong."""
    every = [_read(path, path.read_bytes()) for path in sorted(PAPERS.glob(f"*/{FILE}"))]
    names = [paper.name for paper in every]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"two papers are named {twice[0]!r} in {PAPERS}: give each paper.toml a name of its own.")
    return tuple(sorted(every, key=lambda paper: (paper.name != DEFAULT, paper.id)))


def paper(name: str = DEFAULT) -> Paper:
    """The paper of that name or arXiv id; UserError with the nearest name when there is none."""
    by_name = {each.name: each for each in papers()}
    by_id = {each.id: each for each in by_name.values()}
    if name in by_id:
        return by_id[name]
    check_known("unknown paper", name, tuple(by_name))
    return by_name[name]


@cache
def _read(path: Path, text: bytes) -> Paper:
    """Parsed once for each text: names of experiments are looked up by the thousand."""
    try:
        read = msgspec.toml.decode(text, type=Paper)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no description of a paper ({error}): see docs/new-paper.md.") from error
    if read.id != path.parent.name:
        raise UserError(f"{path} has the id {brief(read.id)}: it must be that of its folder, {path.parent.name}.")
    if importlib.util.find_spec(read.package) is None:
        raise UserError(f"{path} has the name {brief(read.name)}, but there is no {read.package.replace('.', '/')}/.")
    return read
