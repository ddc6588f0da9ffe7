"""SentencePiece models: trained on text, always the same way, or taken over from a file with whatever ids it has."""

import hashlib
import io
from collections.abc import Iterable, Iterator
from pathlib import Path

import sentencepiece

from repro.corpus.tokens import Tokenizer
from repro.errors import UserError
from repro.files import read_bytes, write_bytes

MODEL = "tokenizer.model"
LONGEST_LINE = 1 << 20  # bytes; SentencePiece leaves out longer ones without a word
PAD, EOS, BOS, UNK = 0, 1, 2, 3  # ids of the models trained here


def train_pieces(lines: Iterable[str], vocab: int, sample: str) -> bytes:
    """A model of `vocab` byte-pair pieces; text kept as it is, unknown letters as bytes; the same on every run.

    `sample` names the text in the UserError that says that it is too small for so many pieces.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_cut(lines),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab,
            byte_fallback=True,
            character_coverage=0.9995,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            max_sentence_length=LONGEST_LINE,
            pad_id=PAD,
            eos_id=EOS,
            bos_id=BOS,
            unk_id=UNK,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        if "Vocabulary size" not in str(error) and "sentences_" not in str(error):
            raise
        raise UserError(
            f"{sample} is too little text for a tokenizer of {vocab} pieces: give more text, a smaller --vocab,"
            " or a model with --tokenizer FILE."
        ) from error
    return model.getvalue()


def _cut(lines: Iterable[str]) -> Iterator[str]:
    """The lines, longer ones in parts that SentencePiece takes: cut before a space, else between two letters."""
    for line in lines:
        content, start = line.encode(), 0
        while len(content) - start > LONGEST_LINE:
            end = content.rfind(b" ", start + 1, start + LONGEST_LINE)
            if end < 0:
                end = start + LONGEST_LINE
                while content[end] & 0xC0 == 0x80:  # within a letter
                    end -= 1
            yield content[start:end].decode()
            start = end
        yield content[start:].decode() if start else line


def read_model(path: Path) -> bytes:
    """The bytes of a SentencePiece model file; UserError if it is none."""
    content = read_bytes(path)
    if content is None:
        raise UserError(f"--tokenizer {path} isn't there: give a SentencePiece model.")
    load_model(content, str(path))
    return content


def load_model(content: bytes, path: str) -> sentencepiece.SentencePieceProcessor:
    """The processor of a model; UserError if the bytes are none. `path` is for the message."""
    try:
        if content:
            return sentencepiece.SentencePieceProcessor(model_proto=content)
    except RuntimeError:
        pass  # the library's message names its own source lines
    raise UserError(f"{path} is not a SentencePiece model: give one made by SentencePiece (.model), or train.")


def describe(content: bytes, path: str, eos_piece: str | None) -> Tokenizer:
    """What the token folder records: all pieces are its vocabulary, extra ids too; an id of −1 means none.

    The end of a document is the model's EOS, or `eos_piece` where it has none; UserError if that is none either.
    """
    model = load_model(content, path)
    eos = model.eos_id()
    if eos_piece is not None:
        eos = model.piece_to_id(eos_piece)
        if model.is_unknown(eos) or model.id_to_piece(eos) != eos_piece:
            raise UserError(f"{path} has no piece {eos_piece!r}: choose another for --eos.")
    if eos < 0:
        raise UserError(
            f"{path} has no end-of-sequence piece, which ends a document: name a piece that stands for it"
            " with --eos PIECE, or give another model."
        )
    digest = hashlib.sha256(content).hexdigest()
    ids = {"unk": model.unk_id(), "bos": model.bos_id(), "eos": eos, "pad": model.pad_id()}
    return Tokenizer("sentencepiece", MODEL, digest, model.get_piece_size(), **ids)


def store_model(folder: Path, content: bytes) -> None:
    """Put the model where its token folder's readers look for it."""
    write_bytes(folder / MODEL, content)
