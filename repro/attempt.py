"""One attempt at a run, wherever it was started: its tokens, its entry in the provenance, its summary."""

from collections.abc import Callable
from pathlib import Path

from repro import processes
from repro.config import RunConfig
from repro.data import open_tokens
from repro.prepare import token_folder
from repro.provenance import Attempt, commit, machine
from repro.resources import Resources
from repro.store import RunFolder
from repro.train import Interrupted, Pace, Report, train

VERIFIED_BYTES = 2**30  # read through before a run; larger sets are checked by size at every start


def attempt(
    config: RunConfig,
    resources: Resources,
    folder: RunFolder,
    cache: Path,
    report: Report,
    stop_asked: Callable[[], bool],
    pace: Pace | None = None,
) -> None:
    """Train to the end and write the summary; raises what `train` raises. Process 0 writes, the others train along."""
    tokens = token_folder(config.corpus, cache, vocab=config.model.vocab)
    text, held_out = open_tokens(tokens), open_tokens(tokens, "validation")
    for part in (text, held_out):
        if part.size_bytes <= VERIFIED_BYTES:
            part.verify()
    mesh = {"replica": resources.replica, "data": resources.data, "fsdp": resources.fsdp, **processes.facts()}
    facts = {**commit(), **machine(), "mesh": mesh, "tokens": text.digest}
    entry = Attempt(folder, facts) if processes.is_first() else None
    outcome = "failed"
    try:
        summary = train(config, resources, folder, text, held_out, pace=pace, report=report, stop_asked=stop_asked)
        if processes.is_first():
            folder.write_summary(summary)
        outcome = "finished"
    except Interrupted:
        outcome = "interrupted"
        raise
    finally:
        if entry:
            entry.end(outcome)
