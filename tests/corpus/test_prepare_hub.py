"""C4 and Dolma: the same bytes however the work is shared or cut, nothing lost, and one sentence for bad input."""

import gzip
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import sentencepiece
from fake_hub import C4, CARD, DOLMA, fake_hub

from repro.commands.cli import main
from repro.corpora import CORPORA, Corpus, Hub, hub_of
from repro.corpus.prepare import is_prepared, prepare, token_folder
from repro.corpus.text_bytes import bits_per_byte
from repro.corpus.tokenizer import train_pieces
from repro.corpus.tokens import open_tokens
from repro.corpus.web import workers as web_workers
from repro.corpus.web.build import TextRequest, describe_folder, prepare_text
from repro.corpus.web.remote import Backoff
from repro.corpus.web.sources import promised, spread
from repro.errors import UserError

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT.parent / "shared" / "data"
WORDS = ["river", "stone", "market", "winter", "garden", "letter", "engine", "harbour", "é", "漢字", "naïve", "🌲"]
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="no shared samples")


def texts_of(seed, count):
    rng = random.Random(seed)
    return [
        "\n".join(" ".join(rng.choices(WORDS, k=rng.randint(1, 40))) for _ in range(rng.randint(1, 4)))
        for _ in range(count)
    ]


def lines_of(texts, **fields):
    return "".join(json.dumps({"text": text, **fields}, ensure_ascii=False) + "\n" for text in texts).encode()


def write_c4(folder, documents=60, files=4):
    """C4's layout: files of JSON lines, gzipped. Returns the texts of each split in order."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"train": [], "validation": []}
    for split, count in (("train", files), ("validation", 1)):
        for index in range(count):
            here = texts_of(f"{split}{index}", documents)
            texts[split] += here
            content = lines_of(here, url="http://", timestamp="2019")
            name = f"c4-{split}.{index:05d}-of-{count:05d}.json.gz"
            (folder / name).write_bytes(gzip.compress(content, mtime=0))
    return texts


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small SentencePiece model that gives back every text."""
    path = tmp_path_factory.mktemp("model") / "small.model"
    path.write_bytes(train_pieces([line for text in texts_of("m", 300) for line in text.split("\n")], 320, "it"))
    return path


def request(source, model, corpus="c4", **fields):
    fields = {"backoff": Backoff(0.001, 0.01, 4), **fields}
    return TextRequest(corpus, str(source), "train" if model is None else str(model), **fields)


def make(source, model, cache, workers=1, progress=lambda *_: None, **fields):
    return prepare_text(request(source, model, **fields), cache, workers, progress)


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def decoded(folder, split, model):
    """The documents of a split, by way of their tokens."""
    tokens = open_tokens(folder, split)
    tokens.verify()
    ids = tokens.read(0, len(tokens))
    ends = np.flatnonzero(ids == tokens.tokenizer.eos)
    assert ends[-1] == len(ids) - 1 and len(ends) == tokens.documents
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return [processor.decode(part[:-1].tolist()) for part in np.split(ids, ends[:-1] + 1)]


# ---------------------------------------------------------------- what comes out is what went in


def test_every_document_in_order_and_nothing_else(tmp_path, model):
    texts = write_c4(tmp_path / "c4" / "en")
    (tmp_path / "c4" / "en" / "README.md").write_text("not a document", encoding="utf-8")
    (tmp_path / "c4" / "realnewslike").mkdir()
    (tmp_path / "c4" / "realnewslike" / "c4-train.00000-of-00001.json.gz").write_bytes(b"of another configuration")
    folder = make(tmp_path / "c4", model, tmp_path, shard_bytes=5_000)
    for split in ("train", "validation"):
        assert decoded(folder, split, model) == texts[split]
        tokens = open_tokens(folder, split)
        assert tokens.text_bytes == sum(len(text.encode()) for text in texts[split])
        assert len(tokens.shards) > 4 * (split == "train")
    assert sorted(path.suffix for path in folder.iterdir() if path.suffix != ".bin") == [".json", ".model"]


