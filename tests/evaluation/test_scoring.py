"""Log-likelihoods against the NumPy oracle and by hand, whatever the batch, the devices and the processes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import unigram
from hypothesis import given
from hypothesis import strategies as st
from model_oracle import MODEL, oracle_logits, some_params

from repro.diloco.mesh import make_mesh
from repro.diloco.resources import Resources
from repro.evaluation.scoring import SHORTEST, Scorer, ScoringRequest, batches, padded_length

pytestmark = pytest.mark.compiles

PARAMS = some_params()


def scored(devices: int = 1, batch: int = 8, **options: Any) -> Scorer:
    mesh = make_mesh(Resources(data=devices), jax.devices()[:devices])
    return Scorer(MODEL, PARAMS, mesh=mesh, batch=batch, **options)


def by_oracle(request: ScoringRequest) -> tuple[float, bool]:
    """The last positions that fit, in float64."""
    tokens = request.tokens[-(MODEL.seq_len + 1) :]
    count = min(request.scored, len(tokens) - 1)
    logits = oracle_logits(PARAMS, tokens[None, :-1], MODEL.heads)[0]
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    targets = tokens[1:]
    total = sum(log_p[i, targets[i]] for i in range(len(targets) - count, len(targets)))
    greedy = all(log_p[i].argmax() == targets[i] for i in range(len(targets) - count, len(targets)))
    return float(total), greedy


@pytest.mark.compiles
@pytest.mark.parametrize(("length", "count"), [(4, 2), (13, 3), (13, 12), (2, 1)])
def test_scores_equal_the_oracle_also_where_context_or_continuation_is_cut(length: int, count: int):
    """The model has nine positions."""
    tokens = np.random.default_rng(length).integers(0, MODEL.vocab, length).astype(np.int32)
    if length == 2:  # let the most likely token follow
        tokens[1] = oracle_logits(PARAMS, tokens[None, :1], MODEL.heads)[0, 0].argmax()
    value, is_greedy = by_oracle(ScoringRequest(tokens, count))
    values, greedy = scored().score([ScoringRequest(tokens, count)])
    assert values[0] == pytest.approx(value, rel=2e-6)
    assert greedy[0] == is_greedy == (length == 2)


@pytest.mark.compiles
def test_a_likelihood_known_by_hand():
    text = "b cab"
    request = ScoringRequest(np.array(list(text.encode()), np.int32), 3)
    values, greedy = Scorer(unigram.MODEL, unigram.params()).score([request])
    assert values[0] == pytest.approx(-(3 + 1 + 2) * np.log(2), rel=1e-6)
    assert not greedy[0]


@pytest.mark.compiles
def test_batch_and_devices_change_no_bit():
    """Thirteen requests divide by neither seven nor four."""
    requests = unigram.some_requests(13, MODEL.vocab, longest=12)
    expected = scored(batch=1).score(requests)
    for devices, batch in ((1, 7), (1, 32), (4, 1), (4, 7), (4, 32)):
        found = scored(devices, batch).score(requests)
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"{devices} devices, batch {batch}")


@pytest.mark.compiles
def test_companions_change_nothing_and_what_is_skipped_stays():
    requests = unigram.some_requests(40, MODEL.vocab, longest=12)
    scorer = scored()
    values, _ = scorer.score(requests)
    skip = np.arange(40) % 3 == 0
    saved: list[int] = []
    again, _ = scorer.score(requests, lambda indices, *_: saved.extend(indices), skip)
    np.testing.assert_allclose(again[~skip], values[~skip], rtol=1e-6)
    assert not again[skip].any() and sorted(saved) == np.flatnonzero(~skip).tolist()


@given(
    st.lists(st.integers(1, 300), max_size=60),
    st.sampled_from((9, 64, 128, 200)),
    st.integers(1, 9),
    st.data(),
)
def test_every_request_is_in_one_batch_of_few_shapes(lengths: list[int], longest: int, batch: int, data: Any):
    lengths = [min(n, longest) for n in lengths]
    skip = np.array(data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths))), bool)
    found = list(batches(lengths, longest, lambda n: batch * max(1, longest // n), skip))
    assert sorted(i for b in found for i in b.indices) == np.flatnonzero(~skip).tolist()
    for b in found:
        assert all(lengths[i] <= b.length <= longest for i in b.indices)
        assert all(padded_length(lengths[i], longest) == b.length for i in b.indices)
        assert 1 <= len(b.indices) <= batch * max(1, longest // b.length)
    assert [b.length for b in found] == sorted((b.length for b in found), reverse=True)
    assert len({b.length for b in found}) <= 2 + np.log2(max(1, longest / SHORTEST))


@pytest.mark.compiles
def test_two_processes_with_unlike_shares_give_the_answers_of_one(tmp_path: Path):
    program = Path(__file__).parents[1] / "support" / "score_share.py"
    port = str(20_000 + hash(str(tmp_path)) % 20_000)
    pair = [
        subprocess.Popen([sys.executable, program, "2", str(i), port], stdout=subprocess.PIPE, encoding="utf-8")
        for i in range(2)
    ]
    try:
        said = [process.communicate(timeout=100)[0] for process in pair]
    finally:
        for process in pair:
            process.kill()
    assert [process.returncode for process in pair] == [0, 0]
    first, second = (json.loads(text.splitlines()[-1]) for text in said)  # gloo speaks first
    assert first.pop("share") + second.pop("share") == 7
    assert first == second
    values, greedy = Scorer(unigram.MODEL, unigram.params()).score(unigram.some_requests(7, 256))
    np.testing.assert_allclose(first["values"], values, rtol=1e-6)
    assert first["greedy"] == greedy.tolist()


def test_models_of_one_shape_share_a_program_and_nothing_else():
    """Evaluations that follow one another in a process compile once."""
    requests = unigram.some_requests(3, MODEL.vocab, longest=12)
    one, zero = scored(), Scorer(MODEL, jax.tree.map(np.zeros_like, PARAMS), mesh=scored()._mesh)
    assert one._score is zero._score
    values, _ = zero.score(requests)
    counts = [min(r.scored, min(len(r.tokens), MODEL.seq_len + 1) - 1) for r in requests]
    np.testing.assert_allclose(values, -np.log(MODEL.vocab) * np.array(counts), rtol=1e-6)
    assert not np.allclose(one.score(requests)[0], values)
