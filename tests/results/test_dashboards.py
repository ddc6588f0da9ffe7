"""Stored metrics as TensorBoard and W&B runs: each file read back and compared with what the trainer's log holds."""

import inspect
import json
import struct
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from repro.commands.cli import main
from repro.files import write_json
from repro.results.curves import dotted, read_curves
from repro.results.tensorboard import write_tensorboard
from repro.results.wandb import SETTINGS, write_wandb
from repro.runs.folder import RunFolder, open_folder
from repro.spec.identity import canonical
from repro.training.metrics import MetricsLog

CONFIG = tiny.run_config(tiny.synced(), steps=6)
TOKENS = CONFIG.batch * CONFIG.model.seq_len
STARTED = 1_700_000_000  # 2023-11-14T22:13:20Z
# The clock of two attempts: the second went on after step 4.
SECONDS = {1: 2.0, 2: 2.5, 3: 3.0, 4: 3.5, 5: 1.0, 6: 1.25}
TRAINED = {1: 2.0, 2: 2.5, 3: 3.0, 4: 3.5, 5: 4.5, 6: 4.75}
SYNC = {"step": 5, "taken": 4, "fragment": 1}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run with steps 1 to 4 saved: a validation loss at 3, and a first attempt that ended."""
    folder = open_folder(tmp_path / "runs", CONFIG)
    attempt = {"started": "2023-11-14T22:13:20Z", "commit": "0123abcd", "outcome": "interrupted"}
    write_json(folder.path / "provenance.json", {"attempts": [attempt]})
    log(folder, range(1, 5))
    return folder


def log(folder: RunFolder, steps: range) -> None:
    metrics, syncs = MetricsLog(folder.metrics, steps[0] - 1), MetricsLog(folder.syncs, steps[0] - 1)
    for step in steps:
        losses = {"loss_0": 6.0 - step / 10, "loss_1": 6.2 - step / 10}
        row = {"step": step, "learning_rate": step / 100, **losses, "seconds": SECONDS[step]}
        metrics.add(row | {"validation_loss": 5.5 if step == 3 else None})
        if step == SYNC["step"]:
            syncs.add(SYNC | {"part": "layer 2", "cosine": 0.5, "norm_0": 3.0, "norm_1": 4.0})
            syncs.add(SYNC | {"part": "fragment", "cosine": None, "norm_0": 3.0, "norm_1": 0.0})
    metrics.close_part(steps[-1])
    syncs.close_part(steps[-1])


def end(folder: RunFolder) -> None:
    """The other steps, a summary, and scores."""
    log(folder, range(5, 7))
    folder.write_summary(
        {
            "run_id": folder.run_id,
            "steps": 6,
            "validations": {
                "outer-64": {"loss": 5.25, "bits_per_byte": 1.5, "metric_version": 2},
                "first-64": {"loss": 5.5, "bits_per_byte": 1.75, "metric_version": 2},
                "outer-128": {"loss": 5.125, "bits_per_byte": 1.25, "metric_version": 2},
            },
        }
    )
    score = {"task": "piqa", "questions": 1838, "of": 1838, "limit": None, "acc": 0.5, "acc_norm": 0.75}
    part = score | {"task": "hellaswag", "questions": 1000, "of": 10042, "acc": 0.25}
    tried = score | {"questions": 2, "limit": 2, "acc": 1.0}
    for name, step, scores in (("part", 6, [score, part]), ("limited", 6, [tried]), ("earlier", 4, [score])):
        result = {"step": step, "parameters": "outer", "scores": scores}
        write_json(folder.path / "evals" / f"{name}.json", result)


RESULTS = {
    "final/validation_loss": 5.25,
    "final/bits_per_byte": 1.5,
    "final/validation_loss_outer-64": 5.25,
    "final/validation_loss_first-64": 5.5,
    "final/validation_loss_outer-128": 5.125,
    "scores_outer/piqa_acc": 0.5,
    "scores_outer/piqa_acc_norm": 0.75,
    "scores_outer/hellaswag_1000_acc": 0.25,
    "scores_outer/hellaswag_1000_acc_norm": 0.75,
}


def expected(steps: range) -> dict[int, dict[str, float]]:
    """What a dashboard shows at each step, written out again from the rows of `log`."""
    points: dict[int, dict[str, float]] = {}
    for step in steps:
        losses = {"train/loss_replica_0": 6.0 - step / 10, "train/loss_replica_1": 6.2 - step / 10}
        first = 0 if step < 5 else 4
        speed = TOKENS * (step - first) / SECONDS[step]
        points[step] = {"train/loss": 6.1 - step / 10, **losses, "train/learning_rate": step / 100}
        points[step] |= {"train/tokens_per_second": speed}
    if 3 in points:
        points[3]["validation/loss"] = 5.5
    if 5 in points:
        points[5] |= {"cosine/layer_2": 0.5, "norm/layer_2_replica_0": 3.0, "norm/layer_2_replica_1": 4.0}
        points[5] |= {"norm/fragment_1_replica_0": 3.0, "norm/fragment_1_replica_1": 0.0}
    return points


def assert_points(found: dict[int, dict[str, float]], wanted: dict[int, dict[str, float]]) -> None:
    assert found.keys() == wanted.keys()
    for step, values in wanted.items():
        assert found[step] == pytest.approx(values, rel=1e-6), step


def test_the_clock_is_that_of_training_over_all_attempts(folder: RunFolder) -> None:
    end(folder)
    curves = read_curves(folder)
    assert {point.step: point.seconds for point in curves.points} == pytest.approx(TRAINED)
    assert (curves.started, curves.provenance["commit"], curves.step) == (STARTED, "0123abcd", 6)
    assert curves.results == RESULTS
    assert_points({point.step: point.values for point in curves.points}, expected(range(1, 7)))


# TensorBoard


def crc32c(data: bytes) -> int:
    """Castagnoli's, bit by bit, and masked as TFRecord has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events(path: Path) -> list[Any]:
    """The file's events; every length and content is checked against its sum."""
    from tensorboardX.proto.event_pb2 import Event

    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        (length, of_length) = struct.unpack_from("<QI", data, at)
        content = data[at + 12 : at + 12 + length]
        (of_content,) = struct.unpack_from("<I", data, at + 12 + length)
        assert (of_length, of_content) == (crc32c(data[at : at + 8]), crc32c(content))
        found.append(Event.FromString(content))
        at += 16 + length
    return found


