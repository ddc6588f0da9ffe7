"""What is kept of compiled programs, and how it is shown: no compiler runs here."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import repro.machines.programs
from analysis import render
from analysis.pages.compiled import compiled_document, compiled_json
from experiments.registry import load
from experiments.streaming.base import data_parallel, diloco, streaming
from repro.commands.cli import main
from repro.machines.compile import Bytes, Compiled, Tried
from repro.machines.placement import GIB, place
from repro.machines.programs import DoesNotFit, Program, ProgramMemory, Programs, _shortage
from repro.machines.transfers import Schedule, Transfer
from repro.spec.actions import Action, involved
from repro.spec.config import RunConfig
from repro.spec.experiment import PlannedRun, expand
from repro.spec.fragments import cut
from repro.training.state import Layout

MEMORY = ProgramMemory(arguments=GIB, outputs=GIB, aliased=GIB, temporaries=3 * GIB, code=0, resting=GIB, host=0)
GATHER = Transfer("ALL_GATHER", "u8", (1, 60), 2, 1, 3, 9, independent=True)
SEND = Program("send, apply: 3 layers", "aaa", 2, 61.0, MEMORY, Schedule(12, 5, 7, (GATHER,)))
QUIET = Program("inner step", "bbb", 28, 59.0, MEMORY, Schedule(12, 5, 7, ()))


def synced(sync: Any, **changes: Any) -> RunConfig:
    return replace(data_parallel("35M"), sync=sync, replicas=2, **changes)


def layout(config: RunConfig) -> Layout:
    return Layout(config, place(config).resources, None)  # pyright: ignore[reportArgumentType]


def form(config: RunConfig, actions: tuple[Action, ...]) -> Any:
    return layout(config).recipe.of_program(actions).form


class Lowering:
    """In place of a Stepper: programs that are only counted."""

    def __init__(self, config: RunConfig) -> None:
        self.layout, self.lowered = layout(config), 0

    def lower(self, actions: tuple[Action, ...]) -> Any:
        self.lowered += 1
        return SimpleNamespace(as_text=lambda: f"{actions} of {self.layout.config.model.layers} layers")


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys that were compiled; programs of 9 layers don't fit."""
    keys: list[str] = []

    def compiled(lowered: Any, name: str, key: str) -> Program | DoesNotFit:
        keys.append(key)
        return (
            DoesNotFit(f"{name}: too large", 17 * GIB) if "9 layers" in lowered.as_text() else replace(QUIET, key=key)
        )

    monkeypatch.setattr(repro.machines.programs, "compile_program", compiled)
    monkeypatch.setattr(repro.machines.programs, "versions", lambda: {"jax": "1"})
    return keys


def test_runs_share_what_they_have_in_common() -> None:
    """The inner step of DiLoCo is Streaming's; H, τ, α and rates change no program, a codec and a model do."""
    plain = streaming(30)
    inner = form(synced(plain), ())
    assert form(synced(diloco(30)), ()) == inner
    send = (Action((3, False), send=True, parts=1, apply=True, mix=True),)
    sent = form(synced(plain), send)
    for same in (
        streaming(100),
        replace(plain, mix=0.1),
        replace(plain, outer=replace(plain.outer, learning_rate=0.1)),
    ):
        assert form(synced(same, seed=3), send) == sent
    other = replace(plain, codec=replace(plain.codec, format="int4"))
    assert form(synced(other), send) != sent
    assert form(synced(other), ()) == inner
    assert form(synced(replace(plain, frozen=True)), ()) != inner
    assert form(replace(data_parallel("100M"), sync=plain, replicas=2), ()) != inner


def test_a_program_is_compiled_once(compiler: list[str], tmp_path: Path) -> None:
    kept = Programs(tmp_path)
    one = Lowering(synced(streaming(30)))
    first = kept.get(one, (), "v5e:2x2", 2)  # pyright: ignore[reportArgumentType]
    assert kept.get(Lowering(synced(streaming(100))), (), "v5e:2x2", 2) == first  # pyright: ignore[reportArgumentType]
    assert len(compiler) == 1
    later = Programs(tmp_path)  # of another process
    assert later.get(one, (), "v5e:2x2", 2) == first  # pyright: ignore[reportArgumentType]
    assert (len(compiler), one.lowered) == (1, 2)
    later.get(one, (), "v5e:4x4", 2)  # pyright: ignore[reportArgumentType]
    assert len(compiler) == 2 and len(set(compiler)) == 2


def test_what_did_not_fit_is_kept_too(compiler: list[str], tmp_path: Path) -> None:
    large = Lowering(replace(data_parallel("100M"), sync=streaming(30), replicas=2))
    for kept in (Programs(tmp_path), Programs(tmp_path)):
        with pytest.raises(DoesNotFit, match="too large") as caught:
            kept.get(large, (), "v5e:2x2", 2)  # pyright: ignore[reportArgumentType]
        assert caught.value.needed_bytes == 17 * GIB
    assert len(compiler) == 1


