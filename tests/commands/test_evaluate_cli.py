"""The commands around evaluation: one sentence on bad input, and nothing heavy where all is done."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fabricated import SHARES, finish, keep, planned

from repro.commands.cli import main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["evaluate", "tabel5"], "no run 'tabel5'"),
        (["evaluate", "table5", "--scale", "huge"], "--scale: give paper, mini, small or smoke"),
        (["evaluate", "RUN", "--tasks", "boolq"], "--tasks: give some of hellaswag,"),
        (["evaluate", "RUN", "--limit", "0"], "--limit: give a whole number"),
        (["evaluate", "RUN", "--batch", "0"], "--batch: give a whole number"),
        (["evaluate", "RUN", "--workers", "99"], "workers=99"),
        (["evaluate", "RUN", "--windows", "0"], "--windows: give a whole number"),
        (
            ["evaluate", "RUN", "--windows", "9", "--step", "3", "--eval", "few"],
            "--eval, --step without effect: --windows",
        ),
        (["evaluate", "UNFINISHED", "--windows", "9"], "not finished: run it to its end"),
        (["evaluate", "UNFINISHED"], "not finished: give one of its checkpoints with --step"),
        (["evaluate", "RUN", "--step", "10"], "has no checkpoint of step 10: it has none."),
        (["export", "nothing"], "no run 'nothing'"),
        (["lm-eval", "nothing", "--tasks", "piqa"], "no run 'nothing'"),
    ],
)
def test_bad_input_is_one_sentence(words, said, capsys, tmp_path):
    runs = planned()
    folder, unfinished = finish(runs[0], tmp_path), finish(runs[1], tmp_path)
    (unfinished.path / "summary.json").unlink()
    names = {"RUN": folder.run_id, "UNFINISHED": unfinished.run_id}
    words = [names.get(word, word) for word in words]
    assert main([words[0], "--root", str(tmp_path), "--cache", str(tmp_path / "cache"), *words[1:]]) == 2
    out, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1 and not out


def test_where_all_is_done_nothing_heavy_is_imported(tmp_path):
    for run in planned():
        finish(run, tmp_path)
        keep(run, tmp_path, SHARES)
    code = (
        "import json, sys; from repro.commands.cli import main\n"
        f"code = main(['evaluate', 'table5', '--root', {str(tmp_path)!r}])\n"
        "print(json.dumps([code, sorted({'jax', 'numpy', 'lm_eval', 'datasets', 'pandas'} & set(sys.modules))]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, encoding="utf-8"
    )
    assert json.loads(done.stdout) == [0, []], done.stderr


def test_a_validation_that_is_there_is_shown_and_nothing_is_computed(tmp_path, capsys):
    run = planned()[0]
    finish(run, tmp_path, loss=3.25)
    assert main(["evaluate", run.run_id, "--windows", "512", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{run.run_id}  outer-512  validation loss 3.2500\n"


def test_runs_without_an_end_are_left_out_and_counted(tmp_path, capsys):
    run, *others = planned()
    finish(run, tmp_path)
    keep(run, tmp_path, SHARES)
    assert main(["evaluate", "table5", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{len(others)} runs of table5 not finished: left out.\n"
    assert main(["evaluate", "table5", "--scale", "smoke", "--root", str(tmp_path)]) == 0
    assert "nothing to evaluate" in capsys.readouterr().out


def test_a_step_that_no_run_has_is_no_job_and_leaves_nothing(tmp_path, capsys):
    assert main(["evaluate", "table5", "--step", "10", "--root", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert f"{len(planned())} runs of table5 without a checkpoint of step 10: left out." in out and not err
    assert "no run with a checkpoint of step 10" in out
    assert list(tmp_path.iterdir()) == []
