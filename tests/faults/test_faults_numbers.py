"""Numbers that are what they say: each case names the fault, found by use, that it holds."""

import argparse
import json
import math
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import sentencepiece
from fabricated import finish, planned

from analysis.claims.trained import judgement_grids
from analysis.paper.plan import plan_text
from analysis.render import terminal_text as shown
from analysis.tables.contents import table_of
from analysis.tables.layout import COLUMNS, csv_rows, document
from experiments.registry import load, trained
from repro.corpus import smoke
from repro.corpus.shards import TextDocument, write_manifest, write_shards
from repro.corpus.text_bytes import bits_per_byte, text_bytes
from repro.corpus.tokenizer import MODEL, describe, store_model, train_pieces
from repro.corpus.tokens import Tokenizer, TokenSet, open_tokens
from repro.diloco.jax_settings import FLAGS, LITTLE_EFFORT, PINNED, clean, in_force, pin, start_jax
from repro.errors import UserError
from repro.machines.hardware import cpu
from repro.results import curves
from repro.results.collected import load_records as load_records
from repro.results.collected import records, save
from repro.results.read import Result, collect
from repro.runs.provenance import MARK, commit, dirty
from repro.runs.sweep import environment
from repro.spec.experiment import PlannedRun, expand, left_out
from repro.spec.identity import config_text

KEPT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "2",
    "JAX_COMPILATION_CACHE_DIR": "gs://bucket/xla",
    "JAX_COORDINATOR_ADDRESS": "host:1",
    "JAX_LOG_COMPILES": "1",
    "JAX_DEBUG_NANS": "1",
    "XLA_FLAGS": "--xla_dump_to=x --xla_force_host_platform_device_count=4",
    "PATH": "/bin",
}
TAKEN_OUT = {
    "JAX_THREEFRY_PARTITIONABLE": "0",
    "JAX_DEFAULT_PRNG_IMPL": "rbg",
    "JAX_ENABLE_X64": "1",
    "JAX_DEFAULT_MATMUL_PRECISION": "bfloat16",
    "JAX_USE_HLO_LOGISTIC_LOWERING": "1",  # of a later JAX than one of those that are pinned here
    "JAX_NO_SUCH_SETTING_YET": "1",
    "NVIDIA_TF32_OVERRIDE": "0",
}
OTHER_VALUES = {
    "jax_threefry_partitionable": False,
    "jax_default_prng_impl": "rbg",
    "jax_enable_x64": True,
    "jax_random_seed_offset": 1,
    "jax_default_matmul_precision": "highest",
    "jax_numpy_dtype_promotion": "strict",
}


def test_settings_of_jax_that_may_change_a_number_are_taken_out_and_all_others_kept():
    assert clean(KEPT | TAKEN_OUT) == KEPT


@pytest.mark.parametrize("variable", FLAGS)
@pytest.mark.parametrize("word", ["--xla_cpu_enable_fast_math=true", "--xla_backend_optimization_level=3", "flags.txt"])
def test_a_flag_of_xla_that_may_change_a_number_is_refused_by_its_name(variable: str, word: str):
    with pytest.raises(UserError, match=f"{variable} holds '{word}'"):
        clean({variable: f"--xla_dump_to=x {word}"})


def test_the_environment_of_a_sweep_holds_no_setting_that_changes_a_number(monkeypatch: pytest.MonkeyPatch):
    for name, value in TAKEN_OUT.items():
        monkeypatch.setenv(name, value)
    assert not TAKEN_OUT.keys() & environment(cpu(), smoke=True).keys()
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=x --xla_backend_optimization_level=0")
    assert environment(cpu(), smoke=False)["XLA_FLAGS"].endswith(" ".join(LITTLE_EFFORT))  # the last word wins
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    with pytest.raises(UserError, match="fast_math"):
        environment(cpu(), smoke=False)


