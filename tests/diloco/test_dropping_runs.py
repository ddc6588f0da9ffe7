"""Runs that drop values, against the float64 oracle fed with the trainer's own deltas (Figure 11).

The masks, the codes and the merge of the replicas are computed here a second time, value by value: what is dropped
decides by comparing, so that the oracle gets the same deltas and nothing else.
"""

from dataclasses import replace

import codec_oracle
import numpy as np
import oracle
import pytest
import rig
import tiny

from repro.spec.config import CodecConfig, RunConfig

pytestmark = pytest.mark.compiles

KEEP, WORD = 0.3, 0xFFFFFFFF
# Leaves are numbered as the model names them, for the keys of random masks.
LEAVES = [("embed", leaf) for leaf in ("tokens", "positions", "final_norm")] + [
    ("layers", leaf)
    for leaf in ("attn_norm", "query", "key", "value", "query_norm", "key_norm", "output", "mlp_norm", "up", "down")
]


QUICK = [("feddropout", 2), ("topk", 2), ("dare", 3), ("ties", 3)]
SLOW = [("dare", 2), ("ties", 2), ("feddropout", 3), ("topk", 3)]


@pytest.mark.parametrize(
    ("drop", "replicas"), [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_a_run_that_drops_values_follows_the_oracle(drop: str, replicas: int) -> None:
    codec = "e3m0" if replicas == 2 else "float32"
    sync = tiny.synced(every=3, delays=(1,), mix=0.25, fragments=tiny.WHOLE)
    sync = replace(sync, codec=CodecConfig(codec, drop=drop, keep=KEEP))
    config = tiny.run_config(sync, replicas=replicas, batch=2 * replicas, steps=11, seed=5)
    trace = rig.drive(config, tiny.ONE)
    deltas = rig.own_deltas(config, trace)
    assert sorted(deltas) == [(3, 0), (6, 0), (9, 0)]
    merge = oracle.elected_mean if drop == "ties" else None
    record = rig.expected(config, recorded_deltas=deltas, transmit=thinned(config), merge=merge)
    rig.assert_follows(trace, record, 1e-5)
    whole = rig.expected(config, recorded_deltas=deltas)
    assert all(np.any(x != rig.flatten(whole.outer[-1][0])[n]) for n, x in rig.flatten(record.outer[-1][0]).items())


def thinned(config: RunConfig) -> oracle.Transmit:
    """What the others get of a delta: of each row the kept values, encoded; zeros in the other places."""
    assert config.sync is not None
    codec = config.sync.codec

    def transmit(delta: oracle.Tree, t: int, p: int, m: int) -> oracle.Tree:
        received: oracle.Tree = {group: {} for group in delta}
        for number, (group, name) in enumerate(LEAVES):
            leaf = np.asarray(delta[group][name], np.float32)
            key = [mask_word(start, config.seed, t, m, number) for start in (0x9E3779B9, 0x7F4A7C15)]
            rows = leaf.reshape(-1, leaf.shape[-1])
            thin = [thin_row(row, codec, key, r) for r, row in enumerate(rows)]
            received[group][name] = np.stack(thin).reshape(leaf.shape)
        return received

    return transmit


def thin_row(row: np.ndarray, codec: CodecConfig, key: list[int], number: int) -> np.ndarray:
    count = max(1, int(np.floor(codec.keep * len(row) + 0.5)))
    if codec.drop in ("topk", "ties"):
        columns = codec_oracle.keep_largest(row, count)
    else:
        scores = [mixed(mixed(number ^ key[0]) ^ mixed(c ^ key[1])) >> 1 for c in range(len(row))]
        columns = np.array(sorted(sorted(range(len(row)), key=lambda c: (-scores[c], c))[:count]))
    sent = codec_oracle.encode_row(row[columns], codec.format)
    received = np.zeros(len(row))
    received[columns] = codec_oracle.decode_row(sent, codec.format, count)
    return received * (len(row) / count if codec.drop == "dare" else 1.0)


def mask_word(start: int, *parts: int) -> int:
    """One of a key's two words: seed, step of the send, replica and leaf, mixed in one after the other."""
    for part in parts:
        start = mixed(start ^ part)
    return start


def mixed(word: int) -> int:
    """MurmurHash3's finaliser for 32 bits, in Python's integers."""
    word = (word ^ (word >> 16)) * 0x85EBCA6B & WORD
    word = (word ^ (word >> 13)) * 0xC2B2AE35 & WORD
    return word ^ (word >> 16)
