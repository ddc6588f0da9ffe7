"""What `make bench` compares is what it says: equal tokens a step, one model a table; how fast it is is not a test."""

from repro.commands.bench_shapes import configs


def test_batches_differ_in_the_batch_alone_and_the_first_is_the_usual_one():
    cases = configs()["batch"]
    assert [config.batch for config in cases.values()] == [8, 1, 2, 4, 16, 32]
    assert len({config.model for config in cases.values()}) == 1


def test_methods_take_equal_tokens_at_each_step_whatever_their_replicas():
    cases = configs()["method"]
    assert {config.batch for config in cases.values()} == {8}
    assert {(c.sync is not None, c.replicas) for c in cases.values()} == {(False, 1)} | {
        (True, m) for m in (1, 2, 4, 8)
    }
    assert sum("Streaming" in name for name in cases) == sum("DiLoCo" in name for name in cases) == 4


def test_shape_d_is_held_against_data_parallel_of_as_many_tokens():
    one, two = configs()["shape"].values()
    assert (one.sync, one.replicas, two.replicas) == (None, 1, 2) and one.batch == two.batch and one.model == two.model