def scalars(found: list[Any]) -> dict[int, dict[str, float]]:
    """step -> tag -> value; each point is there once."""
    points: dict[int, dict[str, float]] = {}
    for event in found:
        for value in event.summary.value:
            if value.HasField("simple_value"):
                assert value.tag not in points.setdefault(event.step, {})
                points[event.step][value.tag] = value.simple_value
    return points


def only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    assert "tfevents" in path.name
    return path


def test_tensorboard_reads_what_was_logged(folder: RunFolder, tmp_path: Path) -> None:
    end(folder)
    out = write_tensorboard(read_curves(folder), tmp_path / "tb")
    assert out == tmp_path / "tb" / folder.run_id
    found = events(only(out))
    assert found[0].file_version == "brain.Event:2"
    assert_points(scalars(found), expected(range(1, 6)) | {6: expected(range(6, 7))[6] | RESULTS})
    times = {event.step: event.wall_time - STARTED for event in found if event.step}
    assert times == pytest.approx(TRAINED)


def test_the_config_is_shown_as_hyperparameters(folder: RunFolder, tmp_path: Path) -> None:
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    found = events(only(write_tensorboard(read_curves(folder), tmp_path)))
    tagged = {value.tag: value.metadata.plugin_data for event in found for value in event.summary.value}
    start = tagged["_hparams_/session_start_info"]
    assert start.plugin_name == "hparams" and "_hparams_/session_end_info" not in tagged  # it is not finished
    shown = HParamsPluginData.FromString(start.content).session_start_info.hparams
    values = {name: getattr(value, value.WhichOneof("kind")) for name, value in shown.items()}
    assert values == dotted(canonical(CONFIG))
    assert (values["sync.delays"], values["model.layers"], values["repeat_data"]) == ("1", 3.0, False)


