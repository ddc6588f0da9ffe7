"""Values that can't be: each field of a config, of launch.toml and of resources, and each option of a command.

A value is refused in one sentence that names it, with exit code 2, before anything is written; never in a traceback,
and never by a hang. The oracle is the table itself: what a field may hold is written here again, by hand.
"""

import argparse
import json
import tomllib
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import launch_rig
import pytest
import tiny

from repro.commands import cli
from repro.diloco.resources import Resources
from repro.errors import UserError
from repro.files import read_json
from repro.launch import slurm
from repro.launch.slurm import SlurmSettings
from repro.launch.xpk_jobs import PodSettings
from repro.launch.xpk_program import create_workload, require
from repro.spec.config import RunConfig
from repro.spec.identity import config_text, from_json, run_id

RUN = tiny.run_config(tiny.synced(every=4, delays=(1, 2)))
NOT_A_NUMBER = ["8", True, None, [], {}, float("nan"), float("inf")]
NOT_COUNTED = [*NOT_A_NUMBER, -1, 1.5, 10**12, 10**30]
NOT_A_WORD = ["", "wiki", " smoke", "smoke\n", "sm\0ke", 3, None, ["smoke"]]
NOT_FROM_0_TO_1 = [*NOT_A_NUMBER, -0.1, 1.1, -(10**30)]
# field -> what it must refuse
WRONG: dict[str, list[Any]] = {
    "scale": NOT_A_WORD,
    "model": [3, None, [], "tiny"],
    "model.size": ["", "/x", "a/b", "..", "-x", "a b", "a\0b", "ü", "x" * 300, 3, None],
    "model.layers": [*NOT_COUNTED, 0, 10**7],
    "model.ffn_width": [*NOT_COUNTED, 0, -64, 30],
    "model.heads": [*NOT_COUNTED, 0, 3],
    "model.vocab": [*NOT_COUNTED, 0, 1],
    "model.seq_len": [*NOT_COUNTED, 0],
    "model.compute_dtype": [*NOT_A_WORD, "float16"],
    "model.z_loss": [*NOT_A_NUMBER, -1e-4],
    "model.positions": [*NOT_A_WORD, "rotary"],
    "inner": [3, None, []],
    "inner.learning_rate": [*NOT_A_NUMBER, 0, -0.1, 1e300],
    "inner.warmup_steps": [*NOT_COUNTED, 10**9, RUN.steps + 1],
    "inner.final_fraction": NOT_FROM_0_TO_1,
    "inner.beta1": [*NOT_FROM_0_TO_1, 1],
    "inner.beta2": [*NOT_FROM_0_TO_1, 1],
    "inner.eps": [*NOT_A_NUMBER, 0, -1e-8],
    "inner.weight_decay": [*NOT_A_NUMBER, -0.1],
    "inner.clip_norm": [*NOT_A_NUMBER, 0, -1],
    "inner.schedule_steps": NOT_COUNTED,
    "sync": [3, [], "none"],
    "sync.every": [*NOT_COUNTED, 0, 10**9],
    "sync.delays": [None, "11", {}, [[1]], [], [1, -1], [1.0], ["1"], [True], [None], 1, [4], [1, 1, 1], [10**30]],
    "sync.mix": NOT_FROM_0_TO_1,
    "sync.fragments": [3, None, []],
    "sync.fragments.pattern": [*NOT_A_WORD, "random"],
    "sync.fragments.layers": [*NOT_COUNTED, 0, 4],
    "sync.fragments.embedding": [*NOT_A_WORD, "split"],
    "sync.codec": [3, None, [], "e3m0"],
    "sync.codec.format": [*NOT_A_WORD, "e9m9"],
    "sync.codec.scale": [*NOT_A_WORD, "block", "block:", "block:0", "block:-4", "block:٤", "block:" + "9" * 30],
    "sync.codec.drop": [*NOT_A_WORD, "random"],
    "sync.codec.keep": [*NOT_FROM_0_TO_1, 0],
    "sync.outer": [3, None, []],
    "sync.outer.optimizer": [*NOT_A_WORD, "lion"],
    "sync.outer.learning_rate": [*NOT_A_NUMBER, -0.4],
    "sync.outer.momentum": [*NOT_FROM_0_TO_1, 1],
    "sync.outer.beta1": [*NOT_FROM_0_TO_1, 1],
    "sync.outer.beta2": [*NOT_FROM_0_TO_1, 1],
    "sync.outer.eps": [*NOT_A_NUMBER, 0, -1e-8],
    "sync.offset_sign": [*NOT_A_NUMBER, 0, 2, -2],
    "sync.first_sync": [*NOT_A_WORD, "never"],
    "sync.flush": [*NOT_A_WORD, "first", True],
    "sync.frozen": ["false", 0, 1, None],
    "replicas": [*NOT_COUNTED, 0, 3],
    "corpus": ["", "wiki", "c4\n", "../c4", 3, None, ["c4"]],
    "batch": [*NOT_COUNTED, 0, 5],
    "steps": [*NOT_COUNTED, 0],
    "seed": NOT_COUNTED,
    "repeat_data": ["no", 0, None],
}


