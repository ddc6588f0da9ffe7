"""A whole run with its root in a bucket: killed, taken over, finished, scored, shown and collected.

gcsfs, orbax and tensorstore are the real ones; what answers them is `fake_bucket`, which can't rename or append.
"""

import csv
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import fake_bucket
import process_rig
import pytest
from drawn_task import SPEC, replace_tasks

import repro.evaluation.evaluate
from experiments.registry import load as load_spec
from repro.commands.cli import main
from repro.evaluation.evaluate import evaluate_run
from repro.evaluation.scoring import Scorer
from repro.files import folder_at, read_json
from repro.results.collected import archive_path, load_records
from repro.results.curves import read_curves
from repro.runs.folder import RunFolder
from repro.runs.takeover import saved_steps
from repro.spec.experiment import PlannedRun, expand
from repro.training.metrics import read_metrics

pytestmark = pytest.mark.compiles

ROOT = "gs://bucket/runs"


def run_of(method: str) -> PlannedRun:
    return next(run for run in expand(load_spec("table5"), "smoke") if f"-{method}-" in run.run_id)


RUN = run_of("dp")  # one program to compile
EVERY = 8  # steps between checkpoints, of 24


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """A training command takes SIGTERM and SIGINT for itself."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def words(cache: Path, method: str = "dp", *options: str) -> list[str]:
    named = ["train", run_of(method).run_id, "--experiment", "table5", "--scale", "smoke", "--root", ROOT]
    return [*named, "--cache", str(cache), "--checkpoint-every", str(EVERY), *(options or ("--replica", "1"))]


def train_until_saved(bucket: fake_bucket.Store, cache: Path) -> None:
    """Train in another process, which is killed when its first checkpoint is complete."""
    command = [sys.executable, "-m", "repro", *words(cache)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8") as process:
        bucket.on_put = lambda name: name.endswith(f"/checkpoints/{EVERY}/commit_success.txt") and process.kill()
        _, said = process.communicate()
    bucket.on_put = lambda _: None
    assert process.returncode == -signal.SIGKILL, said


def test_a_whole_run_lives_in_a_bucket(
    bucket: fake_bucket.Store,
    tmp_path: Path,
    smoke_tokens: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    cache = smoke_tokens.parents[1]
    train_until_saved(bucket, cache)
    assert main(words(cache)) == 0  # takes over what a dead process of this machine held
    folder = RunFolder(folder_at(ROOT), RUN.run_id)
    assert read_json(folder.home / "from.json") == {"attempt": 1, "step": EVERY}
    assert [entry["outcome"] for entry in folder.provenance()["attempts"]] == ["running", "finished"]
    assert saved_steps(folder.home) == [2 * EVERY, 3 * EVERY]
    losses = read_metrics(folder.metrics)["loss_0"].to_pylist()
    assert len(losses) == RUN.config.steps
    assert losses[EVERY] == pytest.approx(losses[EVERY - 1], abs=0.3) and losses[0] > 1.5 * losses[EVERY]  # it went on
    capsys.readouterr()

    assert main(["status", "table5", "--scale", "smoke", "--root", ROOT]) == 0
    assert re.search(rf"{RUN.run_id} +finished +24/24", capsys.readouterr().out)
    assert main(["status", "--root", ROOT]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 runs: 1 finished; 100 % of all steps")
    assert [point.step for point in read_curves(folder).points] == list(range(1, 25))

    score(folder, monkeypatch, smoke_tokens)
    collected_and_built(folder, tmp_path)
    copied = {(source.split("/")[3], target.split("/")[3]) for source, target in bucket.copies}
    assert copied == {("000001", "000002")}  # a takeover; no copy stands for a rename


@pytest.mark.slow
def test_two_processes_share_a_bucket_and_stop_together(
    bucket: fake_bucket.Store, smoke_tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a pod: everything in the bucket, compiled programs too, and one of the pods is pre-empted."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "gs://bucket/xla")
    often = EVERY // 2

    def run(asked: int | None) -> list[int]:
        at = f"127.0.0.1:{process_rig.free_port()}"
        train = [
            sys.executable,
            "-m",
            "repro",
            *words(smoke_tokens.parents[1], "stream-h6", "--replica", "2", "--scan", "--checkpoint-every", str(often)),
        ]
        train += ["--coordinator", at, "--processes", "2", "--devices", "1", "--process"]
        cast = process_rig.start([[*train, "0"], [*train, "1"]])

        def on_put(name: str) -> None:
            if asked and name.endswith("/commit_success.txt"):
                if name.endswith(f"/checkpoints/{often}/commit_success.txt"):
                    cast.members[1].send_signal(asked)
                time.sleep(4)  # the next checkpoint waits for this one: 20 seconds in which the service hears of it

        bucket.on_put = on_put
        return [code for code, _ in cast.wait()]

    assert run(signal.SIGTERM) == [42, 42]
    saved = {int(name.split("/")[5]) for name in bucket.blobs if name.endswith("/commit_success.txt")}
    assert often < max(saved) < RUN.config.steps and any(name.startswith("xla/") for name in bucket.blobs)
    assert run(None) == [0, 0]
    folder = RunFolder(folder_at(ROOT), run_of("stream-h6").run_id)
    assert [entry["outcome"] for entry in folder.provenance()["attempts"]] == ["interrupted", "finished"]
    assert read_metrics(folder.metrics)["step"].to_pylist() == list(range(1, RUN.config.steps + 1))


def score(folder: RunFolder, monkeypatch: pytest.MonkeyPatch, tokens: Path) -> None:
    """Drawn questions, cut after their first part, and gone on with."""
    replace_tasks(monkeypatch, tokens)
    monkeypatch.setattr(repro.evaluation.evaluate, "SAVE_SECONDS", -1.0)
    monkeypatch.setattr(Scorer, "_rows_at_once", lambda *_: 8)
    monkeypatch.setattr(Scorer, "_block_rows", lambda *_: 8)
    step, scored = RUN.config.steps, []

    def cut(done: int, _: int) -> None:
        scored.append(done)
        if len(scored) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_run(folder, SPEC, step, tokens.parents[1], report=cut)
    evals = folder.path / "evals"
    assert (evals / f"{SPEC.id(step)}.parts").exists() and not (evals / f"{SPEC.id(step)}.json").exists()
    again: list[int] = []
    result = evaluate_run(folder, SPEC, step, tokens.parents[1], report=lambda done, _: again.append(done))
    assert result is not None and min(again) > scored[0]  # what the first had written is not scored again
    assert [path.name for path in evals.iterdir()] == [f"{SPEC.id(step)}.json"]
    assert evaluate_run(folder, SPEC, step, tokens.parents[1]) == result


def collected_and_built(folder: RunFolder, out: Path) -> None:
    places = ["table5", "--scale", "smoke", "--root", ROOT]
    assert main(["collect", *places, "--to", str(out)]) == 0
    record = load_records(archive_path("smoke", out))[RUN.run_id]
    assert record["summary"] == folder.summary()
    assert main(["build", *places, "--own", "--out", str(out)]) == 0
    with (out / "table5.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["runs"] == RUN.run_id and row["column"] == "Eval Loss"]
    assert [float(row["ours"]) for row in rows] == [
        pytest.approx(folder.summary()["validations"]["outer-32"]["loss"], rel=1e-6)
    ]
