"""The command line: one sentence and exit 2 on bad input, nothing imported that isn't needed."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.registry import load
from repro.commands.cli import main
from repro.runs.folder import open_folder
from repro.spec.experiment import expand

ROOT = Path(__file__).parents[2]
SIMULATED = ["simulate", "--params", "7e9", "--step-time", "1", "--bandwidth", "1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "tabel5"], "did you mean 'table5'?"),
        (["plan", "nothing-like-it"], "choose one of"),
        (["plan", "table5", "--scale", "huge"], "--scale: give paper, mini, small or smoke, not 'huge'"),
        (["plan", "table5", "--seeds", "0"], "--seeds: give a whole number from 1 to 1,000, not '0'"),
        (["prepare", "pile"], "unknown corpus 'pile'"),
        (["run", "table5", "--scale", "tiny"], "--scale: give paper"),
        (["run", "table2"], "nothing to train"),
        (["run", "table4"], "nothing to train"),
        (["build", "table4", "--scale", "huge"], "--scale: give paper, mini, small or smoke, not 'huge'"),
        (["build", "table4", "--out", "/proc/nowhere"], "/proc/nowhere"),
        (["run", "table5", "--scale", "smoke", "--root", "/proc/r", "--cache", "/proc/c"], "/proc/"),
        (["run", "table5", "--scale", "smoke", "--workers", "0"], "--workers: give a whole number"),
        (["run", "table5", "--scale", "smoke", "--takeover-after", "0"], "--takeover-after: give a number above 0"),
        (["run", "table5", "--seeds", "0"], "--seeds: give"),
        (["run", "table5", "--seeds", "1001"], "--seeds: give a whole number from 1 to 1,000, not '1001'"),
        (["run", "table5", "--scale", "smoke", "--takeover-after", "nan"], "--takeover-after: give a number"),
        (["run", "table5", "--root", ""], "an empty path"),
        (["train", "config.json", "--takeover-after", "inf"], "--takeover-after: give a number"),
        (
            ["simulate", "--params", "7e9", "--layers", "8", "--step-time", "1", "--bandwidth", "inf"],
            "--bandwidth: give a number above 0",
        ),
        (["collect", "table5", "--root", "/nowhere"], "no folder /nowhere"),
        (["collect", "table5", "--to", "a.json"], "--to a.json: a folder is needed, in which mini.json will stand"),
        (["status", "--root", "/nowhere"], "no folder /nowhere"),
        (["build", "table5", "--root", "/nowhere"], "no folder /nowhere"),
        (["report", "--root", "/nowhere"], "no folder /nowhere"),
        (["status", "table5", "--root", "/nowhere"], "no folder /nowhere"),
        (["evaluate", "table5", "--root", "/nowhere"], "no folder /nowhere"),
        (["compile", "table5", "--rule", "--microbatches", "0"], "--microbatches: give a whole number"),
        (["compile", "fedpart", "--missing"], "all 2 runs of fedpart are compiled"),
        (["compile", "table5", "--missing", "--topology", "v5e:4x4"], "--missing goes with the slices of the rule"),
        (["compile", "table5", "--rule", "--run", "35m", "--microbatches", "3"], "microbatches=3 of 4 sequences"),
        (["diff", "x", "y"], "no run 'x'"),
        ([*SIMULATED, "--layers", "1000000"], "--layers: give a whole number from 1 to 1,000"),
        ([*SIMULATED, "--layers", "8", "--every", "1000000"], "--every: give a whole number from 1 to 10,000"),
    ],
)
def test_bad_input_is_one_sentence(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1 and not out
    assert not list(tmp_path.iterdir())


def test_the_beginning_of_an_option_is_no_option(capsys):
    assert main(["plan", "table5", "--seed", "3"]) == 2
    assert "unrecognized arguments: --seed 3 (is --seeds meant?)" in capsys.readouterr().err


def test_diff_names_the_fields(tmp_path, capsys):
    run = expand(load("table5"), "smoke")[2]
    other = replace(run.config, seed=1, steps=30)
    one, two = open_folder(tmp_path, run.config), open_folder(tmp_path, other)
    assert main(["diff", one.run_id, two.run_id, "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "seed: 0 -> 1\nsteps: 24 -> 30\n"


def test_status_counts_what_is_missing(tmp_path, capsys):
    assert main(["status", "table5", "--scale", "smoke", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "12 runs: 12 missing"


@pytest.mark.parametrize("words", [["diff", "x", "y"], ["status"], ["extend", "x", "--steps", "9"]], ids=" ".join)
def test_in_a_fresh_clone_a_sentence_leads_to_the_collected_results(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    err = capsys.readouterr().err
    assert "data/results" in err and "`python -m repro build table5`" in err and err.count("\n") == 1
    (tmp_path / "runs").mkdir()
    main(words)
    assert "data/results" not in capsys.readouterr().err


def test_status_says_where_the_results_of_missing_runs_are(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["status", "table5"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "12 runs: 12 missing"
    assert err.startswith("12 runs without a folder here: the results are in data/results, and `python -m repro build")
    open_folder(tmp_path / "runs", expand(load("table5"), "mini")[0].config)
    main(["status", "table5"])
    assert capsys.readouterr().err.startswith("11 runs")


def test_status_of_a_root_passes_over_what_is_no_run(tmp_path, capsys):
    run = open_folder(tmp_path, expand(load("table5"), "smoke")[0].config)
    (tmp_path / "workers.log").write_text("left by every sweep", encoding="utf-8")
    (tmp_path / "notes").mkdir()
    assert main(["status", "--root", str(tmp_path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith(run.run_id) and shown[-1].endswith(": 1 stopped")


@pytest.mark.parametrize("words", [["--help"], ["plan", "table5", "--scale", "paper"], ["status", "table5"]])
def test_light_commands_import_nothing_heavy(words, tmp_path):
    code = (
        "import sys; from repro.commands.cli import main\n"
        f"try: main({words!r})\n"
        "except SystemExit: pass\n"
        "heavy = {'jax', 'pandas', 'matplotlib', 'flax', 'pyarrow'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
