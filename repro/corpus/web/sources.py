"""Which files a corpus consists of: on the hub at a pinned revision, or in a local folder in the hub's layout.

`datasets` turns C4's name, configuration and revision into the files of each split. Dolma on the hub is a
loading script, which `datasets` no longer runs, and a list of addresses for each version: that list is read.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from repro.corpora import Hub, hub_of
from repro.corpus.web.reading import SUFFIXES, SourceFile
from repro.corpus.web.remote import OFFLINE, TRANSIENT, Backoff, Say, TransferError, insist
from repro.errors import UserError

_REACH_TRIES = 3  # to reach the hub at all: without a network, patience helps nobody


def local_files(corpus: str, name: str | None, folder: Path) -> list[SourceFile]:
    """Every file of the corpus in a folder (or one file), in the order of their names; UserError if there is none."""
    if not folder.exists():
        raise UserError(f"--source {folder} does not exist: give the folder that holds the files of {corpus}.")
    hub = hub_of(corpus)
    if hub.layout == "configurations":  # they lie side by side
        root = folder / str(name) if (folder / str(name)).is_dir() else folder
        paths = list(root.iterdir()) if root.is_dir() else [root]
    else:
        root = folder if folder.is_dir() else folder.parent
        paths = list(folder.rglob("*")) if folder.is_dir() else [folder]
    named = {path.relative_to(root).as_posix(): path for path in paths if path.name.endswith(SUFFIXES)}
    if (other := next((path for path in named.values() if not path.is_file()), None)) is not None:
        raise UserError(f"{other} is no regular file: take it out of the folder.")  # a pipe would be waited for
    files = [
        SourceFile(split, file, str(named[file]), _version(named[file]))
        for file in sorted(named)
        if (split := _split(hub, file))
    ]
    _require_splits(corpus, files, f"--source {folder}")
    return files


def hub_files(corpus: str, name: str, revision: str, backoff: Backoff, say: Say) -> list[SourceFile]:
    """A corpus' files on the hub, at a revision; UserError that names the offline way if it can't be reached."""
    known = hub_of(corpus)
    what = f"{known.repository} ({name}) on the hub"
    list_files = {"configurations": _configuration_files, "addresses": _addressed_files}[known.layout]
    reach = Backoff(backoff.first, backoff.longest, min(_REACH_TRIES, backoff.attempts))

    def ask() -> list[SourceFile]:
        insist(lambda: _reach(known.repository, revision), what, reach, say)
        return list_files(known, name, revision)

    files = insist(lambda: _asked(ask, known.repository, name, revision), what, backoff, say)
    _require_splits(corpus, files, what)
    return files


def content_digest(files: list[SourceFile]) -> str:
    """16 hex digits over names and sizes of local files, which stand for their content in a recipe."""
    listed = "".join(f"{file.name}\0{Path(file.place).stat().st_size}\n" for file in files)
    return hashlib.sha256(listed.encode()).hexdigest()[:16]


def spread(files: list[SourceFile], count: int | None) -> list[SourceFile]:
    """All validation files and `count` training files evenly spread over their order (all for None)."""
    train = [file for file in files if file.split == "train"]
    if count is not None and count < len(train):
        train = [train[index * len(train) // count] for index in range(count)]
    return train + [file for file in files if file.split != "train"]


def promised(files: list[SourceFile]) -> int | None:
    """How many training files there should be by their names (…-of-01024), None where they don't say."""
    counts = {PurePosixPath(f.name).name.split("-of-")[-1].split(".")[0] for f in files if f.split == "train"}
    count = counts.pop() if len(counts) == 1 else ""
    return int(count) if count.isdigit() else None


def hub_token() -> str | None:
    """The user's hub token, for the hub's own addresses only."""
    from huggingface_hub import get_token

    return get_token()


def on_hub(file: SourceFile) -> bool:
    """Whether the address is the hub's."""
    if not file.remote:
        return False
    from huggingface_hub.constants import ENDPOINT

    return file.place.startswith(ENDPOINT + "/")