def test_what_a_process_set_by_hand_is_put_back_and_what_is_in_force_is_told(monkeypatch: pytest.MonkeyPatch):
    import jax

    pin()
    before = in_force()
    for name, value in TAKEN_OUT.items():
        monkeypatch.setenv(name, value)
    try:
        for name, value in OTHER_VALUES.items():
            jax.config.update(name, value)
        assert in_force() != before
    finally:
        pin()
    assert in_force() == before
    assert not TAKEN_OUT.keys() & os.environ.keys()
    known = {name: value for name, value in PINNED.items() if name in jax.config.values}
    assert before == known | {"XLA_FLAGS": os.environ["XLA_FLAGS"].strip()}


def _train(_: Path) -> object:
    from repro.training import loop

    return loop.train(*[None] * 5)  # type: ignore[arg-type]


def _train_command(tmp_path: Path) -> object:
    from repro.commands import options
    from repro.commands import train as train_cli

    config = tmp_path / "config.json"
    config.write_text(config_text(expand(load("table3"), "smoke")[0].config), encoding="utf-8")
    parser = options.Parser()
    train_cli.add_arguments(parser)
    options.remember(parser)
    return train_cli.main(parser.parse_args([str(config), "--root", str(tmp_path)]))


def _bench(_: Path) -> object:
    from repro.commands import bench

    return bench.main()


def _compile(_: Path) -> object:
    from repro.commands import compile as compile_cli

    return compile_cli._compile(argparse.Namespace(), [], (), [])


def _export(_: Path) -> object:
    from repro.commands import export

    return export._parameters(argparse.Namespace())


ENTRIES: dict[str, Callable[[Path], object]] = {
    "train in Python": _train,
    "train": _train_command,
    "worker": start_jax,
    "compile": _compile,
    "export": _export,
    "bench": _bench,
}


