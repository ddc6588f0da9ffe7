"""The walk through docs/new-paper.md: its files, laid where it says, are a paper."""

import csv
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import experiments
from analysis.pages.page import build_page
from analysis.pages.report import build_item
from analysis.paper.statements import statements
from experiments import papers
from experiments.papers import paper
from experiments.registry import experiment_names, in_order, load, paper_of, trained
from repro.commands.cli import main
from repro.errors import UserError
from repro.spec.experiment import expand

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "new-paper.md").read_text(encoding="utf-8")


@pytest.fixture
def diloco(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example beside the papers there are; its folder of numbers."""
    toml, cells, claims, spec, _ = re.findall(r"```\w+\n(.*?)```", PAGE, re.DOTALL)
    numbers, specs = tmp_path / "papers" / "2311.08105", tmp_path / "specs" / "diloco"
    numbers.mkdir(parents=True)
    specs.mkdir(parents=True)
    for there in papers.PAPERS.iterdir():
        (numbers.parent / there.name).symlink_to(there)
    files = {"paper.toml": toml, "statements.csv": cells, "claims.csv": claims}
    for name, text in files.items():
        (numbers / name).write_text(text, encoding="utf-8")
    (specs / "__init__.py").write_text("", encoding="utf-8")
    (specs / "workers.py").write_text(spec, encoding="utf-8")
    monkeypatch.setattr(papers, "PAPERS", numbers.parent)
    monkeypatch.setattr(experiments, "__path__", [*experiments.__path__, str(specs.parent)])
    statements.cache_clear()
    yield numbers
    for module in [name for name in sys.modules if name.startswith("experiments.diloco")]:
        del sys.modules[module]
    statements.cache_clear()


def test_the_example_is_a_paper_with_its_own_scoreboard_and_report(diloco: Path, tmp_path: Path):
    assert (
        experiment_names("diloco") == in_order("diloco") == ("diloco_workers",) and "diloco_workers" not in in_order()
    )
    assert paper_of("diloco_workers") == paper("2311.08105") == paper("diloco")
    (experiment,) = trained("all", "diloco")
    dp, eight = expand(experiment, "paper")
    assert dp.run_id == expand(load("table5"), "paper")[0].run_id, "a run that two papers share is one run"
    assert (eight.config.replicas, eight.config.sync.every) == (8, 500)
    text = build_item("all", "smoke", 1, tmp_path / "runs", tmp_path / "out", of="diloco")
    assert "eight-as-good" in text
    with (tmp_path / "out" / "diloco_claims.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["verdict"] for line in lines} == {"not run"} and "500 times less" in lines[0]["statement"]
    page = build_page("smoke", 1, tmp_path / "runs", tmp_path / "out", of="diloco").read_text(encoding="utf-8")
    assert "DiLoCo, reproduced: where the paper stands" in page and 'id="diloco_workers"' in page
    assert 'id="table5"' not in page and "arXiv 2311.08105" in page


def test_other_papers_change_nothing_of_the_suites_own(diloco: Path):
    assert {statement.paper for statement in statements()} == {papers.DEFAULT}
    assert not {name for name in in_order() if name.startswith("diloco")}
    assert papers.papers()[0].name == papers.DEFAULT


def test_a_paper_that_is_not_described_is_one_sentence(diloco: Path, capsys: pytest.CaptureFixture[str]):
    told = (diloco / "paper.toml").read_text(encoding="utf-8")
    for wrong, sentence in (
        (told.replace("2311.08105", "2311.08106"), "must be that of its folder"),
        (told.replace("year = 2023", ""), "is no description of a paper"),
        (told + "\n=", "is no description of a paper"),
        (told.replace('"diloco"', '"streaming"'), "two papers are named 'streaming'"),
        (told.replace('"diloco"', '"dilocos"'), "dilocos/."),
    ):
        (diloco / "paper.toml").write_text(wrong, encoding="utf-8")
        assert main(["plan", "all", "--paper", "diloco"]) == 2
        error = capsys.readouterr().err
        assert sentence in error and error.count("\n") == 1


def test_an_unknown_paper_or_one_without_effect_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for words, sentence in (
        (["report", "--paper", "streamin"], "did you mean 'streaming'"),
        (["build", "table5", "--paper", "2503.09799"], "--paper without effect"),
        (["plan", "table5", "--paper", "2503.09799"], "--paper without effect"),
        (["status", "--paper", "2503.09799", "--root", str(tmp_path)], "--paper without effect"),
    ):
        assert main(words) == 2
        assert sentence in capsys.readouterr().err


def test_a_module_must_name_itself(diloco: Path):
    module = sys.modules[type(load("diloco_workers")).__module__]
    assert module.Experiment is type(load("diloco_workers"))
    wrong = replace(load("diloco_workers"), name="workers")
    sys.modules["experiments.diloco.workers"].EXPERIMENT = wrong
    with pytest.raises(UserError, match=r"workers.py names itself 'workers': set name='diloco_w"):
        load("diloco_workers")


def test_a_paper_without_runs_goes_all_the_way_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """As `make paper PAPER=eager` does on an empty root; it has no statements to ask for."""
    where = ["--paper", "eager", "--scale", "smoke", "--root", str(tmp_path / "runs")]
    for command in ("run", "evaluate", "build"):
        out = ["--out", str(tmp_path)] if command == "build" else []
        assert main([command, "all", *where, *out]) == 0
    assert main(["report", *where, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "Eager Updates has nothing to train" in said.err and "45 of 45 print as published" in said.out
    page = (tmp_path / "eager_report.html").read_text(encoding="utf-8")
    assert 'id="eager_table5"' in page and 'id="scoreboard"' not in page
    assert main(["build", "claims", "--paper", "eager"]) == 2
    assert "eager has no statements" in capsys.readouterr().err
