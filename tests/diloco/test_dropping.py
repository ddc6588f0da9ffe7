"""Value dropping (Figure 11): exact counts, masks that both ends agree on, and the merge of replicas."""

from functools import cache, partial

import codec_oracle as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from repro.diloco.compress import dequantise, quantise
from repro.diloco.dropping import drop_key, merge
from repro.spec.config import CodecConfig
from repro.spec.payload import kept_columns, row_bytes

DROPS = ["feddropout", "dare", "topk", "ties"]
RANDOM = ["feddropout", "dare"]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@cache
def encoder(codec: CodecConfig):
    return jax.jit(partial(quantise, codec=codec))


@cache
def decoder(codec: CodecConfig, columns: int):
    return jax.jit(partial(dequantise, codec=codec, columns=columns))


def send(x: np.ndarray, codec: CodecConfig, key: jax.Array | None = None) -> np.ndarray:
    return np.asarray(decoder(codec, x.shape[-1])(encoder(codec)(x, key=key), key=key))


@pytest.mark.parametrize("drop", DROPS)
@pytest.mark.parametrize("columns", [1, 10, 33])
def test_size_is_the_payload(drop: str, columns: int) -> None:
    for name in ("float32", "bfloat16", "e3m0", "e2m0", "sign"):
        codec = CodecConfig(name, drop=drop, keep=0.3)
        x = jax.ShapeDtypeStruct((4, 5, columns), jnp.float32)
        octets = jax.eval_shape(partial(quantise, codec=codec, key=drop_key(1, 2, 0, 0)), x)
        assert octets.shape == (4, 5, row_bytes(codec, columns))


@pytest.mark.parametrize("drop", DROPS)
def test_exact_count(drop: str) -> None:
    codec = CodecConfig("e3m0", drop=drop, keep=0.3)
    x = normal(20, 33) + np.float32(9)  # far from zero: what is zero afterwards was dropped
    np.testing.assert_array_equal((send(x, codec, drop_key(1, 2, 0, 0)) != 0).sum(-1), kept_columns(codec, 33))


@pytest.mark.parametrize("drop", ["topk", "ties"])
def test_topk_sends_the_oracle_bytes(drop: str) -> None:
    x = np.round(normal(20, 21), 1)  # equal magnitudes occur
    codec = CodecConfig("e3m0", drop=drop, keep=0.4)
    octets = np.asarray(encoder(codec)(x))
    for row, sent in zip(x, octets, strict=True):
        columns = oracle.keep_largest(row, 8)
        mask = oracle.pack([int(i in columns) for i in range(21)], 1)
        assert sent.tobytes() == mask + oracle.encode_row(row[columns], "e3m0")


def test_topk_zeroes_the_rest() -> None:
    x = normal(6, 15, seed=4)
    got = send(x, CodecConfig("float32", drop="topk", keep=0.2))
    for row, out in zip(x, got, strict=True):
        columns = oracle.keep_largest(row, 3)
        expected = np.zeros_like(row)
        expected[columns] = row[columns]
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("drop", DROPS)
def test_everything_kept_is_no_dropping(drop: str) -> None:
    x = normal(5, 12)
    codec = CodecConfig("float32", drop=drop, keep=1.0)
    np.testing.assert_array_equal(send(x, codec, drop_key(0, 0, 0, 0)), x)


def test_random_masks_depend_on_each_part_of_the_key_and_on_nothing_else() -> None:
    x = np.ones((3, 64), np.float32)
    codec = CodecConfig("float32", drop="feddropout", keep=0.5)
    base = send(x, codec, drop_key(1, 2, 3, 4))
    np.testing.assert_array_equal(send(x * 5, codec, drop_key(1, 2, 3, 4)), base * 5)
    others = [drop_key(9, 2, 3, 4), drop_key(1, 9, 3, 4), drop_key(1, 2, 9, 4), drop_key(1, 2, 3, 9)]
    masks = {send(x, codec, key).tobytes() for key in others} | {base.tobytes()}
    assert len(masks) == 5
    assert len({row.tobytes() for row in base}) == 3  # rows draw their own


def test_each_column_is_kept_equally_often() -> None:
    rows, columns, keep = 4000, 10, 0.3
    codec = CodecConfig("float32", drop="feddropout", keep=keep)
    often = (send(np.ones((rows, columns), np.float32), codec, drop_key(0, 1, 2, 3)) != 0).mean(0)
    assert np.all(np.abs(often - keep) < 5 * np.sqrt(keep * (1 - keep) / rows))


