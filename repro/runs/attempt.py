"""One attempt at a run, wherever it was started: its tokens, its entry in the provenance, its summary."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax

from repro.corpus.prepare import token_folder
from repro.corpus.tokens import open_tokens
from repro.diloco.resources import Resources
from repro.errors import Interrupted
from repro.runs import takeover
from repro.runs.folder import RunFolder
from repro.runs.leases import Lease, LeaseLost
from repro.runs.provenance import Attempt, commit, machine
from repro.spec.config import RunConfig
from repro.stopping import Stop
from repro.training import processes
from repro.training.loop import Pace, Report, train

VERIFIED_BYTES = 2**30  # read through before a run; larger sets are checked by size at every start


def attempt(
    config: RunConfig,
    resources: Resources,
    folder: RunFolder,
    cache: Path,
    report: Report,
    stop: Stop,
    pace: Pace | None = None,
    lease: Lease | None = None,
) -> None:
    """Train to the end, from what earlier attempts reached, and write the summary; raises what `train` raises.

    Process 0 holds the `lease` and writes, the others train along. LeaseLost when the run was taken over meanwhile.
    Until the first step a process alone that is asked to `stop` ends at once: there is nothing to save yet.
    """
    report({"stage": "starting", "step": max(takeover.saved_steps(takeover.furthest(folder.path)), default=0)})
    tokens = token_folder(config.corpus, cache, vocab=config.model.vocab)
    text, held_out = open_tokens(tokens), open_tokens(tokens, "validation")
    for part in (text, held_out):
        if part.size_bytes <= VERIFIED_BYTES:
            part.verify()
    mesh = {"replica": resources.replica, "data": resources.data, "fsdp": resources.fsdp, **processes.facts()}
    facts = {**commit(), **machine(), "mesh": mesh, "devices": jax.device_count(), "tokens": text.digest}
    entry = Attempt(folder, facts) if processes.is_first() else None
    outcome = "failed"
    try:
        if processes.alone():
            stop.free(lambda: _leave(folder, entry, lease))
        _take_over(folder)
        note, asked = entry.note if entry else (lambda _: None), _Asked(lease, stop)
        calls: dict[str, Any] = {"report": report, "note": note, "fell_back": partial(_fell_back, folder)}
        summary = train(
            config, resources, folder, text, held_out, pace=pace, begun=stop.busy, stop_asked=asked, **calls
        )
        if processes.is_first():
            _finish(folder, summary, lease)
        outcome = "finished"
    except Interrupted:
        outcome = "interrupted"
        raise
    except LeaseLost:
        outcome = "lost"
        raise
    finally:
        stop.busy()
        if entry:
            entry.end(outcome)


def _fell_back(folder: RunFolder, step: int) -> None:
    """Newer checkpoints were damaged: process 0 deletes them in earlier attempts too, or they would be taken again."""
    if folder.attempt is not None and processes.is_first():
        takeover.drop_ahead(folder.path, folder.attempt, step)


def _take_over(folder: RunFolder) -> None:
    """Process 0 makes the attempt's folder; no other opens it before."""
    if folder.attempt is not None and processes.is_first():
        takeover.begin(folder.path, folder.attempt)
    processes.any_of(False)


def _leave(folder: RunFolder, entry: Attempt | None, lease: Lease | None) -> str:
    if entry:
        entry.end("interrupted")
    if lease:
        lease.release("interrupted")
    return f"{folder.run_id} stopped before its next step; what it had reached is saved."


class _Asked:
    """Asked between steps, programs and batches, so each time is a sign of progress.

    A lost lease ends the attempt: alone at once, several processes together as if asked.
    """

    def __init__(self, lease: Lease | None, asked: Callable[[], bool]) -> None:
        self._lease, self._asked = lease, asked

    def __call__(self) -> bool:
        if self._lease:
            self._lease.mark()
            if self._lease.lost():
                if processes.alone():
                    raise LeaseLost(self._lease.folder.run_id)
                return True
        return self._asked()


def _finish(folder: RunFolder, summary: dict[str, Any], lease: Lease | None) -> None:
    if (lease and lease.lost(look=True)) or not folder.write_summary(summary):
        raise LeaseLost(folder.run_id)