def test_a_new_corpus_is_one_record(tmp_path, model, monkeypatch, capsys):
    """In the layout of C4, with words of its own for the splits."""
    splits = {"train": ("book",), "validation": ("extra-book",)}
    hub = Hub("nobody/books", ("all",), "0" * 40, "configurations", splits, 0, "none", "the files extra-book*")
    monkeypatch.setitem(CORPORA, "books", Corpus("books", vocab=320, hub=hub))
    texts = {"book-1": texts_of("t", 40), "extra-book-1": texts_of("v", 10)}
    for name, documents in texts.items():
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(json.dumps({"text": t}) + "\n" for t in documents), encoding="utf-8"
        )
    words = ["prepare", "books", "--source", str(tmp_path), "--tokenizer", str(model), "--cache", str(tmp_path / "c")]
    assert main([*words, "--workers", "1"]) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert folder == token_folder("books", tmp_path / "c") and is_prepared("books", tmp_path / "c")
    assert decoded(folder, "train", model) == texts["book-1"]
    assert decoded(folder, "validation", model) == texts["extra-book-1"]
    (tmp_path / "extra-book-1.jsonl").unlink()
    assert main([*words, "--limit-files", "1"]) == 2
    assert "has no validation file of books (extra-book.* with" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["jsonl", "json.zst", "parquet"])
def test_the_form_of_the_files_does_not_matter(tmp_path, model, form):
    texts = write_c4(tmp_path / "gz")
    other = tmp_path / "other"
    other.mkdir()
    for path in (tmp_path / "gz").iterdir():
        plain = gzip.decompress(path.read_bytes())
        target = other / path.name.replace("json.gz", form)
        if form == "parquet":
            rows = [json.loads(line) for line in plain.splitlines()]
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), target, row_group_size=7)
        else:
            target.write_bytes(plain if form == "jsonl" else pyarrow.compress(plain, "zstd", asbytes=True))
    folder = make(other, model, tmp_path)
    assert decoded(folder, "train", model) == texts["train"]
    as_gzip = make(tmp_path / "gz", model, tmp_path)
    assert [s.sha256 for s in open_tokens(folder).shards] == [s.sha256 for s in open_tokens(as_gzip).shards]


def test_dolma_holds_out_by_the_text(tmp_path, model):
    source = tmp_path / "dolma"
    texts = {"b.jsonl": texts_of("b", 200), "a/x.jsonl": texts_of("a", 200)}
    for name, here in texts.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(lines_of(here, source=name[0], metadata={"any": name}))
    folder = make(source, model, tmp_path, corpus="dolma", validation_per_mille=100, shard_bytes=4_000)
    found = {split: decoded(folder, split, model) for split in ("train", "validation")}
    everything = texts["a/x.jsonl"] + texts["b.jsonl"]
    held_out = set(found["validation"])
    assert found["train"] == [text for text in everything if text not in held_out]
    assert found["validation"] == [text for text in everything if text in held_out]
    assert 15 < len(found["validation"]) < 75
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    parts = manifest["splits"]["train"]["parts"]
    assert sorted(parts) == ["a", "b"]
    assert sum(part["documents"] for part in parts.values()) == len(found["train"])
    again = make(source, model, tmp_path, corpus="dolma", validation_per_mille=100, seed=1)
    assert set(decoded(again, "validation", model)) != held_out


def test_the_manifest_says_where_it_all_came_from(tmp_path, model):
    source = tmp_path / "c4"
    texts = write_c4(source)
    folder = make(source, model, tmp_path, shard_bytes=5_000, revision="ab" * 20)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["tokenizer"]["sha256"] == hashlib.sha256(model.read_bytes()).hexdigest()
    assert manifest["tokenizer"]["vocab"] == 320
    origin = manifest["source"]
    assert (origin["kind"], origin["repository"], origin["revision"]) == ("folder", "allenai/c4", "ab" * 20)
    for entry in origin["files"]:
        content = (source / entry["file"]).read_bytes()
        assert entry["bytes"] == len(content) and entry["sha256"] == hashlib.sha256(content).hexdigest()
        assert entry["documents"] == 60
    for split, counts in manifest["splits"].items():
        assert counts["documents"] == len(texts[split])
        for count in ("documents", "tokens", "bytes"):
            assert counts[count] == sum(shard[count] for shard in counts["shards"])
        entries = [entry for entry in origin["files"] if entry["split"] == split]
        assert counts["tokens"] == sum(entry["tokens"] for entry in entries)
    assert str(tmp_path) not in (folder / "manifest.json").read_text(encoding="utf-8")


# ---------------------------------------------------------------- workers and kills