def every_field(kind: type = RunConfig, prefix: str = "") -> list[str]:
    hints, names = get_type_hints(kind), []
    for field in fields(kind):
        names.append(f"{prefix}{field.name}")
        parts = [part for part in (hints[field.name], *get_args(hints[field.name])) if is_dataclass(part)]
        names += every_field(parts[0], f"{prefix}{field.name}.") if parts else []
    return names


def test_every_field_of_a_config_is_in_the_table() -> None:
    assert sorted(WRONG) == sorted(every_field())


def with_value(name: str, value: Any) -> dict[str, Any]:
    """The config's JSON with one field changed."""
    content = json.loads(config_text(RUN))
    *parts, last = name.split(".")
    inside = content
    for part in parts:
        inside = inside[part]
    inside[last] = value
    return content


@pytest.mark.parametrize("name", WRONG)
def test_a_field_of_a_config_refuses(name: str) -> None:
    for value in WRONG[name]:
        with pytest.raises(UserError) as caught:
            from_json(RunConfig, with_value(name, value))
        said = str(caught.value)
        assert said.startswith("config.") and f"{name.rpartition('.')[2]}=" in said, (value, said)
        assert said.endswith(".") and "\n" not in said and len(said) < 250, (value, said)


def test_a_refusal_says_what_is_right() -> None:
    table: list[tuple[str, Any, str]] = [
        ("sync.codec.format", "e9m9", "config.sync.codec.format='e9m9': give float32, bfloat16, float8_e4m3"),
        ("corpus", "wiki", "config.corpus='wiki': give mini, smoke, c4 or dolma."),
        ("model.layers", 10**7, "config.model.layers=10000000: give a whole number from 1 to 1,000."),
        ("inner.final_fraction", -1, "config.inner.final_fraction=-1: give a number from 0 to 1."),
        ("sync.delays", [[1]], "config.sync.delays=([1],): give a list of delays in [0, H), one or one a replica."),
        ("sync", 3, "config.sync=3 is not an object: give its fields, every, delays"),
        ("inner.warmup_steps", 13, "config.inner.warmup_steps=13 of steps=12: a run is at least as long"),
    ]
    for name, value, sentence in table:
        with pytest.raises(UserError) as caught:
            from_json(RunConfig, with_value(name, value))
        assert str(caught.value).startswith(sentence)


def test_whole_numbers_in_fields_of_numbers_are_taken() -> None:
    whole = from_json(RunConfig, with_value("sync.mix", 1))
    assert run_id(whole) == run_id(from_json(RunConfig, with_value("sync.mix", 1.0)))


def test_a_config_made_in_python_is_checked_as_one_that_is_read() -> None:
    for change in ({"model": json.loads(config_text(RUN))["model"]}, {"sync": None}, {"batch": 4.0}, {"seed": "0"}):
        with pytest.raises(UserError):
            replace(RUN, **change)
    with pytest.raises(UserError, match=r"delays=\[1\]"):
        tiny.synced(delays=[1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[1,]", "NaN", '{"loss": NaN}', '{"loss": -Infinity}', '{"loss": 1e999}', '"\\ud800"', '"\udcff"'),
        *("[" * 100_000, '{"a": ' * 100_000, "9" * 5_000),
    ],
    ids=lambda text: text[:12],
)
def test_what_is_no_json_is_one_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match="is not JSON") as caught:
        read_json(path)
    assert "\n" not in str(caught.value)


