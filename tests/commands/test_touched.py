"""The last step of `make smoke` finds what was not called."""

import json
from pathlib import Path

from coverage import Coverage
from touched import uncalled

MODULE = """
class Counted:
    @property
    def one(self):
        return 1

    def two(self):
        return 2

def called():
    return Counted().one

def not_called():
    return 0
"""


def test_a_function_without_a_line_run_is_named(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "measured_module.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    coverage = Coverage(data_file=None, include=[str(tmp_path / "*")])
    with coverage.collect():
        import measured_module  # pyright: ignore[reportMissingImports]

        assert measured_module.called() == 1
    coverage.json_report(outfile=str(tmp_path / "report.json"))
    found = [
        line.rpartition(": ")[2]
        for line in uncalled(json.loads((tmp_path / "report.json").read_text(encoding="utf-8")))
    ]
    assert found == ["Counted.two", "not_called"]
