"""Preparation: the same bytes however often it is cut, nothing of the evaluation sets, sound refusals."""

import gzip
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.corpus import recipes
from repro.corpus.mini import build, packages, parts
from repro.corpus.mini.ngrams import RunHasher, share_seen_before, shares_any
from repro.corpus.prepare import is_prepared, prepare, token_folder
from repro.corpus.preparing import progress_bar, quiet
from repro.corpus.shards import TextDocument, split_documents
from repro.corpus.tokens import open_tokens
from repro.errors import UserError

ROOT = Path(__file__).parents[2]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---------------------------------------------------------------- smoke: the path that every corpus takes


def test_smoke_is_text_as_bytes(tmp_path):
    folder = prepare("smoke", tmp_path)
    assert folder == token_folder("smoke", tmp_path) and is_prepared("smoke", tmp_path)
    for split, documents in (("train", 1000), ("validation", 80)):
        tokens = open_tokens(folder, split)
        tokens.verify()
        ids = tokens.read(0, len(tokens))
        assert (ids == 0).sum() == tokens.documents > documents
        assert tokens.text_bytes == len(tokens) - tokens.documents
        text = bytes(ids.astype(np.uint8)).decode()
        assert all(document.endswith(".") for document in text.split("\0")[:-1]) and text.endswith("\0")
    assert len(open_tokens(folder)) > 180_000


def test_manifest_adds_up(tmp_path):
    manifest = json.loads((prepare("smoke", tmp_path) / "manifest.json").read_text(encoding="utf-8"))
    for split in manifest["splits"].values():
        for count in ("documents", "tokens", "bytes"):
            assert split[count] == sum(shard[count] for shard in split["shards"])
            assert split[count] == sum(part[count] for part in split["parts"].values())


def test_a_finished_folder_is_left_alone(tmp_path):
    folder = prepare("smoke", tmp_path)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    prepare("smoke", tmp_path, lambda *_: pytest.fail("there was nothing to do"))
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


@pytest.mark.parametrize("units", [0, 1, 3, 5])
def test_killed_and_run_again_gives_the_same_bytes(tmp_path, units):
    script = (
        "import os, signal, pathlib, repro.corpus.prepare\n"
        "def die(stage, done, total):\n"
        f"    if (stage, done) == ('tokens', {units}): os.kill(os.getpid(), signal.SIGKILL)\n"
        f"repro.corpus.prepare.prepare('smoke', pathlib.Path({str(tmp_path / 'cut')!r}), die)"
    )
    code = subprocess.run([sys.executable, "-c", script], cwd=ROOT).returncode
    folder = token_folder("smoke", tmp_path / "cut")
    assert code == -signal.SIGKILL and not is_prepared("smoke", tmp_path / "cut")
    finished = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.bin")}
    assert len(finished) == units
    prepare("smoke", tmp_path / "cut")
    assert contents(folder) == contents(prepare("smoke", tmp_path / "whole"))
    assert all((folder / name).stat().st_mtime_ns == time for name, time in finished.items())


def test_half_written_files_are_written_again(tmp_path):
    folder = token_folder("smoke", tmp_path / "cut")
    folder.mkdir(parents=True)
    (folder / "train-00000.bin.part").write_bytes(b"half")
    (folder / "train-00001.bin").write_bytes(b"no record")
    prepare("smoke", tmp_path / "cut")
    assert contents(folder) == contents(prepare("smoke", tmp_path / "whole"))


@given(texts=st.lists(st.text(max_size=20), max_size=60), seed=st.integers(0, 2**40))
@settings(max_examples=40, deadline=None)
def test_the_split_depends_on_each_text_alone(texts, seed):
    documents = [TextDocument("part", text) for text in texts]
    splits = split_documents(documents, seed, 300)
    shuffled = random.Random(1).sample(documents, len(documents))
    assert split_documents(shuffled, seed, 300) == splits
    for split, docs in splits.items():
        assert all(split_documents([doc], seed, 300)[split] == [doc] for doc in docs)
    assert sorted(doc.text for docs in splits.values() for doc in docs) == sorted(set(texts))


# ---------------------------------------------------------------- refusals


def test_refusals_are_one_sentence(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="unknown corpus 'c5': choose one of mini, smoke"):
        prepare("c5", tmp_path)
    with pytest.raises(UserError, match="vocabulary of 256, not 7"):
        token_folder("smoke", tmp_path, vocab=7)
    with pytest.raises(UserError, match="mini vocabulary of 100"):
        token_folder("mini", tmp_path, vocab=100)
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1e6}))
    with pytest.raises(UserError, match=r"has 1 MB free and corpus 'smoke' needs 10 MB"):
        prepare("smoke", tmp_path)


