"""The page that `make bench-peers` writes; what it measures is not a test."""

from pathlib import Path

from repro.commands.bench_peers import PAGE, page


def test_new_tables_leave_the_sections_below_them(tmp_path: Path):
    path = tmp_path / "speed.md"
    assert page("tables", path) == f"{PAGE}tables\n"
    path.write_text(f"{PAGE}old tables\n\n## What was tried\n\nMuch.\n", encoding="utf-8")
    assert page("tables", path) == f"{PAGE}tables\n\n## What was tried\n\nMuch.\n"
