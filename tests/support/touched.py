"""Which functions of `analysis` the commands of a user reach: the last step of `make smoke`.

Coverage was recorded while `make paper SCALE=smoke` ran, for each paper; what a user calls beside it, the simulator's
own outputs, a figure without runs and a notebook's cells, is called here. Exit code 1, with their names, where a
function was not called.
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from coverage import Coverage

from repro.commands.cli import main as repro
from repro.results.collected import archive_path

SIMULATE = ["simulate", "--params", "5e8", "--layers", "12", "--step-time", "1", "--bandwidth", "1e9"]

# Called by `compile` alone, which takes minutes and the compiler for TPUs: tests of their own call them.
BY_COMPILE = ("compiled_json", "merge_compiled", "_program_json", "_run_json")
# Called where a row of one seed has like rows of more seeds, which depends on what is collected: test_deciding.py.
LENDING = ("Spread.lent", "Spread.sentence")
ELSEWHERE = {f"analysis/pages/compiled.py: {name}" for name in BY_COMPILE} | {
    f"analysis/claims/evidence.py: {name}" for name in LENDING
}


def call_the_rest(root: Path) -> None:
    """The commands that draw or print on their own, and what notebooks display, on the runs under `root`."""
    from analysis.pages import ahead
    from analysis.pages.items import scoreboard, show

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        plot = ["--plot", str(Path(folder) / "forecast.png")]
        empty = ["build", "figure12", "--scale", "paper", "--own", "--root", folder, "--out", folder]
        pages = [["build", page, "--out", folder] for page in ("results", "miniature")]
        plans = [
            ["plan", name, "--scale", "paper", *form]
            for name in ("table5", "table2", "all")
            for form in ([], ["--json"])
        ]
        simulated = [["simulate", "--table4"], ["simulate", "--table4", "--json"], [*SIMULATE, *plot]]
        copy = Path(folder) / "results.json"
        copy.write_bytes(archive_path("mini").read_bytes())
        diverged = ["build", "figure11", "--out", folder]
        for words in (*plans, *simulated, empty, *pages, ["check", str(copy)], diverged):
            if code := repro(words):
                raise SystemExit(f"{' '.join(words)} ended with {code}")
        ahead.main(folder, "png", "figure2")  # which the report calls in a process of its own
    for displayed in (show("table3", root, 1, "smoke"), scoreboard(["table3"], root, 1)):
        assert displayed._repr_html_()


def uncalled(report: dict) -> Iterator[str]:
    """`file: function` for each function of a coverage report of which no line was run."""
    for path, measured in sorted(report["files"].items()):
        for name, lines in measured["functions"].items():
            if name and f"{path}: {name}" not in ELSEWHERE and lines["missing_lines"] and not lines["executed_lines"]:
                yield f"{path}: {name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path("runs"))
    parser.add_argument("--data", type=Path, required=True, help="coverage's data file, its parts beside it")
    args = parser.parse_args()
    coverage = Coverage(data_file=str(args.data), data_suffix=True, source=["analysis"])
    with coverage.collect():
        call_the_rest(args.root)
    coverage.save()
    whole = Coverage(data_file=str(args.data), source=["analysis"])
    whole.combine(keep=True)
    path = args.data.parent / "functions.json"  # no part of the data, which begin with its name
    with contextlib.redirect_stdout(io.StringIO()):
        whole.json_report(outfile=str(path))
    report = json.loads(path.read_text(encoding="utf-8"))
    known = {f"{path}: {name}" for path, one in report["files"].items() for name in one["functions"] if name}
    count = len(known - ELSEWHERE)
    missing = tuple(uncalled(report))
    for name in missing:
        print(f"not called: {name}", file=sys.stderr)
    print(f"{count - len(missing)} of {count} functions of analysis were called.")
    return 1 if missing or not count else 0


if __name__ == "__main__":
    sys.exit(main())