def test_a_disk_that_fills_up_is_a_user_error(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match="No space left on device"):
        prepare("smoke", tmp_path)
    monkeypatch.undo()
    prepare("smoke", tmp_path)
    open_tokens(token_folder("smoke", tmp_path)).verify()


@pytest.fixture
def pins_and_uv(tmp_path, monkeypatch):
    """Pinned packages, and a `uv` beside the running Python that puts a file where it is to install.

    It notes beside the file how it was called.
    """
    pins, uv = tmp_path / "pins.txt", tmp_path / "bin" / "uv"
    pins.write_text("thing==1.0 --hash=sha256:" + 64 * "0" + "\n", encoding="utf-8")
    uv.parent.mkdir()
    lines = ("#!/bin/sh", 'called="$*"', 'while [ "$1" != --target ]; do shift; done', 'mkdir -p "$2"')
    uv.write_text("\n".join((*lines, 'echo "$called" > "$2/calls"', 'echo data > "$2/file"\n')), encoding="utf-8")
    uv.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(uv.with_name("python")))
    return pins, uv


def test_packages_that_cannot_be_had(pins_and_uv, tmp_path, monkeypatch):
    pins, uv = pins_and_uv
    uv.write_text("#!/bin/sh\necho 'no such package' >&2\nexit 1\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"pins\.txt can't be installed \(no such package\)"):
        packages.fetch_packages(pins, tmp_path)
    assert list((tmp_path / "packages").iterdir()) == []
    uv.unlink()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="neither uv nor pip"):
        packages.fetch_packages(pins, tmp_path)


def test_an_installation_appears_whole(pins_and_uv, tmp_path, monkeypatch):
    pins, uv = pins_and_uv
    (tmp_path / "packages").mkdir()
    folder = packages.fetch_packages(pins, tmp_path)
    assert (folder / "file").read_text(encoding="utf-8") == "data\n"
    assert {"--no-deps", "--require-hashes"} <= set((folder / "calls").read_text(encoding="utf-8").split())
    uv.unlink()
    assert packages.fetch_packages(pins, tmp_path) == folder
    monkeypatch.chdir(tmp_path)
    assert packages.fetch_packages(pins, Path()) == folder


def test_a_cache_named_from_here_is_the_same_cache(pins_and_uv, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = packages.fetch_packages(pins_and_uv[0], Path("cache"))
    assert (folder / "file").is_file() and folder.parent == tmp_path / "cache" / "packages"


def test_a_field_with_a_better_name_makes_no_other_folder():
    assert recipes.MiniRecipe(vocab=1024).digest != recipes.MiniRecipe(vocab=1024, ngram_words=9).digest
    spelled = recipes._digest(recipes.MiniRecipe(), "pins")
    assert spelled == "33f5649f", "what was prepared before is not found again"


# ---------------------------------------------------------------- overlap, against sets of word tuples


words = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=12).map(" ".join)


