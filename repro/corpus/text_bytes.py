"""Bits a byte: how many bytes of text stand behind tokens that were scored, so that vocabularies can be compared.

The bytes are those of the scored text alone, in UTF-8, as its tokens spell it: a text costs the same bytes whatever
pieces it is cut into. The end of a document is a token that a model must predict too: its nats count and it has no
byte, in every vocabulary. What a tokenizer of someone else's drops before it cuts (runs of spaces, say) wasn't scored
and isn't counted, nor is a letter that it doesn't know; those trained here drop nothing and know every byte. What is
counted, and how, has a version: `repro.spec.metric`. No JAX.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from repro.corpus.tokens import TokenSet

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

SPACE = "\u2581"  # how SentencePiece writes one


def bits_per_byte(nats_per_token: float, windows: np.ndarray, tokens: TokenSet) -> float:
    """A mean loss over all targets of (count, seq_len + 1) `windows`, per byte of their text."""
    targets = windows[:, 1:].size
    return nats_per_token * targets / math.log(2) / text_bytes(windows, tokens)


def text_bytes(windows: np.ndarray, tokens: TokenSet) -> int:
    """UTF-8 bytes behind the targets of `windows`: all of a window but its first token, which is given."""
    sizes, prefix = _sizes(tokens)
    starts = int((windows[:, :-1] == tokens.tokenizer.eos).sum())
    return int(sizes[windows[:, 1:]].sum()) - prefix * starts


def _sizes(tokens: TokenSet) -> tuple[np.ndarray, int]:
    """(bytes of each token's text, bytes that a document's first token has before its text)."""
    tokenizer = tokens.tokenizer
    if tokenizer.file is None:
        sizes = np.ones(tokenizer.vocab, np.int64)
        prefix = 0
    else:
        from sentencepiece import SentencePieceProcessor  # bytes as tokens need none of it

        model = SentencePieceProcessor(model_file=str(tokens.folder / tokenizer.file))
        sizes = np.array([_piece_bytes(model, piece) for piece in range(tokenizer.vocab)], np.int64)
        prefix = len("".join(model.encode("a", out_type=str))) - 1  # a space, where the model adds one
    sizes[tokenizer.eos] = 0
    return sizes, prefix


def _piece_bytes(model: "SentencePieceProcessor", piece: int) -> int:
    if model.is_control(piece) or model.is_unknown(piece):
        return 0
    return 1 if model.is_byte(piece) else len(model.id_to_piece(piece).replace(SPACE, " ").encode())
