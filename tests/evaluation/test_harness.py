"""A run as lm-eval's model: a fixture known by hand, prompts and splits of the harness itself, whole texts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unigram
import yaml

from repro.corpus.tokens import open_encoder, open_tokens
from repro.errors import UserError
from repro.evaluation.lm_eval_tasks import check_task, from_harness
from repro.evaluation.questions import Questions
from repro.evaluation.tasks import TASKS, Asked, Task, standard_error
from repro.spec.config import ModelConfig

lm_eval = pytest.importorskip("lm_eval")
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402
from lm_eval.utils import make_table  # noqa: E402

from repro.evaluation.lm_eval_model import JaxLM, command_line  # noqa: E402
from repro.evaluation.lm_eval_tasks import EncodeOnly, load_task, write_task_files  # noqa: E402

BYTES = ModelConfig("bytes", layers=1, ffn_width=32, heads=2, vocab=256, seq_len=16, compute_dtype="float32")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_tables_of_lm_eval_have_their_headings():
    """With a pytablewriter before 1.2, which a later python-dateutil drags in, they are A, B, C …"""
    result = {"alias": "piqa", "acc,none": 0.5, "acc_stderr,none": 0.1}
    more = {"versions": {"piqa": 1}, "n-shot": {"piqa": 0}, "higher_is_better": {"piqa": {"acc": True}}}
    head, _, line, *_ = make_table({"results": {"piqa": result}, **more}).splitlines()
    words = [cell.strip() for cell in head.split("|")]
    assert words == ["", "Tasks", "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr", ""]
    assert "piqa" in line and "0.5" in line


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> TaskManager:
    """The four questions as a task of lm-eval."""
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "four.jsonl").write_text("\n".join(map(json.dumps, unigram.QUESTIONS)), encoding="utf-8")
    task = {
        "task": "four",
        "dataset_path": "json",
        "dataset_kwargs": {
            "data_files": {"validation": str(folder / "four.jsonl")},
            "cache_dir": str(folder / "cache"),
        },
        "output_type": "multiple_choice",
        "validation_split": "validation",
        "doc_to_text": "Question: {{question}}\nAnswer:",
        "doc_to_choice": "choices",
        "doc_to_target": "gold",
        "num_fewshot": 0,
        "metric_list": [{"metric": m, "aggregation": "mean", "higher_is_better": True} for m in ("acc", "acc_norm")],
        "metadata": {"version": 1.0},
    }
    (folder / "four.yaml").write_text(yaml.safe_dump(task), encoding="utf-8")
    return TaskManager(include_path=str(folder), include_defaults=False)


def asked(manager: TaskManager, tokens: Any, indices: tuple[int, ...] | None = None) -> Questions:
    task = manager.load(["four"])["tasks"]["four"]
    return Questions(Asked("piqa"), "", **from_harness(task, indices, tokens))


def instances(*pairs: tuple[str, ...]) -> list[Instance]:
    return [Instance("loglikelihood", {}, pair, 0) for pair in pairs]


@pytest.mark.compiles
def test_four_questions_whose_logits_are_known_by_hand(manager: TaskManager, smoke_tokens: Path):
    """Two of four by acc and three by acc_norm: by lm-eval with our model, and by our own count."""
    tokens = open_tokens(smoke_tokens)
    model = JaxLM(unigram.MODEL, unigram.params(), tokens)
    found = lm_eval.simple_evaluate(model, tasks=["four"], task_manager=manager)
    scores = found["results"]["four"]
    assert (scores["acc,none"], scores["acc_norm,none"]) == (0.5, 0.75)
    right = {m: [bool(s[m]) for s in found["samples"]["four"]] for m in ("acc", "acc_norm")}
    assert right == unigram.RIGHT
    for metric in ("acc", "acc_norm"):
        assert scores[f"{metric}_stderr,none"] == pytest.approx(standard_error(scores[f"{metric},none"], 4))
    by_hand = [unigram.nats(f" {choice}") for q in unigram.QUESTIONS for choice in q["choices"]]
    ours = [value for s in found["samples"]["four"] for value, _ in s["filtered_resps"]]
    assert ours == pytest.approx(by_hand, rel=1e-6)
    counted = asked(manager, tokens).correct(np.array(by_hand))
    assert {m: c.tolist() for m, c in counted.items()} == unigram.RIGHT


def test_questions_hold_the_harness_s_prompts_and_splits(manager: TaskManager, smoke_tokens: Path):
    questions = asked(manager, open_tokens(smoke_tokens), (1, 3))
    texts = [
        bytes(questions.tokens[a:b].tolist()).decode()
        for a, b in zip(questions.starts, questions.starts[1:], strict=False)
    ]
    assert texts == [f"Question: {q['question']}\nAnswer: {c}" for q in unigram.QUESTIONS[1::2] for c in q["choices"]]
    assert questions.continuation.tolist() == [3, 4, 2, 3] and questions.characters.tolist() == [2, 3, 1, 2]
    assert questions.choices.tolist() == [2, 2] and questions.gold.tolist() == [0, 0]


def test_spaces_before_an_answer_and_empty_contexts(smoke_tokens: Path):
    model = EncodeOnly(open_tokens(smoke_tokens))
    eos = open_tokens(smoke_tokens).tokenizer.eos
    found = model.loglikelihood(instances(("ab ", "c"), ("", "cd")), disable_tqdm=True)
    assert found == [(list(b"ab"), list(b" c")), ([eos], list(b"cd"))]


@pytest.mark.compiles
def test_a_whole_text_is_the_sum_of_its_windows(smoke_tokens: Path):
    """Every byte once: 40 bytes in windows of 16, the first after EOS, the later ones after what came before."""
    tokens = open_tokens(smoke_tokens)
    model = JaxLM(BYTES, unigram.random_params(BYTES), tokens)
    text = "".join(chr(97 + i * i % 26) for i in range(40))
    whole = [tokens.tokenizer.eos, *text.encode()]
    parts = [((0, 1), (1, 17)), ((16, 17), (17, 33)), ((24, 33), (33, 41))]
    pairs = [(("", ""), whole[a:b], whole[c:d]) for (a, b), (c, d) in parts]
    expected = sum(value for value, _ in model._loglikelihood_tokens(pairs))
    assert model.loglikelihood_rolling(instances((text,))) == [pytest.approx(expected, rel=1e-6)]


@pytest.mark.compiles
def test_what_a_run_can_not_do_is_one_sentence(smoke_tokens: Path):
    model = JaxLM(BYTES, unigram.random_params(BYTES), open_tokens(smoke_tokens))
    with pytest.raises(UserError, match="writes no text"):
        model.generate_until([])


def test_stock_tasks_are_included_unchanged_from_the_hub(tmp_path: Path):
    files = write_task_files(tmp_path, "hub")
    assert set(files) == set(TASKS)
    for name, path in files.items():
        lines = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert Path(lines.pop("include")).exists() and lines.pop("task") == name and not lines.pop("tag")
        assert lines == ({"test_split": None} if TASKS[name].split == "validation" else {})


def test_other_prompts_or_data_are_refused():
    task = Task("piqa", "Piqa", "piqa", "validation", 1_838, 2)
    check_task(task, 1.0, 1_838)
    with pytest.raises(UserError, match=r"version 2.0 of piqa and its data 1838 questions, not 1.0"):
        check_task(task, 2.0, 1_838)
    with pytest.raises(UserError, match="its data 1837 questions"):
        check_task(task, 1.0, 1_837)


def test_an_unknown_tokenizer_is_one_sentence(smoke_tokens: Path, monkeypatch: pytest.MonkeyPatch):
    tokens = open_tokens(smoke_tokens)
    object.__setattr__(tokens.tokenizer, "kind", "words")
    with pytest.raises(UserError, match="of kind 'words'"):
        open_encoder(tokens)


def test_a_path_with_a_comma_reaches_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls = []
    monkeypatch.setattr("lm_eval._cli.harness.HarnessCLI.execute", lambda _, args: calls.append(args.model_args))
    given = {"run": "mini", "root": "my runs, two=2", "step": "3"}
    assert command_line(given, tmp_path, ["--include_path", str(tmp_path), "--tasks", "piqa"]) == 0
    assert calls == [given]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(TASKS))
def test_the_packages_hold_the_whole_sets(name: str):
    """Version and count are checked on loading."""
    found = load_task(TASKS[name], Path(__file__).parents[2] / "cache")
    assert len(found.eval_docs) == TASKS[name].questions