@given(texts=st.lists(words, max_size=8), others=st.lists(words, max_size=4), n=st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_overlap_agrees_with_sets(texts, others, n):
    def runs(text):
        split = text.split()
        return [tuple(split[i : i + n]) for i in range(len(split) - n + 1)]

    hasher = RunHasher(n)
    other_runs, text_runs = hasher.runs(others), hasher.runs(texts)
    known = {run for other in others for run in runs(other)}
    assert shares_any(text_runs, other_runs).tolist() == [not known.isdisjoint(runs(text)) for text in texts]
    shares = []
    for index, text in enumerate(texts):
        before = {run for earlier in texts[:index] for run in runs(earlier)}
        shares.append(sum(run in before for run in runs(text)) / max(1, len(runs(text))))
    assert share_seen_before(text_runs).tolist() == pytest.approx(shares)
    assert text_runs.words.tolist() == [len(text.split()) for text in texts]


def test_overlap_looks_past_case_and_punctuation():
    hasher = RunHasher(3)
    assert shares_any(hasher.runs(["Well — THE cat, sat!"]), hasher.runs(["“the cat sat”"])).all()


# ---------------------------------------------------------------- mini, on a corpus in the packages' layout


NAMES = [
    "river",
    "stone",
    "market",
    "winter",
    "garden",
    "letter",
    "engine",
    "harbour",
    "candle",
    "forest",
    "window",
    "teacher",
    "bridge",
    "summer",
]


def sentence(rng):
    return " ".join(rng.choice(NAMES) + rng.choice(["", "s", "ed"]) for _ in range(rng.randint(9, 30))) + "."


@pytest.fixture
def small_packages(tmp_path, monkeypatch):
    """One part of 3000 passages where the packages would be, some repeated, some from an evaluation item."""
    rng = random.Random(0)
    passages = ["\n".join(sentence(rng) for _ in range(rng.randint(1, 4))) for _ in range(3000)]
    passages[10] = passages[4]
    passages[11] = passages[5] + " And one more word."
    passages[20] += "  Two spaces,\ta tab, é漢\x07."
    passages[12] = "Before it. " + "one two three four five six seven eight" + " and after"
    passages[13] = "too few words"
    lines = [json.dumps({"doc": {"text": text, "id": i}, "request": {}, "idx": k, "task_name": "t"}) + "\n"
             for i, text in enumerate(passages) for k in range(2)]  # fmt: skip
    cache = tmp_path / "cache"
    folder = cache / "packages" / packages.hashlib.sha256(recipes.PINS.read_bytes()).hexdigest()[:8] / "task"
    folder.mkdir(parents=True)
    with gzip.open(folder / "requests.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(lines)
    part = parts.CorpusPart("invented", ("task",), lambda item: (item["text"], item["text"]), "none")
    monkeypatch.setattr(build, "PARTS", (part,))
    monkeypatch.setattr(build, "evaluation_items", lambda _: {"set": ["ONE two, three four five six seven eight?"]})
    return cache, passages


def test_mini_gives_back_the_passages(small_packages):
    cache, passages = small_packages
    folder = prepare("mini", cache, vocab=400)
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    assert (model.pad_id(), model.eos_id(), model.bos_id(), model.unk_id()) == (0, 1, 2, 3)
    found = []
    for split in ("train", "validation"):
        tokens = open_tokens(folder, split)
        tokens.verify()
        assert tokens.tokenizer.vocab == model.get_piece_size() == 400
        ids = tokens.read(0, len(tokens)).tolist()
        runs = itertools.groupby(ids, (1).__eq__)  # EOS is 1
        documents = [list(run) for eos, run in runs if not eos]
        texts = [model.decode(document) for document in documents]
        assert tokens.documents == len(texts) and tokens.text_bytes == sum(len(text.encode()) for text in texts)
        found += texts
    dropped = {passages[11], passages[12], passages[13]}
    assert sorted(found) == sorted(set(passages) - dropped)
    source = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["source"]
    assert source["parts"]["invented"] == {
        "passages": 2999,
        "kept": 2996,
        "near_duplicate": 1,
        "evaluation_overlap": 1,
        "too_short": 1,
        "licence": "none",
    }


@pytest.mark.parametrize("stage", ["text", "tokenizer", "tokens"])
def test_mini_goes_on_after_a_cut(small_packages, stage):
    class Cut(Exception):
        pass

    def cut(name, done, total):
        if (name, done) == (stage, 1):
            raise Cut

    cache, _ = small_packages
    whole = contents(prepare("mini", cache, vocab=400))
    folder = token_folder("mini", cache, vocab=400)
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(Cut):
        prepare("mini", cache, cut, vocab=400)
    assert not is_prepared("mini", cache, vocab=400)
    assert contents(prepare("mini", cache, vocab=400)) == whole


def test_every_part_is_documented_with_its_licence():
    text = (ROOT / "data" / "MINI.md").read_text(encoding="utf-8")
    for part in parts.PARTS:
        row = next(line for line in text.splitlines() if line.startswith(f"| {part.name} "))
        assert part.licence in row


def test_no_part_is_an_evaluation_set():
    files = [file for part in parts.PARTS for file in part.files]
    assert not [file for file in files if any(name in file for name in ("hellaswag", "piqa", "arc_"))]


def test_the_pins_are_exact():
    pins = recipes.PINS.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    assert len(pins) == 2 and all("==" in pin and "--hash=sha256:" in pin and "://" not in pin for pin in pins)


def test_progress_bar_shows_stages(capsys):
    with progress_bar() as progress:
        progress("text", 0, 2)
        progress("text", 2, 2)
    quiet("text", 0, 2)
    assert "text" in capsys.readouterr().err


@pytest.mark.slow
def test_the_real_mini_corpus(tmp_path):
    """Installs the packages; the numbers are those that data/MINI.md states."""
    folder = prepare("mini", Path(os.environ.get("REPRO_CACHE", tmp_path)))
    train, validation = open_tokens(folder), open_tokens(folder, "validation")
    train.verify()
    validation.verify()
    text = (ROOT / "data" / "MINI.md").read_text(encoding="utf-8")
    assert f"{len(train):,}" in text and f"{len(validation):,}" in text
    assert len(train) > 14_500_000 and len(validation) > 200_000
    assert train.in_domain == ()
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    for part, counts in manifest["splits"]["train"]["parts"].items():
        row = next(line for line in text.splitlines() if line.startswith(f"| {part} "))
        assert f"| {counts['documents']:,} | {counts['tokens']:,} |" in row
    assert f"{manifest['source']['overlap_check']['documents_dropped']} passages" in text
    counted = manifest["source"]["overlap_check"]["items"]
    assert counted["HellaSwag validation"] > 40_000 and counted["PIQA validation"] == 2 * 1838