def cut_script(source, model, cache, workers, calls):
    return (
        "import os, pathlib, signal\n"
        "from repro.corpus.web.build import TextRequest, prepare_text\n"
        "count = 0\n"
        "def die(stage, done, total):\n"
        "    global count\n"
        "    count += stage == 'tokens'\n"
        f"    if count > {calls}:\n"
        "        children = pathlib.Path(f'/proc/{os.getpid()}/task/{os.getpid()}/children')\n"
        "        print(children.read_text() if children.exists() else '', flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        f"request = TextRequest('c4', {str(source)!r}, {str(model)!r}, shard_bytes=5_000)\n"
        f"prepare_text(request, pathlib.Path({str(cache)!r}), {workers}, die)\n"
    )


DYING = """
import os
from repro.corpus.web import workers
workers.tokenize_file = lambda *_: os.kill(os.getpid(), 9)
workers.main()
"""
PRINTING = """
from repro.corpus.web import workers
print('{"ended": "failed"}', flush=True)
workers.main()
"""


def running(pid):
    try:
        return (Path("/proc") / pid / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def finished_slices(folder):
    """Modification times of the shards whose slice has a record."""
    times = {}
    for path in folder.glob("*.record.json"):
        for shard in json.loads(path.read_text(encoding="utf-8"))["shards"].values():
            name = shard["shard"]["file"]
            times[name] = (folder / name).stat().st_mtime_ns
    return times


@pytest.fixture(scope="module")
def whole(tmp_path_factory, model):
    """A source and what one worker makes of it without being cut."""
    path = tmp_path_factory.mktemp("whole")
    write_c4(path / "c4", documents=90, files=5)
    return path / "c4", digests(make(path / "c4", model, path, shard_bytes=5_000))


@pytest.mark.parametrize("workers", [2, 5, 9])
def test_any_number_of_workers_writes_the_same_bytes(tmp_path, model, whole, workers):
    source, expected = whole
    assert len(expected) > 15
    assert digests(make(source, model, tmp_path, workers, shard_bytes=5_000)) == expected


@pytest.mark.parametrize(("workers", "calls"), [((1, 3, 1), (3, 4)), ((2, 1, 2), (5, 2)), ((3, 2, 1), (1, 9))])
def test_killed_again_and_again_by_any_number_of_workers(tmp_path, model, whole, workers, calls):
    source, expected = whole
    kept = {}
    for count, after in zip(workers, calls, strict=False):
        script = cut_script(source, model, tmp_path, count, after)
        cut = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, encoding="utf-8")
        assert cut.returncode == -signal.SIGKILL, cut.stderr
        folder = next((tmp_path / "tokens").glob("c4-320-*"))
        assert not is_prepared("c4", tmp_path, vocab=320)
        deadline = time.monotonic() + 10
        while any(running(pid) for pid in cut.stdout.split()):
            assert time.monotonic() < deadline, "a worker outlives the process that started it"
            time.sleep(0.01)
        now = finished_slices(folder)
        assert kept.items() <= now.items(), "a finished slice was made again"
        kept = now
    assert kept
    folder = make(source, model, tmp_path, workers[-1], shard_bytes=5_000)
    assert digests(folder) == expected
    assert all((folder / name).stat().st_mtime_ns == when for name, when in kept.items())


def test_a_worker_that_is_killed_ends_the_preparation_with_a_sentence(tmp_path, model, whole, monkeypatch):
    """For want of memory, say: what is finished stays, and no other worker goes on."""
    monkeypatch.setattr(web_workers, "WORKER", ("-c", DYING))
    with pytest.raises(UserError, match=r"a worker ended with code -9 at Job\(\d, .*want of memory\)"):
        make(whole[0], model, tmp_path, 2, shard_bytes=5_000)
    monkeypatch.undo()
    assert digests(make(whole[0], model, tmp_path, shard_bytes=5_000)) == whole[1]


def test_what_a_worker_prints_is_no_message(tmp_path, model, whole, monkeypatch, capfd):
    monkeypatch.setattr(web_workers, "WORKER", ("-c", PRINTING))
    assert digests(make(whole[0], model, tmp_path, 2, shard_bytes=5_000)) == whole[1]
    assert '{"ended": "failed"}' in capfd.readouterr().err


