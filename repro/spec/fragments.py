"""Cutting the model into fragments (§2.2, Figure 2).

A fragment holds at most `layers` consecutive (sequential) or interleaved (strided: p, p+P, p+2P, ...)
layers. With a remainder there are P = ceil(L / layers) layer fragments, none larger than asked. The
embedding, with the positions and the final norm, is its own last fragment or travels with fragment 0.
"""

from dataclasses import dataclass

from repro.spec.config import FragmentConfig


@dataclass(frozen=True)
class Fragment:
    """Layer indices (ascending) and whether the embedding group belongs to it."""

    layers: tuple[int, ...]
    embed: bool

    @property
    def kind(self) -> tuple[int, bool]:
        """Fragments of one kind share a compiled program: (number of layers, embedding)."""
        return len(self.layers), self.embed


def cut(config: FragmentConfig, layers: int) -> tuple[Fragment, ...]:
    """The fragments of a model of `layers` layers, in the order of their offsets t_p."""
    if config.pattern == "whole":
        return (Fragment(tuple(range(layers)), embed=True),)
    count = -(-layers // config.layers)  # P
    if config.pattern == "strided":
        groups = [tuple(range(p, layers, count)) for p in range(count)]
    else:
        groups = [tuple(range(p, min(p + config.layers, layers))) for p in range(0, layers, config.layers)]
    merged = config.embedding == "merged"
    pieces = [Fragment(group, embed=merged and i == 0) for i, group in enumerate(groups)]
    return tuple(pieces if merged else [*pieces, Fragment((), embed=True)])
