"""The reader against tokens written by hand, and the order of examples against what it promises."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.corpus import tokens as data
from repro.corpus.tokens import BLOCK, Batches, open_tokens, permute
from repro.errors import UserError


def write_tokens(folder, shards, *, vocab=1000, text_bytes=7):
    """A token folder as the format describes it, sharing no code with the writer."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for index, tokens in enumerate(shards):
        content = np.asarray(tokens, "<u2" if vocab <= 65536 else "<u4").tobytes()
        (folder / f"train-{index}.bin").write_bytes(content)
        listed.append(
            {
                "file": f"train-{index}.bin",
                "documents": 1,
                "tokens": len(tokens),
                "bytes": text_bytes,
                "sha256": hashlib.sha256(content).hexdigest(),
            }
        )
    tokenizer = {
        "kind": "bytes",
        "file": None,
        "sha256": "",
        "vocab": vocab,
        "unk": -1,
        "bos": -1,
        "eos": 0,
        "pad": -1,
    }
    manifest = {
        "format": 1,
        "corpus": "smoke",
        "in_domain": [],
        "tokenizer": tokenizer,
        "splits": {"train": {"shards": listed}},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


@pytest.fixture
def counting(tmp_path):
    """1000 tokens in four uneven shards, each token its own place."""
    places = np.arange(1000)
    return open_tokens(write_tokens(tmp_path / "t", np.split(places, [1, 3, 700])))


def test_shards_read_as_one_sequence(counting):
    assert len(counting) == 1000
    np.testing.assert_array_equal(counting.read(0, 1000), np.arange(1000))
    np.testing.assert_array_equal(counting.read(698, 5), [698, 699, 700, 701, 702])
    assert counting.read(0, 3).dtype == np.int32
    with pytest.raises(IndexError):
        counting.read(998, 3)


def test_more_shards_than_may_stay_open_read_the_same(tmp_path, monkeypatch):
    places = np.arange(1000)
    folder = write_tokens(tmp_path / "t", np.split(places, range(7, 1000, 7)))
    monkeypatch.setattr(data, "may_map", lambda shards: shards < 143)
    tokens = open_tokens(folder)
    assert len(tokens.shards) == 143
    descriptors = len([*Path("/dev/fd").iterdir()])
    np.testing.assert_array_equal(tokens.read(0, 1000), places)
    np.testing.assert_array_equal(tokens.windows(99, 0, 10)[:, 1:].ravel(), places[1:991])
    assert len([*Path("/dev/fd").iterdir()]) == descriptors
    monkeypatch.setattr(data, "may_map", lambda shards: True)
    mapped = open_tokens(folder)
    np.testing.assert_array_equal(mapped.read(0, 1000), places)
    assert len([*Path("/dev/fd").iterdir()]) == descriptors + 143


def test_the_limit_of_descriptors_is_raised_by_what_is_needed_if_it_may(monkeypatch):
    limits = []
    monkeypatch.setattr(data.resource, "getrlimit", lambda _: (1_024, 4_000))
    monkeypatch.setattr(data.resource, "setrlimit", lambda _, new: limits.append(new))
    assert data.may_map(128) and not limits
    assert data.may_map(2_976) and limits == [(4_000, 4_000)]
    assert not data.may_map(2_977) and len(limits) == 1


def test_large_vocabularies_are_32_bits_wide(tmp_path):
    tokens = open_tokens(write_tokens(tmp_path / "t", [[70_000, 5, 99_999]], vocab=100_000))
    np.testing.assert_array_equal(tokens.read(0, 3), [70_000, 5, 99_999])


@pytest.mark.parametrize(("seq_len", "windows"), [(999, 1), (1000, 0), (333, 3), (10, 99), (1, 999)])
def test_windows_overlap_by_one_token(counting, seq_len, windows):
    assert counting.sequences(seq_len) == windows
    read = counting.windows(seq_len, 0, windows)
    assert read.shape == (windows, seq_len + 1)
    np.testing.assert_array_equal(read[:, 1:].ravel(), 1 + np.arange(windows * seq_len))
    np.testing.assert_array_equal(read[:, 0], seq_len * np.arange(windows))
    with pytest.raises(UserError, match="ask for fewer or shorten it"):
        counting.windows(seq_len, 0, windows + 1)


@given(size=st.integers(1, 5000), seed=st.integers(0, 2**40), epoch=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_permute_is_one_to_one(size, seed, epoch):
    out = permute(np.arange(size, dtype=np.uint64), size, (seed, epoch))
    np.testing.assert_array_equal(np.sort(out), np.arange(size))


def test_permute_needs_no_table_and_scatters():
    size = 83_000_000_000
    out = permute(np.arange(20_000, dtype=np.uint64), size, (1, 0)).astype(np.float64) / size
    assert (out < 1).all() and len(np.unique(out)) == 20_000
    # Twenty equal bins hold 1000 each give or take; 5 standard deviations are 155.
    assert abs(np.histogram(out, 20, (0, 1))[0] - 1000).max() < 155
    # Neighbours land apart independently: the mean distance of two uniform numbers is 1/3.
    assert abs(np.diff(out)).mean() == pytest.approx(1 / 3, abs=0.01)


@given(
    rows=st.integers(1, 4),
    replicas=st.sampled_from([1, 2, 4]),
    step=st.integers(0, 20),
    seq_len=st.integers(1, 11),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_all_replica_counts_see_the_same_examples(tmp_path_factory, rows, replicas, step, seq_len, seed):
    tokens = open_tokens(write_tokens(tmp_path_factory.mktemp("t"), np.split(np.arange(2000), [77])))
    batch = 4 * rows
    whole = Batches(tokens, seq_len, batch, 1, seed, repeat=True).batch(step, 0)
    parts = Batches(tokens, seq_len, batch, replicas, seed, repeat=True)
    np.testing.assert_array_equal(np.concatenate([parts.batch(step, r) for r in range(replicas)]), whole)
    assert whole.shape == (batch, seq_len + 1) and whole.dtype == np.int32
    np.testing.assert_array_equal(np.diff(whole, axis=1), 1)
    assert (whole[:, 0] % seq_len == 0).all()


@pytest.mark.parametrize(("batch", "replicas"), [(2, 1), (2, 2), (4, 4), (4, 2), (8, 8)])
def test_all_batch_sizes_read_one_order_from_the_start(counting, batch, replicas):
    """As many tokens are the same examples in the same order, whatever the steps they come in."""
    alone, batches = Batches(counting, 9, 1, 1, seed=3), Batches(counting, 9, batch, replicas, seed=3)
    one_by_one = [alone.batch(step, 0)[0].tolist() for step in range(24)]
    read = [batches.batch(step, r).tolist() for step in range(24 // batch) for r in range(replicas)]
    assert [row for rows in read for row in rows] == one_by_one


def test_an_epoch_predicts_every_token_once_and_the_next_in_another_order(counting):
    batches = Batches(counting, 9, 37, 1, 5, repeat=True)  # 111 windows: three steps of 37 are one epoch
    epochs = [np.concatenate([batches.batch(3 * epoch + step, 0) for step in range(3)]) for epoch in range(3)]
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch[:, 1:].ravel()), np.arange(1, 1000))
    assert (epochs[0] != epochs[1]).any() and (epochs[1] != epochs[2]).any() and (epochs[0] != epochs[2]).any()
    other_seed = Batches(counting, 9, 37, 1, 6).batch(0, 0)
    assert (other_seed != batches.batch(0, 0)).any()


def test_batches_are_pure_in_any_order_and_across_blocks(tmp_path):
    windows = 3 * BLOCK + 17
    shards = np.split(np.arange(windows * 2 + 1) % 60_000, 5 * np.arange(1, 6))
    tokens = open_tokens(write_tokens(tmp_path / "t", shards, vocab=60_000))
    forward = Batches(tokens, 2, 100, 2, 3)
    expected = [forward.batch(step, 1) for step in range(forward.steps_per_epoch)]
    for step in np.random.default_rng(0).permutation(forward.steps_per_epoch)[:30]:
        np.testing.assert_array_equal(Batches(tokens, 2, 100, 2, 3).batch(int(step), 1), expected[step])
        np.testing.assert_array_equal(forward.batch(int(step), 1), expected[step])


def scalar_permute(position, size, key):
    """The documented network on Python integers, one number at a time."""

    def scatter(x):
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31

    half = 1
    while 4**half < size:
        half += 1
    keys = [int(k) for k in np.random.SeedSequence(key).generate_state(6, np.uint64)]
    while True:
        left, right = divmod(position, 2**half)
        for k in keys:
            left, right = right, left ^ scatter((right + k) % 2**64) % 2**half
        position = left * 2**half + right
        if position < size:
            return position


@given(size=st.integers(1, 10**12), seed=st.integers(0, 2**63), data=st.data())
@settings(max_examples=60, deadline=None)
def test_permute_is_the_documented_network(size, seed, data):
    position = data.draw(st.integers(0, size - 1))
    got = permute(np.array([position], np.uint64), size, (seed, 2))
    assert got.tolist() == [scalar_permute(position, size, (seed, 2))]


def test_the_order_of_examples_is_fixed(counting):
    """Published runs depend on it: a change of the permutation is a change of every result."""
    expected = [9 * scalar_permute(position, 111, (0, 0)) for position in (9, 10, 11)]
    assert Batches(counting, 9, 6, 2, 0).batch(1, 1)[:, 0].tolist() == expected == [486, 864, 936]


def test_running_out_of_text_is_an_error_before_any_step(counting):
    batches = Batches(counting, 10, 10, 1, 0)  # 99 windows
    batches.require(9)
    with pytest.raises(UserError, match="10 steps"):
        batches.require(10)
    with pytest.raises(UserError, match="one epoch"):
        batches.batch(9, 0)
    Batches(counting, 10, 10, 1, 0, repeat=True).require(10_000)


def test_impossible_batches_are_refused(counting):
    with pytest.raises(UserError, match="6 sequences doesn't divide among 4"):
        Batches(counting, 10, 6, 4, 0)
    with pytest.raises(UserError, match="too few for one sequence of 1000"):
        Batches(counting, 1000, 2, 1, 0)
    with pytest.raises(UserError, match="seed is -1"):
        Batches(counting, 10, 2, 1, -1)


@pytest.mark.parametrize("damage", ["cut", "gone", "flipped"])
def test_a_damaged_shard_is_named_with_the_mend(tmp_path, damage):
    folder = write_tokens(tmp_path / "t", [[1, 2, 3], [4, 5, 6]])
    shard = folder / "train-1.bin"
    content = bytearray(shard.read_bytes())
    open_tokens(folder).verify()
    if damage == "gone":
        shard.unlink()
    else:
        shard.write_bytes(content[:-1] if damage == "cut" else bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(UserError, match=r"train-1\.bin is damaged .*: delete .*prepare smoke"):
        open_tokens(folder).verify()
    if damage != "flipped":
        with pytest.raises(UserError, match=r"train-1\.bin"):
            open_tokens(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "splits": {"train": {}}}'])
def test_a_damaged_manifest_is_one_sentence(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"manifest\.json is damaged"):
        open_tokens(tmp_path)


def test_folders_that_cannot_be_opened(tmp_path):
    with pytest.raises(UserError, match="repro prepare"):
        open_tokens(tmp_path / "nothing")
    folder = write_tokens(tmp_path / "t", [[1, 2]])
    with pytest.raises(UserError, match="no split 'test': choose one of train"):
        open_tokens(folder, "test")
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": 2}), encoding="utf-8")
    with pytest.raises(UserError, match="token format 2"):
        open_tokens(folder)