def test_two_at_once_do_not_mix(tmp_path, model, whole):
    source, _ = whole
    refused = []

    def second(*_):
        if not refused:
            with pytest.raises(UserError, match="another process is preparing"):
                make(source, model, tmp_path)
            refused.append(True)

    make(source, model, tmp_path, progress=second)
    assert refused


def test_a_source_that_changed_is_read_again(tmp_path, model):
    source = tmp_path / "c4"
    write_c4(source, files=2)
    last = source / "c4-validation.00000-of-00001.json.gz"
    good = last.read_bytes()
    last.write_bytes(good[:-9])
    with pytest.raises(UserError, match="is damaged"):
        make(source, model, tmp_path, shard_bytes=5_000)
    # As many bytes as before, so the folder is the same one, but another text.
    texts = texts_of("new", 60)
    first = source / "c4-train.00000-of-00002.json.gz"
    content = gzip.compress(lines_of(texts), mtime=0)
    size = first.stat().st_size
    first.write_bytes(content + b"\0" * (size - len(content)) if len(content) <= size else content)
    last.write_bytes(good)
    folder = make(source, model, tmp_path, shard_bytes=5_000)
    assert decoded(folder, "train", model)[:60] == texts
    listed = {shard.file for split in ("train", "validation") for shard in open_tokens(folder, split).shards}
    assert {path.name for path in folder.glob("*.bin")} == listed


def test_a_finished_folder_is_left_alone_and_found_again(tmp_path, model, whole):
    source, _ = whole
    folder = make(source, model, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "tokens").rglob("*")}
    assert make(source, model, tmp_path, progress=lambda *_: pytest.fail("there was nothing to do")) == folder
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "tokens").rglob("*")} == before
    assert token_folder("c4", tmp_path, vocab=320) == folder and is_prepared("c4", tmp_path, vocab=320)
    assert prepare("c4", tmp_path, vocab=320) == folder
    limited = make(source, model, tmp_path, limit_documents=3)
    assert limited != folder and token_folder("c4", tmp_path, vocab=320) == limited
    make(source, model, tmp_path)
    assert token_folder("c4", tmp_path, vocab=320) == folder


def test_a_run_does_not_begin_to_prepare_terabytes(tmp_path):
    assert not is_prepared("c4", tmp_path)
    with pytest.raises(
        UserError, match=r"c4 is not prepared with a vocabulary of 32000 .*`python -m repro prepare c4`"
    ):
        prepare("c4", tmp_path)
    with pytest.raises(UserError, match="no prepared tokens"):
        open_tokens(token_folder("dolma", tmp_path, vocab=32_000))


# ---------------------------------------------------------------- ugly input


def single(tmp_path, content, name="c4-train.00000-of-00001.jsonl"):
    source = tmp_path / "c4"
    source.mkdir()
    (source / name).write_bytes(content)
    (source / "c4-validation.00000-of-00001.jsonl").write_bytes(lines_of(["a validation text"]))
    return source


GOOD = lines_of(["one", "two"])
BROKEN = {
    "invalid_utf8": b'{"text": "\xff\xfe"}\n',
    "invalid_json": b'{"text": "half\n',
    "missing_text": b'{"url": "http://"}\n',
    "text_not_a_string": b'{"text": null}\n',
    "invalid_unicode": b'{"text": "\\ud83d half"}\n',
}


@pytest.mark.parametrize("reason", BROKEN)
def test_a_broken_line_is_named_or_counted(tmp_path, model, reason):
    source = single(tmp_path, GOOD + BROKEN[reason] + GOOD)
    with pytest.raises(UserError, match=rf"{source}/c4-train\S+, line 3, (is|has) .*--skip-broken"):
        make(source, model, tmp_path)
    folder = make(source, model, tmp_path, skip_broken=True)
    assert decoded(folder, "train", model) == ["one", "two", "one", "two"]
    assert json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["source"]["skipped"] == {reason: 1}
    assert f"1 {reason}" in describe_folder(folder)


def test_empty_texts_are_left_out_and_counted(tmp_path, model):
    source = single(tmp_path, lines_of(["", "one", "", "two"]) + b"\n  \n" + lines_of([""]))
    folder = make(source, model, tmp_path)
    assert decoded(folder, "train", model) == ["one", "two"]
    assert json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["source"]["skipped"] == {"empty": 3}