@pytest.mark.parametrize("name", ENTRIES)
def test_every_process_that_computes_pins_before_it_does_anything(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    monkeypatch.setattr("sys.argv", ["bench"])
    monkeypatch.setattr("repro.commands.train.Stop", lambda _: MagicMock())  # it would answer the signals of the tests
    with pytest.raises(UserError, match="fast_math"):
        ENTRIES[name](tmp_path)


def _git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=e")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def _source(folder: Path) -> Path:
    """A source tree as an archive holds it."""
    (folder / MARK).parent.mkdir(parents=True)
    (folder / MARK).write_text("text", encoding="utf-8")
    return folder


def _repository(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    _git(folder, "init", "-q")
    (folder / "other").write_text("text", encoding="utf-8")
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "-m", "all")
    return folder


UNKNOWN = {"commit": "unknown", "dirty": None}


def test_the_commit_is_that_of_the_suites_own_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own = _repository(_source(tmp_path / "own"))
    assert len(commit(own)["commit"]) == 40 and commit(own)["dirty"] is False
    monkeypatch.setenv("GIT_DIR", str(_repository(tmp_path / "elsewhere") / ".git"))  # as while a hook runs
    assert len(commit(own)["commit"]) == 40 and commit(own)["dirty"] is False
    (own / "other").write_text("changed", encoding="utf-8")
    assert commit(own)["dirty"] is True


def test_an_archive_unpacked_inside_another_repository_has_no_commit(tmp_path: Path):
    assert commit(_source(tmp_path / "plain")) == UNKNOWN
    assert commit(_source(_repository(tmp_path / "inside") / "suite")) == UNKNOWN
    home = _repository(tmp_path / "home")  # unpacked over its top, where it ignores what it doesn't hold
    (home / ".git" / "info").mkdir(exist_ok=True)
    (home / ".git" / "info" / "exclude").write_text("*", encoding="utf-8")
    assert commit(_source(home)) == UNKNOWN


def test_without_git_or_its_answer_nothing_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own = _repository(_source(tmp_path / "own"))
    (own / ".git" / "index").write_bytes(b"damaged")
    assert commit(own) == UNKNOWN
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(own) == UNKNOWN


@pytest.mark.parametrize(
    ("states", "expected"),
    [((), None), ((False,), False), ((None, False), None), ((True, False), True), ((True, None), True)],
)
def test_a_run_is_clean_when_every_attempt_at_it_was(states: tuple[bool | None, ...], expected: bool | None):
    assert dirty([{"dirty": state} for state in states]) is expected


def _finished(dirty: bool | None, loss: float = 3.0, evaluation: dict[str, object] | None = None) -> Result:
    run = expand(load("table5"), "smoke")[0]
    config, losses = run.config, {"outer-32": {"loss": loss, "tokens": 512}}
    summary = {"run_id": run.run_id, "steps": config.steps, "tokens": config.tokens, "validations": losses}
    return Result(run, summary, {"attempts": [{"commit": "c", "dirty": dirty}]}, evaluation=evaluation)


@pytest.mark.parametrize(("state", "why"), [(None, "no known commit"), (True, "uncommitted changes")])
def test_collect_lets_nothing_unclean_replace_what_is_clean(state: bool | None, why: str, tmp_path: Path):
    path, score = tmp_path / "r.json", {"eval_id": "few", "value": 1, "dirty": False}
    save([_finished(False, evaluation=score)], path)
    assert why in save([_finished(state, 2.0)], path).sentence
    assert "few" in save([_finished(False, evaluation=score | {"value": 2, "dirty": state})], path).sentence
    (record,) = load_records(path).values()
    assert record["summary"]["validations"]["outer-32"]["loss"] == 3.0 and record["evaluations"]["few"]["value"] == 1
    assert not save([_finished(state, 2.0)], tmp_path / "new.json").refused  # it stands where nothing stood
    assert save([_finished(False)], tmp_path / "new.json").replaced


TEXTS = (
    "the cat sat on the mat and the rat ran at the cat",
    " two  spaces, a naïve café, 東京 and \N{GRINNING FACE}",
    "x",
    "the mat and the cat " * 9 + "end",
    "éèêëēėę" * 5,
    "the cat and the rat and the mat, at last",
)


def _tokens(folder: Path, vocab: int, texts: tuple[str, ...] = TEXTS) -> TokenSet:
    """A token folder of `texts`, a document each; a vocabulary of 256 is the bytes."""
    folder.mkdir(parents=True)
    if vocab == 256:
        tokenizer, encode = Tokenizer("bytes", None, "", 256, unk=-1, bos=-1, eos=0, pad=-1), smoke._encode
    else:
        content = train_pieces(texts, vocab, "the text")
        store_model(folder, content)
        tokenizer = describe(content, MODEL, None)
        model = sentencepiece.SentencePieceProcessor(model_proto=content)
        encode = lambda some: [np.array(ids) for ids in model.encode(some)]  # noqa: E731
    documents = [TextDocument("part", text) for text in texts]
    written = write_shards(folder, {"train": [], "validation": documents}, encode, tokenizer, 10**9, lambda *_: None)
    facts = {"corpus": "smoke", "in_domain": [], "tokenizer": vars(tokenizer), "splits": written}
    write_manifest(folder, facts)
    return open_tokens(folder, "validation")


def _spelled(tokens: TokenSet, end: int) -> int:
    """Bytes of text behind the first `end` tokens, by decoding each document; a cut letter counts what is there."""
    ids, total = tokens.read(0, end).tolist(), 0
    if tokens.tokenizer.file is None:
        return sum(token != tokens.tokenizer.eos for token in ids)
    model = sentencepiece.SentencePieceProcessor(model_file=str(tokens.folder / MODEL))
    document: list[int] = []
    for token in [*ids, tokens.tokenizer.eos]:
        if token != tokens.tokenizer.eos:
            document.append(token)
            continue
        cut = 0  # byte pieces of a letter whose last byte isn't there
        while document and model.is_byte(document[-1]) and "\ufffd" in model.decode(document):
            document.pop()
            cut += 1
        total += len(model.decode(document).encode()) + cut
        document = []
    return total


@pytest.mark.parametrize("vocab", [256, 300, 330])
def test_bits_a_byte_count_the_bytes_of_what_is_scored(vocab: int, tmp_path: Path):
    tokens = _tokens(tmp_path / "t", vocab)
    for length, first, count in ((1, 0, 40), (7, 3, 5), (16, 1, 2), (len(tokens) - 1, 0, 1)):
        windows = tokens.windows(length, first, count)
        start, end = 1 + first * length, 1 + (first + count) * length
        assert text_bytes(windows, tokens) == _spelled(tokens, end) - _spelled(tokens, start)
    every = tokens.windows(1, 0, len(tokens) - 1)
    assert text_bytes(every, tokens) == sum(len(text.encode()) for text in TEXTS) - _spelled(tokens, 1)


def test_two_vocabularies_on_one_text_agree_where_the_models_do(tmp_path: Path):
    """A model of bytes, and of the document's end, costs the same whatever pieces it is cut into."""
    texts = ("~", *TEXTS)  # the first token isn't scored: here it is one byte, or with the space before it none
    nats_of_byte, nats_of_end = 1.25, 3.5
    found = []
    for vocab in (256, 300, 330):
        tokens = _tokens(tmp_path / str(vocab), vocab, texts)
        windows = tokens.windows(1, 0, len(tokens) - 1)
        ends = int((windows[:, 1] == tokens.tokenizer.eos).sum())
        scored = sum(len(text.encode()) for text in texts) - _spelled(tokens, 1)
        nats = (nats_of_byte * scored + nats_of_end * ends) / len(windows)
        found.append(bits_per_byte(nats, windows, tokens) - nats_of_end * ends / scored / math.log(2))
    assert found == pytest.approx([nats_of_byte / math.log(2)] * 3, rel=1e-12)


def test_a_run_divides_by_the_bytes_of_its_own_windows(tmp_path: Path):
    from repro.training.validate import Validator

    tokens = _tokens(tmp_path / "t", 256, (*"abcdefgh", "a longer text " * 40))
    validator = object.__new__(Validator)
    validator._text, validator._windows = tokens, tokens.windows(4, 0, 3)  # a letter, its end, a letter, its end …
    validator._layout = SimpleNamespace(config=SimpleNamespace(model=SimpleNamespace(seq_len=4)))
    made = validator.record(math.log(2))
    assert made == {"loss": math.log(2), "tokens": 12, "bits_per_byte": 2.0, "metric_version": 2}
    assert len(tokens) / tokens.text_bytes < 1.1  # by which it was multiplied


def _of_version(folder: Path, version: int) -> None:
    """What a summary of that version looks like: the first says none."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    for validation in summary["validations"].values():
        validation["metric_version"] = version
        if version == 1:
            del validation["metric_version"]
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")


def test_tables_tell_by_which_version_their_numbers_were_counted(tmp_path: Path):
    runs = planned()[:2]
    for run, version in zip(runs, (1, 2), strict=True):
        _of_version(finish(run, tmp_path).path, version)
    table = table_of(load("table5"), collect(runs, tmp_path))
    told = " ".join(shown(document(table)).split())
    assert "Metric versions 1 (1 run), 2 (1 run): bits a byte of a version before 2 are never compared" in told
    by_run = {line[COLUMNS.index("runs")]: line[COLUMNS.index("metric_version")] for line in csv_rows(table)}
    assert by_run[runs[0].run_id] == "1" and by_run[runs[1].run_id] == "2"
    newer = table_of(load("table5"), collect(runs[1:], tmp_path))
    assert "Metric version 2." in shown(document(newer))


def test_dashboards_show_bits_a_byte_of_another_version_under_another_name():
    config = json.loads(config_text(planned()[0].config))
    validation = {"loss": 3.0, "bits_per_byte": 2.5}
    older = curves._losses({"validations": {"outer-512": validation}}, config)
    assert older["final/bits_per_byte_of_version_1"] == 2.5
    newer = curves._losses({"validations": {"outer-512": validation | {"metric_version": 2}}}, config)
    assert newer["final/bits_per_byte"] == 2.5 and len(newer) == 3


def test_collect_keeps_a_result_of_a_newer_version(tmp_path: Path):
    path, older = tmp_path / "r.json", _finished(False)
    assert older.summary is not None
    validation = older.summary["validations"]["outer-32"] | {"metric_version": 2}
    newer = replace(older, summary=older.summary | {"validations": {"outer-32": validation}})
    save([older], path)
    assert save([newer], path).taken
    assert "of version 1, those of the result that stands there of version 2" in save([older], path).sentence


def test_every_collected_record_says_its_version():
    made = [validation for record in records("mini") for validation in record["summary"]["validations"].values()]
    assert {validation["metric_version"] for validation in made} == {2}


SPECS = {experiment.name: experiment for experiment in trained("all")}


def _said(label: str) -> Iterator[tuple[str, float]]:
    """(what, value) of each setting that a label names."""
    patterns = {
        "H": r"\bH ?= ?(\d+)",
        "τ": r"τ₂? = (\d+)",
        "layers": r"^(\d+) layers?$",
        "M": r"\bM ?= ?(\d+)",
        "α": r"α = ([\d.]+)",
        "outer": r"outer ([\d.]+)",
        "momentum": r"momentum ([\d.]+)",
        "inner": r"inner x ([\d.]+)",
    }
    for what, pattern in patterns.items():
        for found in re.findall(pattern, label):
            yield what, float(found)


def _run_with(run: PlannedRun) -> dict[str, float]:
    """The settings of a run under the names of `_said`."""
    config, sync = run.config, run.config.sync
    values: dict[str, float] = {"M": config.replicas, "inner": config.inner.learning_rate / 2**-6}
    if config.scale == "paper":
        values["inner"] = config.inner.learning_rate / SPECS["table5"].rows[0].config.inner.learning_rate
    if sync is not None:
        values |= {"H": sync.every, "τ": sync.delays[-1], "layers": sync.fragments.layers, "α": sync.mix}
        values |= {"outer": sync.outer.learning_rate, "momentum": sync.outer.momentum}
    return values


@pytest.mark.parametrize("scale", ["smoke", "mini", "paper"])
@pytest.mark.parametrize("name", SPECS)
def test_a_row_shows_the_values_that_were_run(name: str, scale: str):
    rows = {" | ".join(row.labels): row for row in SPECS[name].rows}
    for run in expand(SPECS[name], scale):
        values = _run_with(run)
        for what, value in (found for label in run.labels for found in _said(label)):
            assert values[what] == pytest.approx(value), f"{run.row} was run with {what} = {values[what]:g}"
        sync, theirs = run.config.sync, rows[run.paper_row].config.sync
        assert (sync and sync.outer) == (theirs and theirs.outer)  # at no scale another outer optimiser
        if name == "table6":
            assert sync is not None and run.labels[1:] == (str(run.config.replicas), str(sync.every))
        axis = {"figure6": "layers", "figure8": "τ", "figure10": "τ", "figure13": "H", "figure12": "M"}.get(name)
        assert axis is None or run.x == values[axis]


def test_rows_that_become_one_run_say_so_in_plan_and_table(tmp_path: Path):
    runs = expand(SPECS["figure13"], "smoke")
    planned_text = plan_text(SPECS["figure13"], "smoke")
    table_text = " ".join(shown(document(table_of(SPECS["figure13"], collect(runs, tmp_path)))).split())
    for every in (50, 100, 200, 500):
        assert re.search(rf"(h12-s\S+|the same run) +Streaming DiLoCo \| H = 12 \(for H = {every}\)", planned_text)
        assert f"Streaming DiLoCo | H = 12 (for H = {every})" in table_text
    assert "Rows that are one run" in table_text
    for experiment in SPECS.values():
        for scale in ("smoke", "mini", "paper"):
            text = plan_text(experiment, scale)
            assert all(f"{run.full_row}\n" in text for run in expand(experiment, scale))


def test_what_a_scale_leaves_out_is_told():
    why = dict(left_out(SPECS["tuning"], "smoke"))
    assert why["35M | DiLoCo H=30 | outer 0.2, momentum 0.6"] == "left out of its grid at scale smoke"


@pytest.mark.parametrize("scale", ["smoke", "mini"])
def test_what_a_scale_leaves_out_decides_no_claim_and_stops_no_table(scale: str, tmp_path: Path):
    for experiment in SPECS.values():
        table = table_of(experiment, collect(expand(experiment, scale), tmp_path))
        assert judgement_grids(table) == ()
