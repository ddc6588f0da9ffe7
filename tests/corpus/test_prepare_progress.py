"""Progress in a log: lines a person can follow, and not one for each file."""

from repro.corpus import preparing


def test_each_stage_tells_its_start_and_its_end_and_little_between(monkeypatch) -> None:
    clock, said = [0.0], []
    monkeypatch.setattr(preparing.time, "monotonic", lambda: clock[0])
    lines = preparing._Lines(said.append)
    for stage in ("text", "tokens"):
        for done in range(0, 101):
            lines(stage, done, 100)
            clock[0] += preparing.LINE_SECONDS / 40
        lines(stage, 100, 100)
    assert [line.split()[:2] for line in said] == [[s, n] for s in ("text", "tokens") for n in ("0", "40", "80", "100")]
    assert said[1].endswith("left")
    assert said[3].endswith("100 %")
