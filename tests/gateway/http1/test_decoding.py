"""Compressed bodies, as they come, and bounded whatever they become."""

import gzip
import zlib

import pytest

from gateway.http1.decoding import Decoder
from gateway.http1.faults import NoAnswer

TEXT = b'{"answer": "done"}' * 50
RAW = zlib.compress(TEXT, wbits=-zlib.MAX_WBITS)


def decoded(*pieces: bytes) -> bytes:
    decoder, found = Decoder(), b""
    for piece in pieces:
        decoder.feed(piece)
        while data := decoder.take():
            found += data
    return found


@pytest.mark.parametrize(
    "body", [gzip.compress(TEXT), zlib.compress(TEXT), RAW], ids=["gzip", "deflate", "raw deflate"]
)
def test_body_is_the_same_however_it_is_cut(body):
    assert decoded(body) == TEXT
    assert decoded(*(body[at : at + 1] for at in range(len(body)))) == TEXT


def test_huge_body_comes_in_portions_of_bounded_size():
    decoder = Decoder()
    decoder.feed(gzip.compress(bytes(100_000_000)))
    portions = [len(decoder.take()) for _ in range(10)]
    assert portions == [64 * 1024] * 10


def test_body_that_grows_beyond_reason_is_an_error_of_this_answer():
    with pytest.raises(NoAnswer, match="200 times"):
        decoded(gzip.compress(bytes(100_000_000)))


@pytest.mark.parametrize("body", [b"plain text, not compressed", gzip.compress(TEXT)[:40] + b"\xff" * 100])
def test_damaged_body_is_an_error_of_this_answer(body):
    with pytest.raises(NoAnswer, match="damaged"):
        decoded(body)