def options_of_all_commands() -> list[tuple[str, argparse.Action]]:
    (commands,) = (a for a in cli._parser()._actions if isinstance(a, argparse._SubParsersAction))
    return [(name, action) for name, parser in commands.choices.items() for action in parser._actions]


def test_each_option_that_takes_a_number_says_which() -> None:
    seen = 0
    for command, action in options_of_all_commands():
        assert action.type not in (int, float), (command, action.dest)
        if not getattr(action.type, "__qualname__", "").startswith("option."):
            continue
        try:
            number = isinstance(action.type("5"), int | float)
        except argparse.ArgumentTypeError:
            number = action.dest == "target"  # between 0 and 1
        for word in ["", "a\nb", *("x", "nan", "inf", "-inf", "1e999", "-1", "9" * 5_000, "1;2") * number]:
            with pytest.raises(argparse.ArgumentTypeError, match="give "):
                action.type(word)
        seen += number
    assert seen > 50


SIMULATED = ["simulate", "--params", "7e9", "--layers", "8", "--step-time", "1", "--bandwidth", "1"]
PODS = ["launch", "table5", "--engine", "xpk"]
LIST = "give some of hellaswag,piqa,arc_easy_validation,arc_easy, each once"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "x", "--devices", "0"], "--devices: give a whole number from 1 to 4,096, not '0'"),
        (["train", "x", "--devices", "-1"], "--devices: give a whole number from 1"),
        (["train", "x", "--meet-within", "inf"], "--meet-within: give a number above 0 to 10,000,000, not 'inf'"),
        (["train", "x", "--coordinator", "nonsense"], "--coordinator: give HOST:PORT with a port from 1 to 65535"),
        (["train", "x", "--coordinator", "host:0"], "--coordinator: give HOST:PORT"),
        (["train", "x", "--coordinator", "host:65536"], "--coordinator: give HOST:PORT"),
        (["train", "x", "--coordinator", "-x:80"], "--coordinator"),
        (["train", "x", "--replica", "0"], "--replica: give a whole number from 1"),
        (["train", "x", "--sequence", "0"], "--sequence: give a whole number from 1"),
        (["train", "x", "--remat", "foo"], "--remat: give none, dots or full, not 'foo'"),
        (["train", "x", "--attention", "foo"], "--attention: give xla or flash"),
        (["train", "x", "--checkpoint-every", "0"], "--checkpoint-every: give a whole number from 1"),
        (["evaluate", "table5", "--tasks", "foo"], f"{LIST}, not 'foo'"),
        (["evaluate", "table5", "--tasks", "piqa,piqa"], LIST),
        (["evaluate", "table5", "--tasks", ","], LIST),
        (["evaluate", "table5", "--limit", "0"], "--limit: give a whole number from 1"),
        (["prepare", "c4", "--vocab", "0"], "--vocab: give a whole number from 1"),
        (
            ["prepare", "dolma", "--validation-per-mille", "0"],
            "--validation-per-mille: give a whole number from 1 to 999",
        ),
        (["prepare", "c4", "--seed", "-1"], "--seed: give a whole number from 0"),
        (["plan", "table5", "--scale", "MINI"], "--scale: give paper, mini, small or smoke, not 'MINI'"),
        (["diff", "", ""], "run: give an id or its beginning"),
        (["extend", "", "--steps", "1"], "run: give an id or its beginning"),
        (["lm-eval", "", "--tasks", "piqa"], "run: give an id or its beginning"),
        (["evaluate", ""], "an empty run id"),
        (["export", ""], "an empty run id"),
        (["compile", ""], "unknown experiment ''"),
        (["compile", "*"], "unknown experiment '*'"),
        (["compile", "/nowhere/x"], "unknown experiment '/nowhere/x'"),
        (["status", "--root", __file__], f"{__file__} is no folder: give with --root where the runs lie."),
        (["build", "table5", "--root", __file__], f"{__file__} is no folder"),
        (["launch", "table5", "--run", ""], "--run: give an id or its beginning"),
        (["compile", "table5", "--run", "", "--rule"], "--run: give an id or its beginning"),
        (["compile", "table5", "--topology", "v5e:٤x٤", "--rule"], "topology 'v5e:٤x٤': name the chip and the sides"),
        (["plan"], "the following arguments are required: experiment; see `python -m repro plan --help`."),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_a_wrong_option_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(words, said, tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["simulate", "--table4", "--plot", "x.png"], "--plot without effect: --table4 is the paper's table"),
        (["simulate", "--table4", "--params", "7e9", "--tau", "3"], "--params, --tau without effect"),
        (
            [*SIMULATED, "--method", "diloco", "--fragment-layers", "2"],
            "--fragment-layers without effect: diloco sends",
        ),
        ([*SIMULATED, "--method", "diloco", "--pattern", "sequential"], "--pattern without effect"),
        ([*SIMULATED, "--method", "data-parallel", "--every", "30"], "--every without effect"),
        (["status", "--scale", "paper"], "--scale without effect: they say which runs an experiment has"),
        (["status", "--seeds", "3"], "--seeds without effect"),
        (["status", "table5", "--watch", "--json"], "--json without effect"),
        (["train", "x", "--scale", "paper"], "--scale without effect: they say which runs --experiment has"),
        (["train", "x", "--seeds", "3"], "--seeds without effect"),
        (["train", "x", "--meet-within", "60"], "--meet-within without effect: one process meets no other"),
        (["launch", "table5", "--out", "x"], "--out without effect: only --dry-run writes there"),
        (["launch", "table5", "--settings", "x.toml"], "--settings without effect: they are for jobs"),
        (["launch", "table5", "--run", "35m"], "--run without effect: they are for jobs, of --engine xpk or slurm"),
        (["launch", "table5", "--nodes", "2"], "--nodes without effect: --engine slurm takes it, not local"),
        ([*PODS, "--gpus-per-node", "2"], "--gpus-per-node without effect: --engine slurm takes it, not xpk"),
        ([*PODS, "--out", "x"], "--out without effect: only --dry-run writes there"),
        ([*PODS, "--workers", "2"], "--workers without effect: each run is a job of its own"),
        ([*PODS, "--eval", "full"], "--eval without effect"),
        ([*PODS, "--takeover-after", "9"], "--takeover-after without effect"),
        ([*PODS, "--dry-run", "--retry-failed"], "--retry-failed without effect"),
        (["evaluate", "table5", "--eval", "full", "--tasks", "piqa"], "--eval without effect"),
        (["run", "figure8", "--eval", "full"], "--eval without effect: nothing of figure8 is scored"),
        (["evaluate", "mini-45k", "--seeds", "3"], "--seeds without effect"),
        (["export", "mini-45k", "--scale", "paper"], "--scale without effect"),
        (["export", "table5", "--to", "tensorboard", "--cache", "x"], "--cache without effect"),
        (["compile", "table5", "--rule", "--out", "x"], "--out without effect: --rule compiles and writes nothing"),
        (["compile", "table5", "--rule", "--cache", "x"], "--cache without effect"),
        (["compile", "table5", "--rule", "--root", "x"], "--root without effect"),
        (["build", "table4", "--scale", "smoke"], "--scale without effect: table4 is made without"),
        (["build", "figure1", "--seeds", "3", "--own"], "--seeds, --own without effect"),
        (["build", "claims", "--scale", "smoke"], "--scale without effect"),
        (["build", "figure8", "--eval", "full"], "--eval without effect"),
        (["build", "table5", "--cache", "x"], "unrecognized arguments: --cache x; see `python -m repro build --help`."),
        (["report", "--cache", "x"], "unrecognized arguments: --cache x; see `python -m repro report --help`."),
        (["collect", "table5", "--cache", "x"], "--cache x; see `python -m repro collect --help`."),
        (["diff", "x", "y", "--cache", "x"], "--cache x; see `python -m repro diff --help`."),
        (["plan", "table5", "--sacle", "mini"], "--sacle mini (is --scale meant?); see `python -m repro plan --help`."),
        (["status", "--root=x", "--watsh"], "--watsh (is --watch meant?); see `python -m repro status --help`."),
        (["prepare", "mini", "--workers", "2"], "--workers without effect: only c4 and dolma take this, not mini."),
        (
            ["prepare", "c4", "--eos", "x"],
            "--eos without effect: a tokenizer that is trained",
        ),
        (
            ["prepare", "c4", "--tokenizer", "m.model", "--seed", "3"],
            "--seed without effect: c4 has a split",
        ),
    ],
    ids=lambda value: " ".join(value)[-60:] if isinstance(value, list) else "",
)
def test_an_option_without_effect_is_refused(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(words, said, tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "config=[1] is not an object: give its fields"),
        ('"text"', "config='text' is not an object: give its fields"),
        ('{"speed": 1}', "config has no field 'speed'"),
    ],
)
def test_a_config_that_is_none_is_named_with_its_file(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "list.json").write_text(text, encoding="utf-8")
    assert cli.main(["train", str(tmp_path / "list.json"), "--root", str(tmp_path / "runs")]) == 2
    assert capsys.readouterr().err.startswith(f"repro: {tmp_path / 'list.json'}: {said}")
    assert not (tmp_path / "runs").exists()


