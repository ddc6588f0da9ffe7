"""What a restart and a save cost is calculated from two provenances; how fast they are is not a test."""

from repro.commands.bench_start import lines

SECOND = {"start_s": {"before": 2.0, "restore": 1.0, "programs": 5.0, "first_step": 0.1, "total": 8.2}}
THIRD = {
    "start_s": {"before": 2.1, "restore": 1.0, "programs": 4.0, "first_step": 0.1, "total": 7.2},
    "saving": {"saves": 4, "seconds": 0.5, "share": 0.01},
    "training_s": 50.0,
}


def test_a_restart_is_held_against_its_parts_and_the_quicker_load_of_programs():
    parts, restart, saving = lines(SECOND, THIRD)
    assert "before 2.10 s, restore 1.00 s, programs 4.00 s, first_step 0.10 s" in parts
    assert "0.911  bar <= 1" in restart  # 7.2 / (2.1 + 1 + 1.2 * 4)
    slower = {**THIRD, "start_s": SECOND["start_s"]}
    assert "1.051  bar <= 1" in lines(THIRD, slower)[1]  # 8.2 / (2 + 1 + 1.2 * 4)
    assert "0.0100  bar <= 0.02  4 saves, 0.50 s of 50.0 s" in saving
