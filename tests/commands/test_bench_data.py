"""The benchmark of the loader measures what it says; its speed is not a test."""

from repro.commands.bench_data import batch_tokens_per_s, main, write_random_tokens
from repro.corpus.tokens import open_tokens


def test_random_tokens_are_a_token_folder(tmp_path):
    tokens = open_tokens(write_random_tokens(tmp_path / "t", 3, 500))
    assert len(tokens) == 1500 and len(tokens.shards) == 3
    assert tokens.read(0, 1500).max() < 32_000


def test_the_speed_is_positive_and_printed(tmp_path, capsys):
    folder = write_random_tokens(tmp_path / "t", 3, 200_000)
    assert batch_tokens_per_s(folder, 64, 8, seconds=0.01) > 0
    assert main([str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and all("million tokens/s" in line for line in lines)