def test_control_characters_and_line_separators_stay_inside_a_document(tmp_path, model):
    texts = ["a\0b", "a\u2028b\u0085c\x1cd", "\ufeffmark", " two  spaces ", "tab\tand\r\nreturn", "\U0010ffff"]
    folder = make(single(tmp_path, lines_of(texts)), model, tmp_path)
    assert decoded(folder, "train", model) == texts


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("jsonl", b"", "0 bytes"),
        ("json.gz", b"", "0 bytes"),
        ("parquet", b"", "0 bytes"),
        ("json.gz", gzip.compress(GOOD * 500, mtime=0)[:-20], "end-of-stream"),
        ("json.gz", b"<html>no gzip</html>", "[Nn]ot a gzipped file"),
        ("json.gz", gzip.compress(GOOD, mtime=0)[:-8] + b"\0" * 8, "CRC"),
        ("json.zst", pyarrow.compress(GOOD * 500, "zstd", asbytes=True)[:-9], "[Tt]runcated"),
        ("parquet", b"PAR1 and no more", "[Pp]arquet"),
    ],
    ids=["empty-jsonl", "empty-gzip", "empty-parquet", "gzip-cut", "no-gzip", "gzip-crc", "zstd-cut", "no-parquet"],
)
def test_a_damaged_file_is_an_error_even_when_lines_may_be_skipped(tmp_path, model, name, content, says):
    source = single(tmp_path, content, f"c4-train.00000-of-00001.{name}")
    with pytest.raises(UserError, match=rf"c4-train\S+{name} is damaged after line \d+ \(.*{says}.*copy it again"):
        make(source, model, tmp_path, skip_broken=True)


def test_a_damaged_file_takes_back_its_finished_slices(tmp_path, model):
    texts = texts_of("long", 200)
    content = gzip.compress(lines_of(texts), mtime=0)
    source = single(tmp_path, content[:-8] + b"\0" * 8, "c4-train.00000-of-00001.json.gz")
    with pytest.raises(UserError, match="CRC"):
        make(source, model, tmp_path, shard_bytes=2_000)
    assert not list((tmp_path / "tokens").rglob("*.record.json"))
    (source / "c4-train.00000-of-00001.json.gz").write_bytes(content)
    assert decoded(make(source, model, tmp_path, shard_bytes=2_000), "train", model) == texts


def test_parquet_without_text(tmp_path, model):
    source = single(tmp_path, b"", "c4-train.00000-of-00001.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"body": ["a"]}), source / "c4-train.00000-of-00001.parquet")
    with pytest.raises(UserError, match=r"has no column 'text' \(it has body\)"):
        make(source, model, tmp_path)


def test_a_document_longer_than_a_shard(tmp_path, model):
    texts = ["short", "long " * 200_000, "after"]
    folder = make(single(tmp_path, lines_of(texts)), model, tmp_path, shard_bytes=1_000)
    assert decoded(folder, "train", model) == texts
    assert [shard.documents for shard in open_tokens(folder).shards] == [2, 1]


def test_two_hundred_thousand_one_word_documents(tmp_path, model):
    rng = random.Random(0)
    texts = [rng.choice(WORDS) for _ in range(200_000)]
    folder = make(single(tmp_path, lines_of(texts)), model, tmp_path)
    tokens = open_tokens(folder)
    assert tokens.documents == 200_000 and len(tokens.shards) == 1
    ids = tokens.read(0, len(tokens))
    expected = sentencepiece.SentencePieceProcessor(model_file=str(model)).encode(texts)
    np.testing.assert_array_equal(ids, [i for document in expected for i in (*document, 1)])


def test_missing_sources(tmp_path, model):
    with pytest.raises(UserError, match=r"--source .*nowhere does not exist"):
        make(tmp_path / "nowhere", model, tmp_path)
    (tmp_path / "c4").mkdir()
    with pytest.raises(UserError, match=r"has no train file of c4 \(c4-train.*as it lies on the hub"):
        make(tmp_path / "c4", model, tmp_path)
    (tmp_path / "c4" / "c4-train.00000-of-00001.jsonl").write_bytes(GOOD)
    with pytest.raises(UserError, match="has no validation file of c4"):
        make(tmp_path / "c4", model, tmp_path)
    with pytest.raises(
        UserError, match=r"none of the 2 documents of dolma fell into the validation split \(1 in 1000\)"
    ):
        make(tmp_path / "c4", model, tmp_path, corpus="dolma")


def test_a_full_disk_is_a_sentence_and_no_loss(tmp_path, model, whole, monkeypatch):
    source, expected = whole
    sync = os.fsync
    left = iter(range(6))

    def full(descriptor):
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match="No space left on device"):
        make(source, model, tmp_path, shard_bytes=5_000)
    monkeypatch.undo()
    assert digests(make(source, model, tmp_path, shard_bytes=5_000)) == expected


