"""What a later call finds of some runs is put beside what an earlier one found of the others."""

from analysis.pages.compiled import merge_compiled


def found(commit: str, **programs: str) -> dict:
    runs = [{"run": name, "commit": commit, "programs": [{"program": key}]} for name, key in programs.items()]
    return {"programs": {key: {"name": f"{key} {commit}"} for key in programs.values()}, "runs": runs}


def test_runs_that_were_not_asked_for_stay_and_unused_programs_go():
    both = merge_compiled(found("old", a="p", b="q"), found("new", b="r"), ["b", "a", "never compiled"])
    assert [(run["run"], run["commit"]) for run in both["runs"]] == [("b", "new"), ("a", "old")]
    assert both["programs"] == {"p": {"name": "p old"}, "r": {"name": "r new"}}


def test_a_run_that_the_spec_no_longer_has_goes():
    assert merge_compiled(found("old", a="p"), found("new", b="q"), ["b"])["runs"] == found("new", b="q")["runs"]
    assert merge_compiled(None, found("new", b="q"), ["b"]) == found("new", b="q")
