"""Results held against the bands of collected seeds, on made-up losses."""

import json
from pathlib import Path

import pytest
from fabricated import finished_record, planned

from repro.commands.check import Band, bands_of
from repro.commands.cli import main
from repro.spec.experiment import PlannedRun

COLLECTED = {"45k | Data-Parallel": (4.50, 4.52, 4.54), "45k | DiLoCo H=30": (4.60, 4.61, 4.65)}
DP, DILOCO = COLLECTED


def write(path: Path, by_row: dict[str, tuple[float, ...]], first_seed: int = 0) -> Path:
    """A file of results with these losses, one a seed."""
    runs: dict[tuple[str, int], PlannedRun] = {(run.row, run.config.seed): run for run in planned("mini", 8)}
    records = [
        finished_record(runs[row, seed], loss) for row in by_row for seed, loss in enumerate(by_row[row], first_seed)
    ]
    path.write_text(json.dumps({"runs": records}), encoding="utf-8")
    return path


def check(tmp_path: Path, by_row: dict[str, tuple[float, ...]]) -> int:
    collected, theirs = write(tmp_path / "mini.json", COLLECTED), write(tmp_path / "theirs.json", by_row, 5)
    return main(["check", str(theirs), "--against", str(collected)])


def test_a_band_is_the_prediction_interval_of_one_new_seed():
    """Three seeds 4.50, 4.52, 4.54: mean 4.52, deviation 0.02, t with two degrees of freedom 4.302653 (tables)."""
    half = 4.302653 * 0.02 * (4 / 3) ** 0.5
    bands = bands_of({"three": {0: 4.50, 1: 4.52, 2: 4.54}, "one": {0: 4.5}})
    assert bands == {"three": Band(pytest.approx(4.52 - half), pytest.approx(4.52 + half), 3)}


def test_results_inside_exit_with_0(tmp_path, capsys):
    assert check(tmp_path, {DP: (4.43, 4.61), DILOCO: (4.62,)}) == 0
    shown = capsys.readouterr().out
    assert f"inside: table5, {DP}, seed 5: 4.4300, band 4.4206 to 4.6194 of 3 seeds" in shown
    assert "3 of 3 results inside" in shown and "outside:" not in shown


@pytest.mark.parametrize(("loss", "side"), [(4.42, "below"), (4.62, "above")])
def test_one_outside_exits_with_1_and_its_row_band_and_value(tmp_path, capsys, loss, side):
    """Too good as well as too bad."""
    assert check(tmp_path, {DP: (loss,), DILOCO: (4.62,)}) == 1
    shown = capsys.readouterr().out
    assert f"outside: table5, {DP}, seed 5: {loss:.4f} lies {side} the band 4.4206 to 4.6194 of 3 seeds" in shown
    assert "1 of 2 results inside" in shown


def test_a_row_without_a_band_is_named_and_decides_nothing(tmp_path, capsys):
    assert check(tmp_path, {DP: (4.52,), "70k | Data-Parallel": (9.0,)}) == 0
    shown = capsys.readouterr().out
    assert "no band: table5, 70k | Data-Parallel: fewer than two seeds" in shown and "1 of 1 result inside" in shown


def test_where_no_row_has_a_band_nothing_is_said_to_be_inside(tmp_path, capsys):
    assert check(tmp_path, {"70k | Data-Parallel": (4.3,)}) == 2
    assert "no two seeds of any row" in capsys.readouterr().err


def spoilt(path: Path, how: str) -> None:
    """A file of results with one thing wrong."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    record = stored["runs"][0]
    if how == "loss":
        next(iter(record["summary"]["validations"].values()))["loss"] = "low"
    elif how == "summary":
        record["summary"] = None
    elif how == "config":
        record["config"]["steps"] += 1
    elif how == "field":
        record["config"]["colour"] = "blue"
    elif how == "none":
        stored["runs"] = []
    path.write_text("{" if how == "json" else json.dumps([] if how == "foreign" else stored), encoding="utf-8")


@pytest.mark.parametrize("how", ["loss", "summary", "config", "field", "none", "json", "foreign", "absent"])
def test_a_bad_file_is_one_sentence(tmp_path, capsys, how):
    path = write(tmp_path / "theirs.json", {DP: (4.5,)})
    path.unlink() if how == "absent" else spoilt(path, how)
    assert main(["check", str(path), "--against", str(write(tmp_path / "mini.json", COLLECTED))]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("repro: ") and shown.err.count("\n") == 1 and not shown.out


def test_a_file_is_not_held_against_itself(tmp_path, capsys):
    path = write(tmp_path / "mini.json", COLLECTED)
    assert main(["check", str(path), "--against", str(path)]) == 2
    assert "against itself" in capsys.readouterr().err
