"""Compressed bodies, as they come, and bounded whatever they become."""

import gzip
import random
import sys
import zlib

import brotli
import pytest

from gateway.http1.connection import Inflater, NoAnswer, decoder_for
from leaf_sdk.wire.zstandard import ZstdCompressor

TEXT = b'{"answer": "done"}' * 50
RAW = zlib.compress(TEXT, wbits=-zlib.MAX_WBITS)


def zstd(data: bytes) -> bytes:
    compressor = ZstdCompressor()
    return compressor.compress(data) + compressor.flush()


def decoded(*pieces: bytes, encoding: str = "gzip") -> bytes:
    decoder, found = decoder_for(encoding), b""
    assert decoder is not None
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
    decoder = Inflater()
    decoder.feed(gzip.compress(bytes(20_000_000)))
    portions = [len(decoder.take()) for _ in range(10)]
    assert portions == [64 * 1024] * 10


def test_body_that_grows_beyond_reason_is_an_error_of_this_answer():
    with pytest.raises(NoAnswer, match="200 times"):
        decoded(gzip.compress(bytes(20_000_000)))


@pytest.mark.parametrize("body", [b"plain text, not compressed", gzip.compress(TEXT)[:40] + b"\xff" * 100])
def test_damaged_body_is_an_error_of_this_answer(body):
    with pytest.raises(NoAnswer, match="damaged"):
        decoded(body)


@pytest.mark.parametrize(("encoding", "compress"), [("br", brotli.compress), (" BR", brotli.compress), ("zstd", zstd)])
def test_br_and_zstd_are_read_though_nobody_asked_for_them(encoding, compress):
    body = compress(TEXT)
    assert decoded(body, encoding=encoding) == TEXT
    assert decoded(*(body[at : at + 1] for at in range(len(body))), encoding=encoding) == TEXT
    with pytest.raises(NoAnswer, match="more than 16 MiB"):
        decoded(compress(bytes(20_000_000)), encoding=encoding)
    with pytest.raises(NoAnswer, match="damaged"):
        decoded(b"plain text, not compressed", encoding=encoding)


@pytest.mark.parametrize("encoding", ["", "identity", "utf-8", "none", "x"])
def test_body_that_is_not_compressed_is_not_decoded(encoding):
    assert decoder_for(encoding) is None


def test_compression_that_nobody_reads_is_named():
    with pytest.raises(NoAnswer, match="'compress', although"):
        decoder_for("compress")


@pytest.mark.parametrize(("encoding", "module"), [("br", "brotli"), ("zstd", "leaf_sdk.wire.zstandard")])
def test_missing_decoder_is_named_with_its_package(encoding, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NoAnswer, match=r"codec-leaf\[wire\]"):
        decoder_for(encoding)


def test_body_may_grow_200_times_beyond_16_mib_and_to_that_in_any_case() -> None:
    def grown(size: int, noise: int) -> int:
        decoder, found = Inflater(), 0
        decoder.feed(zlib.compress(random.Random(0).randbytes(noise) + bytes(size - noise)))
        while data := decoder.take():
            found += len(data)
        return found

    assert grown(16 << 20, 0) == 16 << 20
    assert grown(17 << 20, (17 << 20) // 190) == 17 << 20
    with pytest.raises(NoAnswer, match="more than 200 times"):
        grown(17 << 20, (17 << 20) // 400)
