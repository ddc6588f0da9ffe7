"""How the model is cut: Figure 2's patterns, sizes, remainders and the embedding."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.spec.config import FragmentConfig
from repro.spec.fragments import Fragment, cut


def layers_of(pattern: str, size: int, layers: int) -> list[tuple[int, ...]]:
    return [f.layers for f in cut(FragmentConfig(pattern, size, "own"), layers)[:-1]]


def test_strided_and_sequential_fragments_of_figure_2() -> None:
    assert layers_of("strided", 3, 9) == [(0, 3, 6), (1, 4, 7), (2, 5, 8)]
    assert layers_of("sequential", 3, 9) == [(0, 1, 2), (3, 4, 5), (6, 7, 8)]


@pytest.mark.parametrize(
    ("layers", "strided", "sequential"),
    [
        (4, [(0, 2), (1, 3)], [(0, 1, 2), (3,)]),
        (5, [(0, 2, 4), (1, 3)], [(0, 1, 2), (3, 4)]),
        (7, [(0, 3, 6), (1, 4), (2, 5)], [(0, 1, 2), (3, 4, 5), (6,)]),
        (2, [(0, 1)], [(0, 1)]),
    ],
)
def test_remainders(layers: int, strided: list, sequential: list) -> None:
    assert layers_of("strided", 3, layers) == strided
    assert layers_of("sequential", 3, layers) == sequential


def test_the_embedding_is_its_own_last_fragment_or_goes_with_the_first() -> None:
    assert cut(FragmentConfig("strided", 2, "own"), 3)[-1] == Fragment((), embed=True)
    merged = cut(FragmentConfig("strided", 2, "merged"), 3)
    assert merged == (Fragment((0, 2), embed=True), Fragment((1,), embed=False))
    assert cut(FragmentConfig("whole", 1, "merged"), 3) == (Fragment((0, 1, 2), embed=True),)


@given(
    pattern=st.sampled_from(["strided", "sequential"]),
    embedding=st.sampled_from(["own", "merged"]),
    size=st.integers(1, 8),
    layers=st.integers(1, 40),
)
def test_every_layer_and_the_embedding_once(pattern: str, embedding: str, size: int, layers: int) -> None:
    fragments = cut(FragmentConfig(pattern, size, embedding), layers)
    assert sorted(i for f in fragments for i in f.layers) == list(range(layers))
    assert sum(f.embed for f in fragments) == 1
    with_layers = [f for f in fragments if f.layers]
    assert len(with_layers) == -(-layers // size)
    assert all(len(f.layers) <= size and list(f.layers) == sorted(f.layers) for f in with_layers)
    assert len({f.kind for f in fragments}) <= 4  # so that few programs are compiled
    if pattern == "strided" and len(with_layers) > 1:
        assert all(b - a == len(with_layers) for f in with_layers for a, b in pairwise(f.layers))