def _split(hub: Hub, name: str) -> str | None:
    file = PurePosixPath(name).name
    return next((split for split, words in hub.splits.items() if file.startswith(words)), None)


def _version(path: Path) -> str:
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"


def _require_splits(corpus: str, files: list[SourceFile], where: str) -> None:
    for split, words in hub_of(corpus).splits.items():
        if not any(file.split == split for file in files):
            pattern = f"{words[0]}.*" if words[0] else "*"
            raise UserError(
                f"{where} has no {split} file of {corpus} ({pattern} with an ending of {', '.join(SUFFIXES)}):"
                " give the folder as it lies on the hub."
            )


def _asked(ask: Callable[[], list[SourceFile]], repository: str, name: str, revision: str) -> list[SourceFile]:
    """Errors of the hub's client as ours: those that may pass, and those that won't."""
    from huggingface_hub import errors

    try:
        return ask()
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.EntryNotFoundError) as error:
        first = str(error).splitlines()[0]
        raise UserError(f"{repository} has no {name} at revision {revision} ({first}): check --revision.") from error
    except errors.OfflineModeIsEnabled as error:
        raise UserError(f"the hub can't be reached, as HF_HUB_OFFLINE is set: unset it, or {OFFLINE}.") from error
    except (FileNotFoundError, ValueError) as error:  # how `datasets` says that a name or its files are missing
        first = str(error).splitlines()[0]
        raise UserError(f"{repository} has no files {name} at revision {revision} ({first}): check both.") from error
    except ConnectionError as error:
        raise TransferError(f"the hub can't be reached: {error}") from error
    except errors.HfHubHTTPError as error:
        code = error.response.status_code if error.response is not None else 0
        if code in TRANSIENT or code >= 500:
            raise TransferError(f"the hub answers {code}") from error
        raise UserError(f"{repository} can't be read (the hub answers {code}): check access, or {OFFLINE}.") from error


def _configuration_files(hub: Hub, name: str, revision: str) -> list[SourceFile]:
    import datasets
    from huggingface_hub import HfApi, hf_hub_url
    from huggingface_hub.hf_api import RepoFile

    datasets.disable_progress_bars()
    patterns = datasets.load_dataset_builder(hub.repository, name, revision=revision).config.data_files or {}
    # hf://datasets/OWNER/NAME@REVISION/PATH
    paths = {
        split: sorted(str(place).partition("@")[2].partition("/")[2] for place in patterns.get(split, ()))
        for split in hub.splits
    }
    listed = [
        entry
        for folder in sorted({PurePosixPath(path).parent.as_posix() for each in paths.values() for path in each})
        for entry in HfApi().list_repo_tree(hub.repository, folder, revision=revision, repo_type="dataset")
    ]
    sizes = {entry.path: entry.size for entry in listed if isinstance(entry, RepoFile)}
    return [
        SourceFile(
            split,
            PurePosixPath(path).name,
            hf_hub_url(hub.repository, path, repo_type="dataset", revision=revision),
            revision,
            sizes.get(path),
        )
        for split, each in paths.items()
        for path in each
    ]


def _addressed_files(hub: Hub, name: str, revision: str) -> list[SourceFile]:
    from huggingface_hub import hf_hub_download

    listed = hf_hub_download(hub.repository, f"urls/{name}.txt", repo_type="dataset", revision=revision)
    urls = sorted(set(Path(listed).read_text(encoding="utf-8").split()))
    return [SourceFile("train", "/".join(url.split("/")[3:]), url, revision) for url in urls]


def _reach(repository: str, revision: str) -> None:
    """Ask the hub one small thing first: `datasets` takes half a minute to say that there is no network."""
    import httpx2
    from huggingface_hub import HfApi

    try:
        HfApi().dataset_info(repository, revision=revision, timeout=20)
    except httpx2.TransportError as error:
        raise TransferError(f"the hub can't be reached: {error}") from error
