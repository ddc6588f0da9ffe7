"""Run ids: a golden file of all of them, and the rules that keep them stable."""

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import tiny

from experiments.registry import experiment_names, load
from repro.errors import UserError
from repro.spec.config import SCALES, CodecConfig, RunConfig, SyncConfig, later
from repro.spec.experiment import Experiment, PlannedRun, expand
from repro.spec.identity import MAX_ID, canonical, config_text, differences, from_json, run_id

GOLDEN = Path(__file__).parents[1] / "golden" / "ids.txt"
RUN = tiny.run_config(tiny.synced())


def all_runs() -> list[tuple[str, str, PlannedRun]]:
    specs = [(name, load(name)) for name in experiment_names()]
    return [
        (name, scale, run)
        for name, spec in specs
        if isinstance(spec, Experiment)
        for scale in SCALES
        for run in expand(spec, scale)
    ]


def test_ids_are_the_golden_ones() -> None:
    text = "".join(f"{name} | {scale} | {run.row} | {run.run_id}\n" for name, scale, run in all_runs())
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text, encoding="utf-8")
    ours, golden = text.splitlines(), GOLDEN.read_text(encoding="utf-8").splitlines()
    moved = [f"- {a}" for a in golden if a not in set(ours)] + [f"+ {b}" for b in ours if b not in set(golden)]
    assert ours == golden, (
        "Run ids differ from tests/golden/ids.txt, so finished runs would be run again:\n"
        + "\n".join(moved[:20])
        + "\nIf that is meant, UPDATE_GOLDEN=1 rewrites the file; a new field should be `later(neutral)`."
    )


def test_ids_are_short_plain_and_one_to_one() -> None:
    texts: dict[str, str] = {}
    for _, scale, run in all_runs():
        assert re.fullmatch(r"[a-z0-9-]+-[0-9a-f]{8}", run.run_id)
        assert len(run.run_id) <= MAX_ID
        assert run.config.scale == scale
        assert texts.setdefault(run.run_id, config_text(run.config)) == config_text(run.config)


def test_every_config_comes_back_from_its_text() -> None:
    for _, _, run in all_runs():
        back = from_json(RunConfig, json.loads(config_text(run.config)))
        assert back == run.config
        assert run_id(back) == run.run_id


CHANGES = [
    replace(RUN, seed=1),
    replace(RUN, steps=13),
    replace(RUN, model=replace(RUN.model, z_loss=0.0)),
    replace(RUN, inner=replace(RUN.inner, eps=1e-8)),
    replace(RUN, sync=replace(RUN.sync, mix=0.25)),
    replace(RUN, sync=replace(RUN.sync, delays=(1, 2))),
    replace(RUN, sync=replace(RUN.sync, outer=replace(tiny.NESTEROV, momentum=0.8))),
    replace(RUN, sync=replace(RUN.sync, frozen=True)),
]


def test_any_change_changes_the_id() -> None:
    assert len({run_id(config) for config in [RUN, *CHANGES]}) == 1 + len(CHANGES)


def test_an_integer_in_a_float_field_is_the_same_run() -> None:
    whole = replace(RUN, sync=replace(RUN.sync, mix=1))
    assert run_id(whole) == run_id(replace(RUN, sync=replace(RUN.sync, mix=1.0)))
    assert differences(whole, replace(RUN, sync=replace(RUN.sync, mix=1.0))) == []


def test_a_later_field_is_left_out_while_neutral() -> None:
    @dataclass(frozen=True)
    class Old:
        a: int

    @dataclass(frozen=True)
    class New:
        a: int
        b: str = later("none")

    assert canonical(New(1)) == canonical(Old(1)) == {"a": 1}
    assert canonical(New(1, "some")) == {"a": 1, "b": "some"}
    assert "keep" not in config_text(RUN)
    assert "frozen" not in config_text(RUN)
    assert "offset_sign" in config_text(RUN)  # a plain default is part of the id


@pytest.mark.parametrize(
    "value", [np.float32(1), np.int64(1), [1], {"a": 1}, {1}, float("nan"), float("inf"), b"x", Path("x")]
)
def test_what_has_no_canonical_form_raises(value: object) -> None:
    with pytest.raises(TypeError, match="no canonical form"):
        canonical(value)


def test_unknown_and_missing_fields_are_one_sentence() -> None:
    data = json.loads(config_text(RUN))
    with pytest.raises(UserError, match=r"config\.sync has no field 'tau': known fields are every, delays"):
        from_json(RunConfig, {**data, "sync": {**data["sync"], "tau": 1}})
    with pytest.raises(UserError, match="config has no field 'speed'"):
        from_json(RunConfig, {**data, "speed": 1})
    with pytest.raises(UserError, match="config lacks the field 'batch'"):
        from_json(RunConfig, {name: value for name, value in data.items() if name != "batch"})
    with pytest.raises(UserError, match=r"config\.every=0"):
        from_json(SyncConfig, {**data["sync"], "every": 0})
    assert from_json(CodecConfig, {"format": "e3m0"}) == CodecConfig("e3m0")


def test_differences_name_the_fields() -> None:
    other = replace(RUN, seed=3, sync=replace(RUN.sync, codec=CodecConfig("e3m0", drop="topk", keep=0.5)))
    assert differences(RUN, other) == [
        ("seed", 0, 3),
        ("sync.codec.drop", "(absent)", "topk"),
        ("sync.codec.format", "float32", "e3m0"),
        ("sync.codec.keep", "(absent)", 0.5),
    ]
    alone = tiny.run_config(None, replicas=1)
    assert ("sync", "(absent)", None) in differences(RUN, alone)
    assert differences(RUN, RUN) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch": "8"}, "config.batch='8': give a whole number from 1"),
        ({"batch": True}, "config.batch=True: give a whole number"),
        ({"model": 3}, "config.model=3 is not an object"),
        ({"corpus": 1}, "config.corpus=1: give mini, smoke, c4 or dolma"),
    ],
)
def test_a_value_of_the_wrong_type_is_one_sentence(change: dict, said: str) -> None:
    data = json.loads(config_text(tiny.run_config(sync=tiny.synced()))) | change
    with pytest.raises(UserError, match=re.escape(said)):
        from_json(RunConfig, data)