def test_bad_requests(tmp_path, model):
    source = single(tmp_path, GOOD)
    for fields, says in (
        ({"revision": "main"}, "--revision main is not a commit of 40 digits"),
        ({"vocab": 999}, "--vocab 999 differs from .*small.model's 320"),
        ({"name": "de"}, "--name de: c4 has en"),
        ({"limit_files": 0}, "limit_files is 0"),
        ({"validation_per_mille": 5}, "c4 has a validation split of its own"),
    ):
        with pytest.raises(UserError, match=says):
            make(source, model, tmp_path, **fields)
    with pytest.raises(UserError, match="--workers 0"):
        make(source, model, tmp_path, workers=0)


# ---------------------------------------------------------------- limits


def test_limits_take_the_beginning_of_files_spread_over_all(tmp_path, model):
    source = tmp_path / "c4"
    texts = write_c4(source, documents=20, files=6)
    folder = make(source, model, tmp_path, limit_files=3, limit_documents=4, shard_bytes=100)
    expected = [text for file in (0, 2, 4) for text in texts["train"][20 * file : 20 * file + 4]]
    assert decoded(folder, "train", model) == expected
    assert decoded(folder, "validation", model) == texts["validation"][:4]
    assert "3 of the 6 training files" in describe_folder(folder)


def test_spread_keeps_validation_and_order():
    files = [type("F", (), {"split": "train", "name": f"c4-train.{i:05d}-of-01024.json.gz"}) for i in range(1024)]
    files.append(type("F", (), {"split": "validation", "name": "c4-validation.00000-of-00008.json.gz"}))
    chosen = spread(files, 100)
    assert chosen[-1] is files[-1] and len(chosen) == 101
    steps = np.diff([files.index(file) for file in chosen[:-1]])
    assert set(steps) == {10, 11} and spread(files, None) == files and promised(files) == 1024


# ---------------------------------------------------------------- tokenizers


def trained(tmp_path, name, **options):
    path = tmp_path / name
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([line for text in texts_of("t", 300) for line in text.split("\n")]),
            model_writer=file,
            minloglevel=2,
            **options,
        )
    return path


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "unigram", "vocab_size": 35, "pad_id": -1, "bos_id": -1},
        {
            "model_type": "bpe",
            "vocab_size": 300,
            "byte_fallback": True,
            "pad_id": 7,
            "eos_id": 5,
            "bos_id": 6,
            "unk_id": 0,
        },
        {"model_type": "bpe", "vocab_size": 150, "user_defined_symbols": [f"<extra_id_{i}>" for i in range(100)]},
    ],
    ids=["unigram-no-pad-no-bos", "ids-elsewhere", "100-extra-ids"],
)
def test_any_model_keeps_its_own_ids(tmp_path, options):
    path = trained(tmp_path, "other.model", normalization_rule_name="identity", **options)
    source = tmp_path / "c4"
    texts = write_c4(source, documents=10, files=1)
    folder = make(source, path, tmp_path)
    tokens = open_tokens(folder)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    expected = [i for text in texts["train"] for i in (*processor.encode(text), processor.eos_id())]
    np.testing.assert_array_equal(tokens.read(0, len(tokens)), expected)
    kept = tokens.tokenizer
    assert (kept.pad, kept.bos, kept.unk) == (processor.pad_id(), processor.bos_id(), processor.unk_id())
    assert kept.vocab == processor.get_piece_size() == options["vocab_size"]
    assert folder.name.startswith(f"c4-{kept.vocab}-")


