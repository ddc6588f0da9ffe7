"""What a process that only scores is started with."""

from repro.machines.hardware import ALLOCATOR, Hardware, scoring_environment

CPU = Hardware("cpu", "cpu", 2, 2, None)


def test_evaluators_have_the_allocator_of_workers_and_no_flags_of_training():
    environment = scoring_environment(CPU, {"XLA_FLAGS": "--xla_dump_to=x"})
    assert environment == {**ALLOCATOR, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_dump_to=x"}
    gpu = Hardware("cuda", "NVIDIA", 1, 1, None)
    assert not set(ALLOCATOR) & set(scoring_environment(gpu, {}))
