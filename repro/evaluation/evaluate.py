"""Downstream scores of one run: restore parameters, score every continuation, keep what is done, write the result.

What has been scored lies in parts beside the result until it is written, so that a kill loses seconds and a stop
nothing. All tasks go through one scorer together, sorted by length.
"""

import io
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from repro import disk
from repro.corpus.prepare import token_folder
from repro.corpus.tokens import open_tokens
from repro.diloco.jax_settings import in_force
from repro.diloco.resources import local_resources
from repro.errors import Interrupted, UserError
from repro.evaluation.questions import Questions, make_questions
from repro.evaluation.scoring import Scorer, ScoringRequest
from repro.evaluation.tasks import BATCH, BOS_RULE, TASKS, EvalSpec, harness, read_result, result_path, standard_error
from repro.files import is_bucket, listing, read_bytes, remove_tree, write_bytes, write_json
from repro.runs.folder import RunFolder
from repro.runs.leases import Watch
from repro.runs.provenance import commit
from repro.spec.config import RunConfig
from repro.training.checkpoint import Checkpoints
from repro.training.scored import evaluated_parameters
from repro.training.state import Layout, TrainState

SAVE_SECONDS = 5.0
Report = Callable[[int, int], None]  # requests done, of how many


def load_parameters(folder: RunFolder, config: RunConfig, step: int | None, which: str) -> tuple[int, Any]:
    """(step, parameters of one replica) from the checkpoint of `step`, the newest by default.

    UserError where there is no such checkpoint, and for a run that is being trained.
    """
    # The saver of a live run would delete what is being read.
    if folder.summary() is None and Watch().settle(folder) is None:
        raise UserError(f"{folder.run_id} is being trained: wait for that to end.")
    layout, state = restored(folder, config, step)
    return state.step, evaluated_parameters(layout, state, which)


def restored(folder: RunFolder, config: RunConfig, step: int | None) -> tuple[Layout, TrainState]:
    """The checkpoint of `step`, the newest by default, on one device. UserError where there is none."""
    layout = Layout.of(config, local_resources(config, 1), jax.local_devices()[:1])
    step = folder.saved_step(step)
    checkpoints = Checkpoints(folder.checkpoints, read_only=True)
    try:
        return layout, checkpoints.restore(layout, step)
    finally:
        checkpoints.close()


def evaluate_run(
    folder: RunFolder,
    spec: EvalSpec,
    step: int,
    cache: Path,
    *,
    batch: int = BATCH,
    source: str = "packages",
    report: Report = lambda *_: None,
    unsaved: Callable[[bool], None] = lambda _: None,
    stop_asked: Callable[[], bool] = lambda: False,
    wait: bool = True,
) -> dict[str, Any] | None:
    """Score a checkpoint unless it is scored, and return the result; None when another process is at it and not `wait`.

    May be killed at any moment and called again. `unsaved` is told whether there are scores that are not in a file yet.
    Interrupted when `stop_asked` says so, after a batch, with all scores saved.
    """
    with held(folder, cache, wait) as ours:
        if not ours:
            return None
        if (done := read_result(folder, spec, step)) is not None:
            return done
        started = time.monotonic()
        config = folder.config()
        tokens = token_folder(config.corpus, cache, vocab=config.model.vocab)
        questions = [make_questions(asked, tokens, cache, source) for asked in spec.asked]
        _, params = load_parameters(folder, config, step, spec.parameters)
        scorer = Scorer(config.model, params, batch=batch)
        parts = _Parts(result_path(folder, spec.id(step)).with_suffix(".parts"), questions)
        values = parts.score(scorer, _requests(questions), report, unsaved, stop_asked)
        unsaved(True)
        result = _result(folder.run_id, config, spec, step, questions, values)
        result |= {"tokenizer": open_tokens(tokens, "validation").tokenizer.sha256, "source": source}
        result |= {**commit(), "settings": in_force()}
        result["seconds"] = time.monotonic() - started
        write_json(result_path(folder, spec.id(step)), result)
        unsaved(False)
        parts.remove()
        return result


def held(folder: RunFolder, cache: Path, wait: bool = True) -> AbstractContextManager[bool]:
    """Hold a run's evaluations for this process (`disk.locked`).

    A bucket has no locks, so there only the processes of one machine share the work. Two machines at one
    evaluation do it twice: what they write is whole and the same.
    """
    if not is_bucket(folder.root):
        folder.config()  # of a run that isn't there nothing is made
    near = cache / "evals" / folder.run_id if is_bucket(folder.root) else folder.path / "evals"
    return disk.locked(near / ".lock", wait=wait)