def test_a_model_without_eos_needs_a_piece_that_stands_for_it(tmp_path):
    path = trained(
        tmp_path, "none.model", model_type="bpe", vocab_size=120, eos_id=-1, user_defined_symbols=["<|endoftext|>"]
    )
    source = single(tmp_path, GOOD)
    with pytest.raises(UserError, match=r"none.model has no end-of-sequence piece.*--eos PIECE"):
        make(source, path, tmp_path)
    with pytest.raises(UserError, match="has no piece '<end>'"):
        make(source, path, tmp_path, eos_piece="<end>")
    tokens = open_tokens(make(source, path, tmp_path, eos_piece="<|endoftext|>"))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert tokens.tokenizer.eos == processor.piece_to_id("<|endoftext|>")
    assert (tokens.read(0, len(tokens)) == tokens.tokenizer.eos).sum() == 2


def test_what_is_no_model(tmp_path):
    source = single(tmp_path, GOOD)
    for content in (b"", b"no model at all" * 9):
        (tmp_path / "bad.model").write_bytes(content)
        with pytest.raises(UserError, match=r"bad.model is not a SentencePiece model"):
            make(source, tmp_path / "bad.model", tmp_path)
    with pytest.raises(UserError, match=r"--tokenizer .*missing.model isn't there"):
        make(source, tmp_path / "missing.model", tmp_path)


def test_a_trained_tokenizer_is_the_same_each_time_and_sees_no_validation(tmp_path):
    source = tmp_path / "dolma"
    source.mkdir()
    texts = texts_of("d", 300) + [f"secret{i}ñ" for i in range(300)]
    (source / "x.jsonl").write_bytes(lines_of(texts))
    fields = {"corpus": "dolma", "vocab": 400, "validation_per_mille": 300}
    one = make(source, None, tmp_path / "1", **fields)
    two = make(source, None, tmp_path / "2", workers=2, **fields)
    assert digests(one) == digests(two)
    model = one / "tokenizer.model"
    assert open_tokens(one).tokenizer.vocab == 400 and token_folder("dolma", tmp_path / "1", vocab=400) == one
    assert decoded(one, "train", model) == [t for t in texts if t not in set(decoded(one, "validation", model))]


def test_too_little_text_for_a_vocabulary(tmp_path):
    with pytest.raises(UserError, match="too little text for a tokenizer of 32000 pieces"):
        make(single(tmp_path, GOOD), None, tmp_path)


# ---------------------------------------------------------------- the hub