def refused(
    words: list[str], said: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends with 2 and the one sentence, and leaves nothing in an empty folder."""
    monkeypatch.chdir(folder)
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert said in err and err.startswith("repro: ") and err.count("\n") == 1 and not out
    assert not list(folder.iterdir())


RESOURCES: dict[str, list[Any]] = {
    **{key: [*NOT_COUNTED, 0] for key in ("replica", "data", "fsdp", "microbatches", "sequence")},
    "remat": [*NOT_A_WORD, "foo"],
    "attention": [*NOT_A_WORD, "foo"],
    **{key: [0, 1, "no", None] for key in ("unroll", "outer_on_host", "fence")},
}


def test_every_field_of_resources_refuses() -> None:
    assert set(RESOURCES) == {field.name for field in fields(Resources)}
    for name, values in RESOURCES.items():
        for value in values:
            with pytest.raises(UserError, match=rf"^{name}=.*: give .*\.$"):
                Resources(**{name: value})


NO_WORD = ["", " ", "--delete", "-x", "a b", "a\nb", "a\0b", "\n", "x" * 300, "ü", 3, True, None, [], {}]
# setting -> what it must refuse
SETTINGS: dict[str, list[Any]] = {
    **{name: NO_WORD for name in ("project", "zone", "cluster", "image")},
    "root": [
        *NO_WORD,
        "runs",
        "/runs",
        "gs://",
        "gs://b",
        "gs://b/",
        "gs:///runs",
        "gs://bucket/",
        "gs://bucket//",
        "gs://bucket/..",
        "gs://bucket/a//b",
        "gs://-b-/runs",
        "gs://Bucket/runs",
        "gs://bucket/a b",
        "s3://bucket/runs",
    ],
    "cache": [*NO_WORD, "tokens", "~/tokens", "gs://bucket/tokens", "/a\0b", "/a\nb"],
    "storage": ["tokens", [1], [""], ["--x"], [None], [["a"]], ["a b"], {}, 3, None],
    "topology": ["", "--x", "v5e:4x4\n", 4, []],
    "slices": [0, -1, 1.5, True, "4", 10**20, []],
    "capacity": [*NO_WORD, "--spot"],
    "priority": ["", "urgent", "Medium", "medium\n", 1, None, []],
    "restarts": [0, -1, 1.5, True, "9", 10**20, None, float("inf"), float("nan")],
    "meet_within_s": [0, -1, 1.5, True, "9", 10**20, None, float("inf")],
    "grace_s": [0, -1, 1.5, True, "9", 10**20, None, float("inf")],
    "keep_s": [-1, 1.5, True, "9", 10**20, None],
    "xpk": ["", " ", "--help", "a\0b", "a\nb", 3, None, []],
}


NO_PATH = ["", " ", "runs", "gs://b/runs", "/a b", "/a\nb", "/a;b", "/a%j", "/$HOME", "/a\0b", "/ü", 3, []]
SLURM: dict[str, list[Any]] = {
    "time": ["", "soon", "24", "24:00", "1-24", "24:00:60", "24:61:00", "-1:00:00", "24:00:00\n", 24, None],
    "nodes": [0, -1, 1.5, True, "4", 10**20, None],
    "gpus_per_node": [-1, 1.5, True, "4", 65, None],
    "root": [*NO_PATH, None],
    "cache": [*NO_PATH, None],
    **{name: [word for word in NO_WORD if word is not None] for name in ("partition", "account")},
    "checkout": NO_PATH,
    "container": ["", " ", "--x", "a b", "a;b", "a\nb", "$x", 3, []],
    "python": ["", " ", "-c", "a b", "a;b", "a\nb", "$x", 3, []],
    "cpus_per_task": [0, -1, 1.5, True, "4", 10**20, []],
    "platform": ["", "tpu", "CUDA", "cuda\n", None],
    "sbatch": ["--qos=high", ["qos"], ["-n"], ["--x y"], ["--x=`y`"], ["--x\n"], [3], 3, None],
    "restarts": SETTINGS["restarts"],
    "meet_within_s": SETTINGS["meet_within_s"],
    "grace_s": [*SETTINGS["grace_s"], 65_536],
}


def test_every_setting_of_slurm_refuses() -> None:
    assert set(SLURM) == {field.name for field in fields(SlurmSettings)}
    example = tomllib.loads(slurm.EXAMPLE)
    for name, values in SLURM.items():
        for value in values:
            with pytest.raises(UserError, match=rf"^{name}=.*: give .*\.$"):
                SlurmSettings(**{**example, name: tuple(value) if isinstance(value, list) else value})


def test_every_setting_refuses() -> None:
    assert set(SETTINGS) == {field.name for field in fields(PodSettings)}
    for name, values in SETTINGS.items():
        for value in values:
            if value is not None or name not in ("topology", "slices"):
                with pytest.raises(UserError, match=rf"^{name}=.*: give .*\.$"):
                    PodSettings(**{**launch_rig.SETTINGS, name: tuple(value) if isinstance(value, list) else value})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('root = "gs://b/"', "root='gs://b/': give gs://BUCKET/PATH"),
        ("storage = [1]", "storage=(1,): give a list, each a name of letters"),
        ("restarts = nan", "restarts=nan: give a whole number from 1 to 1,000,000"),
        ("restarts = 99999999999999999999", "restarts=99999999999999999999: give a whole number"),
        ("grace_s = 2026-01-01", "grace_s=datetime.date(2026, 1, 1): give a whole number from 1 to 86,400"),
        ('project = "a\\u0000b"', "project='a\\x00b': give a name"),
        ("topology = 'v5e:٤x٤'", "topology='v5e:٤x٤': give a name"),
        ("topology = 'v5e:4x0'", "topology 'v5e:4x0': name the chip and the sides"),
        ("x = " + "[" * 100_000, "is not TOML"),
        ("project = 'a'\nproject = 'b'", "is not TOML"),
        ("[project]\nname = 'x'", "project={'name': 'x'}: give a name"),
    ],
    ids=lambda text: text[:30],
)
def test_a_setting_that_can_not_be_is_one_sentence(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = line.strip("[").split("]")[0].split(" ")[0]
    rest = [f'{name} = "{value}"\n' for name, value in launch_rig.SETTINGS.items() if isinstance(value, str)]
    path = tmp_path / "launch.toml"
    path.write_text("".join(text for text in rest if not text.startswith(f"{key} ")) + line, encoding="utf-8")
    (tmp_path / "empty").mkdir()
    words = ["launch", "table5", "--engine", "xpk", "--scale", "paper", "--dry-run", "--settings", str(path)]
    refused(words, said, tmp_path / "empty", monkeypatch, capsys)


@pytest.mark.parametrize("content", [None, b"", b"\x7fELF", b"#!/nowhere/python\n"], ids=str)
def test_an_xpk_that_is_broken_is_one_sentence(content: bytes | None, tmp_path: Path) -> None:
    xpk = tmp_path / "xpk"
    if content is None:
        xpk.mkdir()
    else:
        xpk.write_bytes(content)
        xpk.chmod(0o755)
    with pytest.raises(UserError, match="make xpk") as caught:
        create_workload(require(str(xpk)), ["workload", "create"])
    assert "\n" not in str(caught.value)
