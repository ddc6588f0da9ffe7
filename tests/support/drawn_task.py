"""A task of drawn questions, asked in the place of those that lm-eval has: no harness, no tokenizer."""

from pathlib import Path

import numpy as np
import pytest

import repro.evaluation.evaluate
from repro.evaluation.questions import Questions
from repro.evaluation.tasks import TASKS, Asked, EvalSpec, Task

COUNT = 30
SPEC = EvalSpec("tasks", (Asked("drawn"),), "outer")


def replace_tasks(monkeypatch: pytest.MonkeyPatch, tokens: Path) -> None:
    """Drawn questions in the place of a task's, and the prepared `tokens` in that of the cache's."""
    monkeypatch.setitem(TASKS, "drawn", Task("drawn", "HellaSwag", "drawn", "validation", COUNT, 3))
    monkeypatch.setattr(repro.evaluation.evaluate, "make_questions", lambda asked, *_: drawn(asked))
    monkeypatch.setattr(repro.evaluation.evaluate, "token_folder", lambda *_, **__: tokens)


def drawn(asked: Asked) -> Questions:
    """Thirty questions of two or three answers, some longer than the model."""
    rng = np.random.default_rng(0)
    choices = rng.integers(2, 4, COUNT)
    lengths = rng.integers(3, 14, choices.sum())
    continuation = np.array([rng.integers(1, n) for n in lengths])
    starts = np.cumsum([0, *lengths])
    gold = np.array([rng.integers(0, n) for n in choices])
    tokens = rng.integers(97, 123, starts[-1]).astype(np.int32)
    return Questions(asked, "00000000", tokens, starts, continuation, choices, gold, continuation)
