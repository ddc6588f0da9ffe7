"""The decoder against a plain float64 NumPy forward pass, and the properties that the trainer relies on."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_oracle import MODEL, init, oracle_logits, some_params

from repro.diloco import model as lm
from repro.diloco.derivatives import ANYWHERE, HALVED_FROM, LOSS_ROWS, ONE_CPU, Kernels
from repro.errors import UserError
from repro.spec.config import ModelConfig
from repro.spec.shapes import parameter_shapes

pytestmark = pytest.mark.compiles

BFLOAT16 = dataclasses.replace(MODEL, compute_dtype="bfloat16")

logits = jax.jit(lm.logits, static_argnames="model")
nll = jax.jit(lm.nll, static_argnames=("model", "unroll", "remat", "kernels"))
KERNELS = pytest.mark.parametrize("kernels", [ANYWHERE, ONE_CPU], ids=["anywhere", "one-cpu"])
token_log_likelihoods = jax.jit(lm.token_log_likelihoods, static_argnames="model")


def some_tokens(rows: int = 4, model: ModelConfig = MODEL, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, model.vocab, (rows, model.seq_len + 1), dtype=np.int32)


def oracle_loss(params, tokens: np.ndarray, model: ModelConfig) -> tuple[float, float]:
    scores = oracle_logits(params, tokens[:, :-1], model.heads)
    total, losses = 0.0, 0.0
    for row, following in zip(scores, tokens[:, 1:], strict=True):
        for score, target in zip(row, following, strict=True):
            log_z = math.log(np.exp(score).sum())
            total += log_z - score[target]
            losses += log_z - score[target] + model.z_loss * log_z**2
    count = tokens[:, 1:].size
    return losses / count, total / count


def test_parameters_are_the_tree_of_shapes_in_float32():
    abstract = jax.eval_shape(lambda key: init(key, BFLOAT16), jax.random.key(0))
    assert jax.tree.map(lambda x: x.shape, abstract) == parameter_shapes(BFLOAT16)
    assert {x.dtype for x in jax.tree.leaves(abstract)} == {jnp.dtype("float32")}


def test_init_is_a_pure_function_of_key_and_model():
    a, b, c = (init(jax.random.key(k), MODEL) for k in (0, 0, 1))
    assert all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    assert not np.array_equal(a["embed"]["tokens"], c["embed"]["tokens"])
    assert not np.array_equal(a["layers"]["query"][0], a["layers"]["query"][1])


def test_init_has_the_named_variances():
    wide = dataclasses.replace(MODEL, ffn_width=1024, vocab=512, heads=4)
    params = init(jax.random.key(3), wide)
    d, f = wide.width, wide.ffn_width
    assert np.std(params["embed"]["tokens"]) == pytest.approx(d**-0.5, rel=0.02)
    assert np.std(params["embed"]["positions"]) == pytest.approx(d**-0.5, rel=0.1)
    for name, fans in {"query": 2 * d, "output": 2 * d, "up": d + f, "down": d + f}.items():
        assert np.std(params["layers"][name]) == pytest.approx(math.sqrt(2 / fans), rel=0.02)
        assert np.abs(params["layers"][name]).max() <= math.sqrt(6 / fans)
    assert all(np.all(np.asarray(x) == 1) for x in (params["embed"]["final_norm"], params["layers"]["key_norm"]))


def test_logits_equal_the_oracle():
    params, tokens = some_params(), some_tokens()[:, :-1]
    np.testing.assert_allclose(
        logits(params, tokens, MODEL), oracle_logits(params, tokens, MODEL.heads), rtol=2e-5, atol=2e-5
    )


@KERNELS
def test_loss_and_nll_equal_the_oracle(kernels: Kernels):
    params, tokens = some_params(), some_tokens()
    np.testing.assert_allclose(
        nll(params, tokens, MODEL, kernels=kernels), oracle_loss(params, tokens, MODEL), rtol=2e-6
    )


@KERNELS
def test_gradients_equal_finite_differences_of_the_oracle(kernels: Kernels):
    params, tokens = some_params(), some_tokens(rows=2)
    gradient = jax.jit(jax.grad(lambda p: nll(p, tokens, MODEL, kernels=kernels)[0]))(params)
    rng = np.random.default_rng(0)
    for group, leaves in params.items():
        for name in leaves:
            direction = rng.normal(size=leaves[name].shape)

            def along(step, group=group, name=name, direction=direction):
                moved = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
                moved[group][name] = moved[group][name] + step * direction
                return oracle_loss(moved, tokens, MODEL)[0]

            slope = (along(1e-5) - along(-1e-5)) / 2e-5
            ours = float(np.sum(np.asarray(gradient[group][name], np.float64) * direction))
            assert ours == pytest.approx(slope, rel=2e-4, abs=2e-5), f"{group}/{name}"


def head_cut_gradients(dtype: str, kernels: Kernels):
    """Loss and gradients of nine rows long enough that attention is halved and the head is cut."""
    model = dataclasses.replace(MODEL, seq_len=64, compute_dtype=dtype)
    assert model.seq_len >= HALVED_FROM and 9 * model.seq_len > LOSS_ROWS
    params = init(jax.random.key(1), model)
    tokens = np.random.default_rng(2).integers(0, model.vocab, (9, model.seq_len + 1))
    return jax.jit(jax.value_and_grad(lambda p: nll(p, tokens, model, kernels=kernels), has_aux=True))(params)


JAXS = ANYWHERE._replace(matmul=jnp.matmul)


def test_one_cpus_derivatives_are_jaxs_where_attention_is_halved_and_the_head_cut():
    expected, actual = head_cut_gradients("float32", JAXS), head_cut_gradients("float32", ONE_CPU)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6), expected, actual)


def test_in_bfloat16_one_cpus_derivatives_are_as_near_to_float32_as_jaxs():
    (_, truth), (_, jaxs), (_, ours) = (
        head_cut_gradients(*of) for of in (("float32", JAXS), ("bfloat16", JAXS), ("bfloat16", ONE_CPU))
    )

    def error(gradient):
        return jax.tree.map(lambda a, b: np.linalg.norm(a - b) / np.linalg.norm(b), gradient, truth)

    # Not beside each other: jax 0.12's own products of bfloat16 err by twice what 0.10's did.
    jax.tree.map(lambda our, their: np.testing.assert_array_less(our, 1.25 * their), error(ours), error(jaxs))


def test_token_log_likelihoods_are_normalised_and_average_to_the_nll():
    params, tokens = some_params(), some_tokens()
    per_token = token_log_likelihoods(params, tokens, MODEL)
    assert per_token.shape == (4, MODEL.seq_len)
    assert -np.mean(per_token) == pytest.approx(float(nll(params, tokens, MODEL)[1]), rel=1e-6)
    every_next = np.repeat(tokens[:1, :2], MODEL.vocab, axis=0)
    every_next[:, 1] = np.arange(MODEL.vocab)
    total = np.exp(token_log_likelihoods(params, every_next, MODEL)).sum()
    assert total == pytest.approx(1.0, rel=1e-5)


def test_later_tokens_change_nothing_before_them():
    params, tokens = some_params(), some_tokens()[:, :-1]
    changed = tokens.copy()
    changed[:, 5] = (changed[:, 5] + 1) % MODEL.vocab
    before, after = logits(params, tokens, MODEL), logits(params, changed, MODEL)
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert np.all(np.any(np.asarray(before[:, 5:]) != np.asarray(after[:, 5:]), axis=-1))


def test_a_shorter_sequence_gives_the_same_logits():
    params, tokens = some_params(), some_tokens()[:, :-1]
    np.testing.assert_allclose(
        logits(params, tokens[:, :4], MODEL), logits(params, tokens, MODEL)[:, :4], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(("unroll", "remat"), [(True, "dots"), (True, "full"), (False, "none"), (False, "full")])
def test_unroll_and_remat_do_not_change_loss_or_gradients(unroll: bool, remat: str):
    params, tokens = some_params(), some_tokens()

    def grad(unroll: bool, remat: str):
        return jax.jit(jax.value_and_grad(lambda p: nll(p, tokens, MODEL, unroll=unroll, remat=remat)[0]))(params)

    expected, actual = grad(True, "none"), grad(unroll, remat)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), expected, actual)


def test_replicas_under_vmap_are_the_replicas_alone():
    params = [some_params(seed=s) for s in (0, 7)]
    tokens = np.stack([some_tokens(seed=s) for s in (1, 2)])
    grad = jax.jit(jax.value_and_grad(lambda p, t: nll(p, t, MODEL)[0]))
    together = jax.jit(jax.vmap(grad))(jax.tree.map(lambda *x: jnp.stack(x), *params), tokens)
    for m in range(2):
        alone = grad(params[m], tokens[m])
        jax.tree.map(lambda a, b, m=m: np.testing.assert_allclose(a[m], b, rtol=1e-4, atol=1e-5), together, alone)


def test_bfloat16_computes_in_bfloat16_and_stays_near_float32():
    params, tokens = init(jax.random.key(0), MODEL), some_tokens()
    scores = logits(params, tokens[:, :-1], BFLOAT16)
    assert scores.dtype == jnp.float32
    exact = nll(params, tokens, MODEL)[0]
    grad = jax.jit(jax.value_and_grad(lambda p: nll(p, tokens, BFLOAT16)[0]))
    loss, gradient = grad(params)
    assert {x.dtype for x in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}
    assert loss != exact
    assert loss == pytest.approx(float(exact), rel=0.01)
    text = grad.lower(params).as_text()
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert products
    assert all(line.split(":")[-1].split("->")[0].count("bf16") == 2 for line in products)


def test_constrain_sees_the_stream_of_every_block_and_the_logits():
    seen: list[tuple[int, ...]] = []

    def record(x: jax.Array) -> jax.Array:
        seen.append(x.shape)
        return x

    lm.nll(some_params(), jnp.asarray(some_tokens()), MODEL, constrain=record)
    stream, scores = (4, MODEL.seq_len, MODEL.width), (4, MODEL.seq_len, MODEL.vocab)
    assert {stream, scores} == set(seen)
    assert seen[-1] == scores


def test_a_wrong_remat_or_too_long_a_sequence_is_one_sentence():
    params = some_params()
    with pytest.raises(UserError, match=r"'some'.*none, dots, full"):
        nll(params, some_tokens(), MODEL, remat="some")
    with pytest.raises(UserError, match=r"11 tokens.*9 positions"):
        logits(params, np.zeros((1, 11), np.int32), MODEL)
