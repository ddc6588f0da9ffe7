"""More steps for a finished run, as a run of its own. No JAX.

An extension is the run whose schedule of the inner learning rate ends where the finished run ended, and which goes on
at the final rate. Up to there the two are the same run, step by step, so it may start from the other's last checkpoint
and ends with the bits of one that was trained from the beginning. Its id says what it is, not where it started; that
is in extended.json.
"""

from dataclasses import replace
from pathlib import Path

from repro import disk
from repro.errors import UserError
from repro.files import listing, read_json, remove_tree, share_tree, write_json
from repro.runs.folder import RunFolder, find_run, open_folder
from repro.spec.config import RunConfig
from repro.spec.identity import run_id
from repro.spec.schedule import flushed


def longer(config: RunConfig, steps: int) -> RunConfig:
    """The run that is `config` up to its end and then goes on for `steps` at the final rate; UserError without one."""
    if steps < 1:
        raise UserError(f"--steps {steps}: a run is extended by one step or more.")
    inner = config.inner
    if inner.final_fraction == 0:
        raise UserError(f"{run_id(config)} ends at a learning rate of 0: further steps would train nothing.")
    schedule = inner.schedule_steps or config.steps
    return replace(config, steps=config.steps + steps, inner=replace(inner, schedule_steps=schedule))


def extend(root: Path, name: str, steps: int, cache: Path) -> RunFolder:
    """Make the folder of the longer run, with the curves and the last checkpoint of the finished one, and return it.

    UserError, with nothing written, for a run that isn't finished or has lost its last checkpoint, and for more
    tokens than there are. Doing it twice is doing it once.
    """
    parent = find_run(root, name)
    config = parent.config()
    if parent.summary() is None:
        raise UserError(f"{parent.run_id} is not finished: run it to its end, then extend it.")
    last = parent.checkpoints / str(config.steps)
    if not last.exists():
        raise UserError(
            f"{parent.run_id} has lost the checkpoint of its last step, {config.steps}: nothing to start from."
        )
    new = longer(config, steps)
    from repro.corpus.prepare import token_folder
    from repro.corpus.tokens import Batches, open_tokens  # NumPy: the parser of every command imports this module

    text = open_tokens(token_folder(config.corpus, cache, vocab=config.model.vocab))
    Batches(text, new.model.seq_len, new.batch, new.replicas, new.seed, repeat=new.repeat_data).require(new.steps)
    folder = RunFolder(root, run_id(new))
    if read_json(folder.path / "extended.json") is None:
        for source in (parent.metrics, parent.syncs, last):
            if listing(source):  # Data-Parallel has no log of syncs
                _share(source, folder.path / source.relative_to(parent.home))
        if flushed(config.sync, 1, config.steps, config.steps):
            _clear_validation(folder.path / parent.metrics.relative_to(parent.home), config.steps)
        write_json(folder.path / "extended.json", {"run": parent.run_id, "step": config.steps})
    return open_folder(root, new)  # the config comes last: before it there is no run


def _clear_validation(metrics: Path, step: int) -> None:
    """Take the last validation out of the curve: it is of a flushed copy, and the longer run goes on without it."""
    from repro.training.metrics import MetricsLog  # pyarrow, as above

    log = MetricsLog(metrics, step)
    if (row := log.reopen(step)) is not None:
        row["validation_loss"] = None
        log.close_part(step)


def _share(source: Path, to: Path) -> None:
    try:
        remove_tree(to)
        share_tree(source, to, lambda _: False)
    except OSError as error:
        raise UserError(f"{to} could not be written ({disk.reason(error)}): {disk.advice(error)}.") from error