def command(*words, cache, hub=None, home=None):
    environment = {**os.environ, "HF_HOME": str(home or cache / "home")}
    if hub:
        environment["HF_ENDPOINT"] = hub.address
    done = subprocess.run(
        [sys.executable, "-m", "repro", "prepare", *words, "--cache", str(cache)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )
    return done.returncode, done.stdout.strip(), done.stderr


def test_c4_from_the_hub_is_c4_from_a_folder(tmp_path, model):
    write_c4(tmp_path / "c4" / "en", documents=20, files=3)
    revision = hub_of("c4").revision
    files = {f"en/{path.name}": path.read_bytes() for path in (tmp_path / "c4" / "en").iterdir()}
    local = make(tmp_path / "c4", model, tmp_path)
    with fake_hub() as hub:
        hub.put_repository(C4, revision, {"README.md": CARD.encode(), **files})
        place = f"{C4}/resolve/{revision}/en/c4-train.0000{{}}-of-00003.json.gz"
        hub.failures[place.format(0)] = [403, "cut"]
        hub.failures[place.format(1)] = ["flip"]
        words = ("c4", "--tokenizer", str(model), "--workers", "2")
        code, printed, said = command(*words, cache=tmp_path / "hub", hub=hub)
        assert code == 0, said
        assert "403" in said and "broke off" in said and "damaged" in said
        folder = ROOT / printed
        hub.files.clear()  # what is finished needs no hub
        assert command(*words, cache=tmp_path / "hub", hub=hub)[:2] == (0, printed)
    assert [s.sha256 for s in open_tokens(folder).shards] == [s.sha256 for s in open_tokens(local).shards]
    assert decoded(folder, "validation", model) == decoded(local, "validation", model)
    origin = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["source"]
    assert (origin["kind"], origin["revision"], origin["name"]) == ("hub", revision, "en")
    assert {f"en/{e['file']}": e["sha256"] for e in origin["files"]} == {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items()
    }


def test_dolma_from_its_list_of_addresses(tmp_path, model):
    revision = hub_of("dolma").revision
    texts = {"books": texts_of("b", 50), "wiki": texts_of("w", 50)}
    with fake_hub() as hub:
        for name, here in texts.items():
            hub.files[f"/dolma-v1_7/{name}/{name}-0000.json.gz"] = gzip.compress(lines_of(here, source=name))
        urls = "".join(f"{hub.address}/dolma-v1_7/{name}/{name}-0000.json.gz\n" for name in ("wiki", "books"))
        hub.put_repository(DOLMA, revision, {"urls/v1_7.txt": urls.encode()})
        words = ("dolma", "--tokenizer", str(model), "--workers", "1", "--validation-per-mille", "100")
        code, printed, said = command(*words, cache=tmp_path, hub=hub)
        assert code == 0, said
        code, _, said = command(*words, "--name", "v1_6", cache=tmp_path, hub=hub)
        assert code == 2 and "allenai/dolma has no v1_6 at revision" in said
    everything = texts["books"] + texts["wiki"]
    held_out = decoded(ROOT / printed, "validation", model)
    assert decoded(ROOT / printed, "train", model) == [text for text in everything if text not in set(held_out)]


def test_without_the_hub_one_sentence_names_the_offline_way(tmp_path, model):
    with fake_hub() as hub:
        pass  # closed again: nothing listens there
    folder = tmp_path / "tokens"
    code, printed, said = command("c4", "--tokenizer", str(model), cache=tmp_path, hub=hub)
    assert (code, printed) == (2, "")
    last = said.splitlines()[-1]
    assert last.startswith("repro: allenai/c4 (en) on the hub can't be read (the hub can't be reached")
    assert last.endswith("pass their folder with --source PATH (docs/data.md).") and "Traceback" not in said
    assert not folder.exists()


def test_the_command_line_refuses_in_one_sentence(tmp_path, model, capsys):
    source = single(tmp_path, GOOD + BROKEN["invalid_json"])
    words = ["prepare", "c4", "--source", str(source), "--tokenizer", str(model), "--cache", str(tmp_path)]
    assert main(words) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(r"repro: .*jsonl, line 3, is not a JSON object: .*\.", error)
    assert main([*words, "--skip-broken", "--workers", "1"]) == 0
    captured = capsys.readouterr()
    assert Path(captured.out.strip()) == token_folder("c4", tmp_path, vocab=320)
    assert "train: 2 documents" in captured.err and "left out: 1 invalid_json" in captured.err
    assert main(["prepare", "smoke", "--limit-files", "3", "--cache", str(tmp_path)]) == 2
    assert "--limit-files without effect: only c4 and dolma take this, not smoke" in capsys.readouterr().err


# ---------------------------------------------------------------- the real thing, in small


NANODO = SAMPLES / "tokenizer" / "cc_all.32000.100extra.model"


@needs_samples
def test_real_c4_with_the_tokenizer_of_nanodo(tmp_path):
    folder = make(SAMPLES / "c4", NANODO, tmp_path, workers=2)
    train, validation = open_tokens(folder), open_tokens(folder, "validation")
    assert (train.documents, validation.documents) == (1000, 200)
    assert (train.tokenizer.vocab, train.tokenizer.pad, train.tokenizer.eos) == (32_101, 0, 1)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(NANODO))
    texts = []
    for path in sorted((SAMPLES / "c4" / "en").glob("c4-train*")):
        texts += [json.loads(line)["text"] for line in gzip.decompress(path.read_bytes()).splitlines()]
    expected = [i for ids in processor.encode(texts) for i in (*ids, 1)]
    np.testing.assert_array_equal(train.read(0, len(train)), expected)
    assert train.text_bytes == sum(len(text.encode()) for text in texts)
    # 4.3 bytes a token: a loss of ln(32101) a token is about 3.5 bits a byte.
    windows = train.windows(1024, 0, 3)
    assert windows.shape == (3, 1025)
    assert 3.2 < bits_per_byte(np.log(32_101), windows, train) < 3.8


@needs_samples
def test_real_dolma_with_a_tokenizer_trained_on_it(tmp_path):
    folder = make(SAMPLES / "dolma", None, tmp_path, corpus="dolma", vocab=2_000, validation_per_mille=100)
    train, validation = open_tokens(folder), open_tokens(folder, "validation")
    assert train.documents + validation.documents == 30 and validation.documents > 0
    assert train.tokenizer.vocab == 2_000
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert list(manifest["splits"]["train"]["parts"]) == ["common-crawl"]
    assert train.windows(2_048, 0, 2).max() < 2_000
