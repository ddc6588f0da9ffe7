"""Where token folders of C4 and Dolma lie, which of them a run reads, and who may write one."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from repro import disk
from repro.corpus.shards import json_text
from repro.errors import UserError
from repro.files import write_bytes


def point(cache: Path, corpus: str, vocab: int, folder: Path) -> None:
    """Let runs with this corpus and vocabulary read `folder`, which lies in cache/tokens."""
    content = json_text({"folder": folder.name})
    path = _pointer(cache, corpus, vocab)
    if not path.is_file() or path.read_bytes() != content:
        write_bytes(path, content)


def prepared_folder(cache: Path, corpus: str, vocab: int) -> Path:
    """The folder that runs read; where nothing was prepared, one that does not exist."""
    path = _pointer(cache, corpus, vocab)
    name = json.loads(path.read_bytes())["folder"] if path.is_file() else f"{corpus}-{vocab}"
    return cache / "tokens" / name


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold the folder for this process; UserError if another has it. The system lets go however the process ends."""
    with disk.locked(folder.with_name(f".{folder.name}.lock"), wait=False) as ours:
        if not ours:
            raise UserError(f"another process is preparing {folder}: wait until it has finished.")
        yield


def _pointer(cache: Path, corpus: str, vocab: int) -> Path:
    return cache / "tokens" / f"{corpus}-{vocab}.json"