def _requests(questions: list[Questions]) -> list[ScoringRequest]:
    return [
        ScoringRequest(q.tokens[q.starts[r] : q.starts[r + 1]], int(q.continuation[r]))
        for q in questions
        for r in range(q.requests)
    ]


class _Parts:
    """Scores that are there already, in files of a few seconds each."""

    def __init__(self, folder: Path, questions: list[Questions]) -> None:
        self._folder, self._digest = folder, "-".join(q.digest for q in questions)
        self._count = sum(q.requests for q in questions)

    def score(
        self,
        scorer: Scorer,
        requests: list[ScoringRequest],
        report: Report,
        unsaved: Callable[[bool], None],
        stop_asked: Callable[[], bool],
    ) -> np.ndarray:
        """Log-likelihoods of all requests, from the parts where they are there; what is new is saved as it comes."""
        values, done = self._read()
        kept: list[tuple[np.ndarray, np.ndarray]] = []
        saved_at = time.monotonic()

        def save(indices: np.ndarray, log_likelihoods: np.ndarray, _: np.ndarray) -> None:
            nonlocal saved_at
            unsaved(True)
            values[indices], done[indices] = log_likelihoods, True
            kept.append((indices, log_likelihoods))
            report(int(done.sum()), self._count)
            stop = stop_asked()
            if stop or time.monotonic() - saved_at > SAVE_SECONDS:
                self._write(kept)
                kept.clear()
                unsaved(False)
                saved_at = time.monotonic()
            if stop:
                raise Interrupted(f"{int(done.sum())} of {self._count} continuations are scored and saved.")

        scorer.score(requests, save, done.copy())
        return values

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        values, done = np.zeros(self._count), np.zeros(self._count, bool)
        for name in listing(self._folder):
            content = read_bytes(self._folder / name) if name.startswith(self._digest) else None
            if content is not None:
                with np.load(io.BytesIO(content)) as part:
                    values[part["indices"]], done[part["indices"]] = part["values"], True
        return values, done

    def _write(self, kept: list[tuple[np.ndarray, np.ndarray]]) -> None:
        indices, values = (np.concatenate(x) for x in zip(*kept, strict=True))
        part = io.BytesIO()
        np.savez(part, indices=indices, values=values)
        write_bytes(self._folder / f"{self._digest}-{indices[0]:06d}.npz", part.getvalue())

    def remove(self) -> None:
        """Once the result is written."""
        remove_tree(self._folder)


def _result(
    run_id: str, config: RunConfig, spec: EvalSpec, step: int, questions: list[Questions], values: np.ndarray
) -> dict[str, Any]:
    ends = np.cumsum([q.requests for q in questions])
    scores = [_score(config, q, values[end - q.requests : end]) for q, end in zip(questions, ends, strict=True)]
    return {
        "run_id": run_id,
        "eval_id": spec.id(step),
        "name": spec.name,
        "step": step,
        "parameters": spec.parameters,
        "scale": config.scale,
        "partial": any(score["questions"] < score["of"] for score in scores),
        "harness": harness(),
        "fewshot": 0,
        "bos": BOS_RULE,
        "max_tokens": config.model.seq_len,
        "scores": scores,
    }


def _score(config: RunConfig, questions: Questions, values: np.ndarray) -> dict[str, Any]:
    task, asked = TASKS[questions.asked.task], questions.asked
    lengths, limit = np.diff(questions.starts), config.model.seq_len + 1
    score: dict[str, Any] = {
        "task": task.name,
        "column": task.column,
        "split": task.split,
        "prompt": f"{task.stock} {task.version}",
        "questions": asked.count,
        "of": task.questions,
        "limit": asked.limit,
        "seed": asked.seed if asked.seeded is not None else None,
        "questions_digest": questions.digest,
        "continuations": questions.requests,
        "cut_contexts": int(np.sum(lengths > limit)),
        "cut_continuations": int(np.sum(questions.continuation >= limit)),
        "log_likelihood": float(values.sum()),  # nats, of all continuations
        "right": {},
    }
    for metric, right in questions.correct(values).items():
        share = float(right.mean())
        score |= {metric: share, f"{metric}_stderr": standard_error(share, len(right))}
        score["right"][metric] = np.packbits(right).tobytes().hex()  # a bit a question, for paired differences
    return score
