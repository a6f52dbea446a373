"""A SentencePiece model file to the parts of a tokenizer; the ids are those of the `sentencepiece` library.

BPE and unigram with a token for every byte are supported, without a character map (which rewrites the text before it is
cut; no Codec map can hold one). The file is a protobuf message; the dozen fields needed are read by hand, so the SDK
needs no protobuf for it. User-defined symbols are special; blanks and HTML tags among them are refused. Source:
sentencepiece_model.proto.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from leaf_sdk.errors import NotAMap

from .added import is_ordinary
from .fields import inexact
from .metaspace_json import byte_range
from .score_merges import ranked_merges
from .tokenizer import Metaspace, Tokenizer

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_UNIGRAM, _BPE = 1, 2
_MODEL_TYPE, _SUFFIX = 3, 24
_CHARSMAP, _DUMMY_PREFIX, _EXTRA_SPACES, _ESCAPE = 2, 3, 4, 5

Value = int | bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of a model: its text, its score, and its kind (the constants above)."""

    text: str
    score: float
    kind: int


def looks_like_a_model(data: bytes) -> bool:
    """Return whether bytes may be a SentencePiece model, which begins with a piece, which begins with its text."""
    return len(data) > 4 and data[0] == _PIECES << 3 | _BYTES and data[2] == _PIECES << 3 | _BYTES


def read_sentencepiece(data: bytes) -> Tokenizer:
    """Read the parts of a model file.

    Raises:
        MapUnsupported: another algorithm than BPE and unigram, or something else that can't be reproduced.
        NotAMap: the file is damaged.
    """
    pieces, trainer, normalizer = read_pieces(data)
    if normalizer.get(_CHARSMAP):
        raise inexact("a character map (normalizer_spec.precompiled_charsmap)", "normalization 'identity'")
    if trainer.get(_SUFFIX) or normalizer.get(_ESCAPE) == 0:
        raise inexact("spaces at the end of words", "a space as the beginning of the word after it")
    return _parts(pieces, trainer.get(_MODEL_TYPE, _UNIGRAM), normalizer)


def read_pieces(data: bytes) -> tuple[list[Piece], dict[int, Value], dict[int, Value]]:
    """Return a model's entries in the order of their ids, and the fields of its trainer and normalizer settings.

    Raises:
        NotAMap: the file is damaged.
    """
    pieces: list[Piece] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    for field, value in _message(data):
        if field == _PIECES and isinstance(value, bytes):
            pieces.append(_piece(value))
        elif field == _TRAINER and isinstance(value, bytes):
            trainer = dict(_message(value))
        elif field == _NORMALIZER and isinstance(value, bytes):
            normalizer = dict(_message(value))
    return pieces, trainer, normalizer


def _parts(pieces: list[Piece], model_type: Value, normalizer: dict[int, Value]) -> Tokenizer:
    vocab = {piece.text: token_id for token_id, piece in enumerate(pieces)}
    if len(vocab) != len(pieces):
        raise NotAMap("the SentencePiece model lists one piece twice, expected one id per piece")
    if unused := [piece.text for piece in pieces if piece.kind == _UNUSED]:
        raise inexact(f"unused piece {unused[0]!r}", "no unused pieces")
    added = [p.text for p in pieces if p.kind == _USER_DEFINED and is_ordinary(p.text, special=False)]
    if added:
        raise inexact(f"user-defined symbol {added[0]!r}", "no symbols that ordinary text may spell")
    special = [p.text for p in pieces if p.kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)]
    parts = Tokenizer(
        vocab=vocab,
        special_tokens={token: vocab[token] for token in special},
        encoder="metaspace",
        metaspace=Metaspace(
            prefix="always" if normalizer.get(_DUMMY_PREFIX, 1) else "never",
            collapse=bool(normalizer.get(_EXTRA_SPACES, 1)),
        ),
        byte_fallback=byte_range(vocab),
    )
    if model_type == _BPE:
        scores = {piece.text: piece.score for piece in pieces if piece.kind == _NORMAL}
        return replace(parts, merges=ranked_merges(scores).merges)
    if model_type == _UNIGRAM:
        return replace(parts, algorithm="unigram32", scores=[piece.score for piece in pieces])
    raise inexact(f"trainer_spec.model_type {model_type!r}", f"{_UNIGRAM} (unigram) or {_BPE} (BPE)")


def _piece(data: bytes) -> Piece:
    fields = dict(_message(data))
    text, score, kind = fields.get(1), fields.get(2, b"\0\0\0\0"), fields.get(3, _NORMAL)
    if not isinstance(text, bytes) or not text or not isinstance(score, bytes) or not isinstance(kind, int):
        raise NotAMap(
            f"a piece of the SentencePiece model is {data[:40]!r}, expected text, score and type: the file is damaged"
        )
    try:
        return Piece(text.decode(), struct.unpack("<f", score)[0], kind)
    except (UnicodeDecodeError, struct.error) as error:
        raise NotAMap(f"a piece of the SentencePiece model can't be read ({error}): the file is damaged") from error


def _message(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield a protobuf message's fields: whole numbers as such, everything else as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(key & 7)
        if key & 7 == _BYTES:
            size, at = _varint(data, at)
        if size is None or size > len(data) - at:
            raise NotAMap(f"the file breaks off or is not a SentencePiece model: field {key >> 3} at byte {at}")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise NotAMap(f"the file breaks off or is not a SentencePiece model: a number at byte {at}")