def test_masks_of_two_replicas_and_of_two_rows_are_unrelated() -> None:
    rows, columns, keep = 500, 40, 0.5
    codec = CodecConfig("float32", drop="feddropout", keep=keep)
    x = np.ones((rows, columns), np.float32)
    masks = [send(x, codec, drop_key(0, 1, replica, 3)) != 0 for replica in (0, 1)]
    bound = 5 * np.sqrt(keep**2 * (1 - keep**2) / (rows * columns))
    assert abs((masks[0] & masks[1]).mean() - keep**2) < bound
    assert abs((masks[0][1:] & masks[0][:-1]).mean() - keep**2) < bound
    neighbours = (masks[0][:, 1:] & masks[0][:, :-1]).mean()
    assert abs(neighbours - keep * (20 - 1) / (40 - 1)) < bound  # without replacement


def test_dare_is_unbiased_and_feddropout_is_not() -> None:
    draws = 4000
    row = normal(10, seed=8)
    x = np.tile(row, (draws, 1))
    # round(0.25 · 10) = 3 of 10 kept: the factor is 10/3, where 1/0.25 would be biased.
    dare = send(x, CodecConfig("float32", drop="dare", keep=0.25), drop_key(5, 0, 0, 0))
    error = 5 * np.abs(row) * np.sqrt((10 / 3 - 1) / draws)
    assert np.all(np.abs(dare.mean(0) - row) < error)
    fed = send(x, CodecConfig("float32", drop="feddropout", keep=0.25), drop_key(5, 0, 0, 0))
    np.testing.assert_allclose(fed * np.float32(10 / 3), dare, rtol=1e-6)


@pytest.mark.parametrize("drop", RANDOM)
def test_random_masks_are_those_of_the_logical_array_when_sharded(drop: str) -> None:
    mesh = jax.make_mesh((4,), ("fsdp",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec(None, "fsdp", None)
    x = normal(2, 8, 9)
    codec = CodecConfig("e3m0", drop=drop, keep=0.5)
    key = drop_key(3, 1, 0, 2)
    place = partial(jax.shard_map, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    sent = jax.jit(place(partial(quantise, codec=codec, key=key, axis_name="fsdp")))(x)
    np.testing.assert_array_equal(sent, encoder(codec)(x, key=key))
    read = jax.jit(place(partial(dequantise, codec=codec, columns=9, key=key, axis_name="fsdp")))(sent)
    np.testing.assert_array_equal(read, send(x, codec, key))


def test_a_random_mask_needs_a_key() -> None:
    with pytest.raises(ValueError, match="drop_key"):
        quantise(jnp.ones((2, 4)), CodecConfig("e3m0", drop="dare", keep=0.5))


def test_merge_is_the_mean_over_replicas() -> None:
    deltas = normal(3, 4, 5)
    for drop in ("none", "feddropout", "dare", "topk"):
        got = merge(jnp.asarray(deltas), CodecConfig("e3m0", drop=drop, keep=0.5))
        np.testing.assert_allclose(got, deltas.astype(np.float64).mean(0), rtol=1e-5, atol=1e-7)


def test_ties_elects_a_sign_and_averages_those_that_agree() -> None:
    deltas = np.array(
        [
            [3.0, 1.0, 0.0, 2.0, 1.0, -4.0],
            [-1.0, 2.0, 0.0, -2.0, 0.0, 1.0],
            [1.0, 0.0, 0.0, 0.0, -3.0, -2.0],
        ],
        np.float32,
    )
    # sums 3, 3, 0, 0, -2, -5; means over the agreeing non-zero values only
    got = merge(jnp.asarray(deltas), CodecConfig("e3m0", drop="ties", keep=0.5))
    np.testing.assert_array_equal(got, [2.0, 1.5, 0.0, 0.0, -3.0, -3.0])


@pytest.mark.parametrize("drop", DROPS)
def test_a_non_finite_value_is_seen_even_where_it_is_dropped(drop: str) -> None:
    codec = CodecConfig("e3m0", drop=drop, keep=0.25)
    received = []
    for replica in range(2):
        x = normal(40, 16, seed=replica)
        if replica == 0:
            x[np.arange(16), np.arange(16)] = np.nan
        received.append(send(x, codec, drop_key(1, 2, replica, 0)))
    merged = np.asarray(merge(jnp.asarray(np.stack(received)), codec))
    assert np.flatnonzero(~np.isfinite(merged).all(-1)).tolist() == list(range(16))
