"""What a sweep says where there is no terminal."""

import pytest
import torture
from fabricated import validations

from repro.corpus.preparing import progress_bar
from repro.runs.progress import Board


def test_a_message_is_one_whole_line_in_a_pipe(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    runs = torture.planned(2)
    reason = "the loss [of step 3] is nan, " + 10 * "and nobody can say why it should be so, "
    with Board(runs, 1, "a title " * 12) as board:
        board.failed(0, runs[0], reason)
        board.finished(0, runs[1], validations(runs[1].config, outer=1.0))
    with progress_bar() as progress:
        progress("a stage " * 12, 0, 1)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[0].rstrip() == "a title " * 12 + ": 2 runs to do"
    assert lines[1].rstrip() == f"{runs[0].run_id}  FAILED: {reason}".rstrip()
    assert lines[2].startswith(f"{runs[1].run_id}  validation loss 1.0000")