def test_an_export_takes_the_place_of_the_one_before(folder: RunFolder, tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import SessionLog

    write_tensorboard(read_curves(folder), tmp_path)
    write_json(tmp_path / folder.run_id / "notes.json", "not ours")
    end(folder)
    first = write_tensorboard(read_curves(folder), tmp_path)
    content = {path.name: path.read_bytes() for path in first.iterdir()}
    assert len(content) == 2 and "notes.json" in content
    write_tensorboard(read_curves(folder), tmp_path)
    assert {path.name: path.read_bytes() for path in first.iterdir()} == content
    (path,) = first.glob("*tfevents*")
    begun = events(path)[1]  # TensorBoard drops what it read of the run before
    assert (begun.session_log.status, begun.step) == (SessionLog.START, 0)


# Weights & Biases


class FakeRun:
    """What of wandb.Run is used; keeps what it was told."""

    def __init__(self, step: int) -> None:
        self.step, self.rows, self.summary, self.url, self.code = step, {}, {}, "https://wandb.invalid/run", None

    def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        assert step is not None and step >= self.step and step not in self.rows
        self.rows[step] = data

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        self.code = exit_code


class FakeWandb(types.ModuleType):
    """In the place of the client: keeps the arguments of `init`, named as its own are (the real one is tried below)."""

    Error = type("Error", (Exception,), {})

    def __init__(self, there: int = 0) -> None:
        super().__init__("wandb")
        self.there, self.told = there, {}

    def init(self, *, project, dir, id, name, config, tags, resume, settings) -> FakeRun:
        if self.there < 0:
            raise self.Error("api_key not configured (no-tty).")
        self.told = {"project": project, "id": id, "name": name, "config": config, "tags": tags, "resume": resume}
        self.run = FakeRun(self.there)
        return self.run


def test_wandb_is_told_what_was_logged(folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end(folder)
    monkeypatch.setitem(sys.modules, "wandb", fake := FakeWandb())
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    assert write_wandb(read_curves(folder), tmp_path) == fake.run.url
    identity = {"id": folder.run_id, "name": folder.run_id, "resume": "allow", "project": "streaming-diloco"}
    config = canonical(CONFIG) | {"provenance": read_curves(folder).provenance}
    assert fake.told == identity | {"config": config, "tags": ["smoke"]}
    assert_points(fake.run.rows, {s: p | {"train/seconds": TRAINED[s]} for s, p in expected(range(1, 7)).items()})
    assert fake.run.summary == RESULTS and fake.run.code == 0


def test_wandb_is_told_each_step_once(folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end(folder)
    monkeypatch.setitem(sys.modules, "wandb", fake := FakeWandb(there=5))  # it has the steps to 4
    write_wandb(read_curves(folder), tmp_path)
    assert sorted(fake.run.rows) == [5, 6]


def test_wandb_shows_a_failed_run_as_failed(folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write_failure("the loss is nan", crashed=False)
    monkeypatch.setitem(sys.modules, "wandb", fake := FakeWandb())
    write_wandb(read_curves(folder), tmp_path)
    assert fake.run.code == 1 and sorted(fake.run.rows) == [1, 2, 3, 4]


def records(path: Path) -> Iterator[Any]:
    """The records of a .wandb file: LevelDB's log format behind a head of seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, kept = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        kept += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(kept)
            kept = b""


def keyed(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def test_the_offline_file_of_the_real_client_holds_each_step_once(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb (55 MB) is in no pins: pip install wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert set(SETTINGS) <= set(wandb.Settings.model_fields)
    wanted = set(inspect.signature(FakeWandb.init).parameters) - {"self"}
    assert wanted <= set(inspect.signature(wandb.init).parameters)
    write_wandb(read_curves(folder), tmp_path)
    end(folder)
    shown = Path(write_wandb(read_curves(folder), tmp_path))
    (kept,) = tmp_path.glob(f"wandb/offline-run-*-{folder.run_id}")  # the earlier one is gone
    assert kept == shown
    found = list(records(kept / f"run-{folder.run_id}.wandb"))
    rows = [keyed(r.history.item) for r in found if r.WhichOneof("record_type") == "history"]
    points = {row["_step"]: {tag: v for tag, v in row.items() if not tag.startswith("_")} for row in rows}
    assert len(rows) == 6
    assert_points(points, {s: p | {"train/seconds": TRAINED[s]} for s, p in expected(range(1, 7)).items()})
    run = next(r.run for r in found if r.WhichOneof("record_type") == "run")
    config = {u.key: json.loads(u.value_json) for u in run.config.update}
    assert (run.run_id, run.display_name, list(run.tags)) == (folder.run_id, folder.run_id, ["smoke"])
    assert canonical(CONFIG).items() <= config.items() and config["provenance"]["commit"] == "0123abcd"
    summary: dict[str, Any] = {}
    for record in found:
        if record.WhichOneof("record_type") == "summary":
            summary |= keyed(record.summary.update)
    assert RESULTS.items() <= summary.items()


# The command


def test_the_command_exports_what_is_named(folder: RunFolder, tmp_path: Path, capsys: Any) -> None:
    end(folder)
    words = ["export", folder.run_id[:-2], "--to", "tensorboard", "--root", str(tmp_path / "runs")]
    assert main([*words, "--out", str(tmp_path / "tb")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'tb' / folder.run_id}\n"
    assert np.unique([e.step for e in events(only(tmp_path / "tb" / folder.run_id))]).tolist() == list(range(7))
    words[1] = "table5"
    assert main(words) == 2
    told = capsys.readouterr()
    assert told.out == "12 of 12 runs of table5 have no checkpoint: left out.\n" and "nothing to export" in told.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "tensorboard"], "pip install tensorboardX."),
        (["--to", "wandb"], "pip install wandb."),
        (["--to", "gguf"], "'gguf' is unknown: choose safetensors, tensorboard, wandb."),
        (["--to", "wandb", "--step", "4"], "--step and --parameters choose parameters"),
        (["OTHER", "--out", "there"], "--out there for 2 runs"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str],
    said: str,
    folder: RunFolder,
    tmp_path: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    other = open_folder(tmp_path / "runs", tiny.run_config(None, replicas=1))
    runs = [folder.run_id]
    if words[0] == "OTHER":
        runs, words = [other.run_id, *runs], words[1:]
    else:
        monkeypatch.setitem(sys.modules, "tensorboardX", None)
        monkeypatch.setitem(sys.modules, "tensorboardX.record_writer", None)
        monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["export", *runs, "--root", str(tmp_path / "runs"), *words]) == 2
    out, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1 and not out
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.parametrize("config", ["[1]", None], ids=["no config", "no checkpoint"])
def test_a_damaged_run_is_named_and_the_others_are_exported(
    config: str | None, folder: RunFolder, tmp_path: Path, capsys: Any
) -> None:
    other = open_folder(tmp_path / "runs", tiny.run_config(None, replicas=1))
    if config is not None:
        (other.path / "config.json").write_text(config, encoding="utf-8")
    words = ["--root", str(tmp_path / "runs"), "--to", "tensorboard", "--out", str(tmp_path / "tb")]
    assert main(["export", other.run_id, folder.run_id, *words]) == 2
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'tb' / folder.run_id}\n"
    assert err.startswith("repro: ") and err.count("\n") == 1 and str(other.path) in err


def test_without_an_account_wandb_is_one_sentence(
    folder: RunFolder, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb(there=-1))
    assert main(["export", folder.run_id, "--root", str(tmp_path / "runs"), "--to", "wandb"]) == 2
    said = "repro: W&B does not take the run (api_key not configured (no-tty)): `wandb login`, or WANDB_MODE=offline.\n"
    assert capsys.readouterr().err == said