@pytest.mark.parametrize(
    ("sentence", "needed", "words"),
    [
        ("RESOURCE_EXHAUSTED: Used 20.25G of 15.75G hbm. Exceeded hbm capacity by 4.50G.", 20.25, "4.50 GiB more"),
        (
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (19.36G) "
            "exceeds available HBM (15.75G).",
            19.36,
            "19.36 GiB for temporaries alone of 15.75, 3.61 GiB more",
        ),
    ],
)
def test_a_shortage_is_read_from_the_compilers_words(sentence: str, needed: float, words: str) -> None:
    found = _shortage("inner step", sentence)
    assert words in str(found)
    assert found.needed_bytes == pytest.approx(needed * GIB)


def test_a_new_sentence_of_the_compiler_is_an_error() -> None:
    with pytest.raises(ValueError, match="new one"):
        _shortage("inner step", "RESOURCE_EXHAUSTED: no room")


def shown(*, fits: bool) -> dict[str, Any]:
    config = synced(streaming(30))
    placed = place(config)
    run = PlannedRun(("35M", "Streaming"), "35M | Streaming", config, "35m-stream")
    tried = (Tried(replace(placed.resources, microbatches=1), GIB, "inner step: 20.00 GiB"),)
    counted = Bytes(rule=100.0, payload=120, collective=120.0, hlo=126, moved=126.0)
    programs = (SEND, QUIET) if fits else ()
    found = Compiled(placed.resources, 2 * GIB, tried, programs, 30, counted if fits else None, 1e9)
    return json.loads(
        json.dumps(
            compiled_json([(run, placed, found), (run, placed, found)], {"versions": {"jax": "1", "libtpu": "2"}})
        )
    )


def test_the_document_is_made_from_the_json() -> None:
    found = shown(fits=True)
    assert list(found["programs"]) == ["aaa", "bbb"]
    text = render.terminal_text(compiled_document("35M", found, {"35m-stream": found["runs"][0]["batch_tokens"]}))
    for words in ("jax 1, libtpu 2", "2 runs, 2 programs, 2 minutes", "1.05000", "28 of 30", "It fits as 2x1x8"):
        assert words in text
    assert "2x1x8, flash: inner step: 20.00 GiB" in text and "compiled at a batch" not in text


def test_a_record_of_another_batch_says_so() -> None:
    text = render.terminal_text(compiled_document("35M", shown(fits=True), {"35m-stream": 2**18}))
    assert (
        text.count("compiled at a batch of 2^16, now 2^18") == 2 and "2 runs of these were compiled at a batch" in text
    )


def test_a_run_that_nothing_fits_is_told() -> None:
    text = render.terminal_text(compiled_document("35M", shown(fits=False), {}))
    assert "Nothing tried fits" in text and "Transfers" not in text


def test_the_rule_is_shown_without_compiling(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "table5", "--rule", "--run", "4b"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all("2 x v5e:8x8" in line for line in lines[1:])
    assert main(["compile", "table5", "--rule", "--run", "1b", "--topology", "v5e:16x16", "--slices", "2"]) == 0
    assert "a sequence on 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["table5", "--slices", "2"], "go with a --topology"),
        (["table5", "--topology", "v9:4x4"], "v5e:4x4"),
        (["table5", "--topology", "v5e:4x4", "--slices", "0"], "--slices: give a whole number from 1"),
        (["table5", "--topology", "v5e:4x4", "--microbatches", "3"], "microbatches=3"),
        (["table5", "--run", "9b"], "begins with '9b'"),
        (["table4"], "table4 has nothing to train"),
        (["tabel5"], "table5"),
    ],
)
def test_what_cannot_be_compiled_is_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", *words]) == 2
    said = capsys.readouterr()
    assert sentence in said.err and not said.out


def test_fragments_that_take_turns_share_their_programs():
    """Three layers leave first and three others land, or the other way round: one program, not one for each order."""
    counts = {}
    for run in expand(load("figure8"), "paper"):
        sync = run.config.sync
        assert sync is not None
        fragments = cut(sync.fragments, run.config.model.layers)
        steps = [involved(sync, fragments, run.config.replicas, step) for step in range(1, 3 * sync.every + 1)]
        keys = {tuple(item.action for item in items) for items in steps}
        assert len(keys) == len({frozenset(Counter(key).items()) for key in keys})
        assert all(len({item.fragment for item in items}) == len(items) for items in steps)
        counts[sync.delays, sync.mix] = len(keys)
    assert counts[(20,), 0.5] == 18
