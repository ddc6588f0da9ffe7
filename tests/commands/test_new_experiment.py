"""The walk through docs/new-experiment.md: its file is the experiment that stands."""

import re
from pathlib import Path

import pytest

from experiments import streaming
from experiments.papers import papers
from experiments.registry import experiment_names, load, trained
from experiments.streaming import two_bits
from repro.errors import UserError
from repro.spec.experiment import expand, unique

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "new-experiment.md").read_text(encoding="utf-8")


def test_the_file_of_the_page_is_the_experiment():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    made: dict = {}
    exec(code, made)
    for scale in ("paper", "mini"):
        ids = [run.run_id for run in expand(made["EXPERIMENT"], scale)]
        assert ids == [run.run_id for run in expand(load("two_bits"), scale)]


def test_the_row_of_the_readme_is_one_of_the_page():
    (line,) = re.findall(r"^    (Row\(.*\))$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    row, of_page = eval(line, vars(two_bits)), two_bits.EXPERIMENT.rows[1]
    assert (row.labels, row.config) == (of_page.labels, of_page.config)


def test_a_target_of_the_makefile_does_what_its_spec_needs():
    """A new file trains and shows; those that are scored, or need no run, are listed."""
    listed = dict(
        re.findall(r"^([A-Z]+) := ([a-z0-9_ ]+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert set(listed["SCORED"].split()) == {spec.name for spec in trained("all") if spec.scored}
    beside = {spec.name for paper in papers() for spec in trained("all", paper.name)}
    others = set(experiment_names()) - beside
    assert set(listed["DRAWN"].split()) | set(listed["CALCULATED"].split()) == others - {"table2", "table4"}


def test_a_spec_bears_the_name_of_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Under another's name its files would take the place of the other's."""
    (tmp_path / "mine.py").write_text("from experiments.streaming.table5 import EXPERIMENT\n", encoding="utf-8")
    monkeypatch.setattr(streaming, "__path__", [*streaming.__path__, str(tmp_path)])
    with pytest.raises(UserError, match=r"mine.py names itself 'table5': set name='mine'"):
        load("mine")
    monkeypatch.undo()
    assert all(load(name).name == name for name in experiment_names())


def test_its_first_row_is_a_run_of_other_experiments():
    shared = {run.run_id for run in unique(expand(load("figure11"), "mini"))}
    assert [run.run_id in shared for run in expand(load("two_bits"), "mini")] == [True, False, True]
