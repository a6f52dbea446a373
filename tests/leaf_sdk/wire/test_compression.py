"""Every flushed piece can be read at once, in every coding; bad or greedy bodies are errors before they are memory."""

import gzip
import zlib

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaf_sdk.errors import BodyInvalid, BodyTooLarge, CodingUnavailable
from leaf_sdk.wire import CODINGS, Decoder, Dictionary, available_codings, dictionary_for, open_encoder, train
from leaf_sdk.wire.zstandard import CompressionParameter, ZstdCompressor

from .conftest import cut

WAYS = [(coding, None) for coding in CODINGS] + [("zstd", Dictionary(b"codec-test-dictionary" * 3))]
every_way = pytest.mark.parametrize(("coding", "dictionary"), WAYS)
every_effort = pytest.mark.parametrize("effort", ["streaming", "whole"])
COMPRESSING = [coding for coding in CODINGS if coding != "identity"]
pieces = st.lists(st.binary(max_size=40) | st.just(b"codec-test-dictionary"), max_size=8)


def compressed(coding, data, dictionary=None):
    encoder = open_encoder(coding, dictionary)
    return encoder.write(data) + encoder.close()


@every_way
@every_effort
@given(written=pieces)
def test_what_was_written_can_be_read_after_each_flush(coding, dictionary, effort, written):
    encoder, decoder = open_encoder(coding, dictionary, effort), Decoder(coding, dictionary=dictionary)
    for piece in written:
        assert decoder.feed(encoder.write(piece) + encoder.flush()) == piece
    assert decoder.feed(encoder.close()) == b""
    decoder.close()


@every_way
@given(written=pieces, flushes=st.sets(st.integers(0, 7)), places=st.lists(st.integers(0, 300), max_size=6))
def test_any_cut_of_the_body_gives_the_same_bytes(coding, dictionary, written, flushes, places):
    encoder, body = open_encoder(coding, dictionary), b""
    for number, piece in enumerate(written):
        body += encoder.write(piece) + (encoder.flush() if number in flushes else b"")
    body += encoder.close()
    decoder = Decoder(coding, dictionary=dictionary)
    assert b"".join(decoder.feed(piece) for piece in cut(body, places)) == b"".join(written)
    decoder.close()


@pytest.mark.parametrize("coding", COMPRESSING)
@given(end=st.integers(0, 10_000))
def test_a_body_that_ends_early_is_an_error(coding, end):
    body = compressed(coding, b"twelve bytes" * 30)
    decoder = Decoder(coding)
    decoder.feed(body[: end % len(body)])
    with pytest.raises(BodyInvalid, match="ends early"):
        decoder.close()


@pytest.mark.parametrize("coding", COMPRESSING)
@given(garbage=st.binary(max_size=80))
def test_garbage_gives_bytes_or_our_own_error(coding, garbage):
    decoder = Decoder(coding, max_bytes=1000)
    try:
        assert len(decoder.feed(garbage)) <= 1000
        decoder.close()
    except (BodyInvalid, BodyTooLarge):
        with pytest.raises(BodyInvalid):
            decoder.close()


@pytest.mark.parametrize("coding", COMPRESSING)
def test_a_bomb_is_stopped_at_the_limit(coding, resident_growth):
    encoder, zeros = open_encoder(coding), bytes(2**20)
    bomb = b"".join(encoder.write(zeros) for _ in range(64)) + encoder.close()
    assert len(bomb) < 2**19

    def burst() -> None:
        with pytest.raises(BodyTooLarge) as caught:
            Decoder(coding, max_bytes=2**20).feed(bomb)
        assert caught.value.limit == 2**20

    assert resident_growth(burst) < 32 * 2**20


@every_way
@every_effort
def test_an_open_stream_takes_little_memory(resident_growth, coding, dictionary, effort):
    held = []

    def open_one() -> None:
        held.append(open_encoder(coding, dictionary, effort))
        held[-1].write(b"frame" * 200)
        held[-1].flush()

    open_one()
    assert resident_growth(lambda: [open_one() for _ in range(10)]) < 10 * 4 * 2**20


@pytest.mark.parametrize("coding", CODINGS)
def test_a_body_of_just_the_limit_passes(coding):
    body = compressed(coding, b"x" * 5000)
    assert Decoder(coding, max_bytes=5000).feed(body) == b"x" * 5000
    with pytest.raises(BodyTooLarge):
        Decoder(coding, max_bytes=4999).feed(body)


@pytest.mark.parametrize("coding", COMPRESSING)
def test_bytes_after_the_end_are_an_error(coding):
    with pytest.raises(BodyInvalid):
        Decoder(coding).feed(compressed(coding, b"whole") + b"more")


@pytest.mark.parametrize("coding", COMPRESSING)
def test_a_decoder_that_failed_stays_failed(coding):
    decoder = Decoder(coding)
    with pytest.raises(BodyInvalid, match="damaged, or not in this coding"):
        decoder.feed(b"\xff" * 40)
    with pytest.raises(BodyInvalid, match="could not be decompressed earlier"):
        decoder.feed(compressed(coding, b"good"))


def test_zstd_that_asks_for_a_huge_window_is_refused():
    options = {CompressionParameter.window_log: 27, CompressionParameter.content_size_flag: 0}
    stream = ZstdCompressor(options=options)
    body = stream.compress(b"x") + stream.flush()
    with pytest.raises(BodyInvalid):
        Decoder("zstd").feed(body)


def test_zstd_of_another_dictionary_is_an_error_or_other_bytes():
    right, wrong = Dictionary(b"the right dictionary" * 4), Dictionary(b"some other dictionary" * 4)
    body = compressed("zstd", b"the right dictionary" * 2, right)
    with pytest.raises(BodyInvalid):
        Decoder("zstd").feed(body)
    assert Decoder("zstd", dictionary=right).feed(body) == b"the right dictionary" * 2
    assert _fed(Decoder("zstd", dictionary=wrong), body) != b"the right dictionary" * 2


def _fed(decoder, body):
    try:
        return decoder.feed(body)
    except BodyInvalid:
        return None


def test_the_libraries_of_others_read_our_bodies():
    data = b"token ids " * 50
    assert gzip.decompress(compressed("gzip", data)) == data
    assert brotli.decompress(compressed("br", data)) == data


def test_a_partial_flush_is_shorter_than_a_sync_flush():
    ours, stream, sync = open_encoder("gzip"), zlib.compressobj(6, zlib.DEFLATED, 31), 0
    size = 0
    for number in range(200):
        piece = b"\x00\x00\x00\x04\x0a\x02" + bytes([number, number // 2])
        size += len(ours.write(piece) + ours.flush())
        sync += len(stream.compress(piece) + stream.flush(zlib.Z_SYNC_FLUSH))
    assert size < sync * 0.75


def test_an_unknown_coding_is_named():
    with pytest.raises(CodingUnavailable, match=r"'lz4' can't be used here, expected one of identity, gzip"):
        open_encoder("lz4")
    with pytest.raises(CodingUnavailable, match="lz4"):
        Decoder("lz4")


@pytest.mark.parametrize(("coding", "module"), [("br", "brotli"), ("zstd", "leaf_sdk.wire.zstandard")])
def test_a_coding_whose_library_is_missing_is_unavailable(monkeypatch, coding, module):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    assert coding not in available_codings()
    with pytest.raises(CodingUnavailable, match=r"codec-leaf\[wire\]"):
        open_encoder(coding)
    with pytest.raises(CodingUnavailable):
        Decoder(coding)


def test_all_codings_are_available_here():
    assert available_codings() == CODINGS


def test_a_trained_dictionary_makes_a_like_body_smaller():
    samples = [b"".join(b"frame %d of %d," % (number, seed) for number in range(40)) for seed in range(200)]
    dictionary = train(samples, 4096)
    assert len(dictionary.data) <= 4096
    assert len(compressed("zstd", samples[7], dictionary)) < len(compressed("zstd", samples[7])) * 0.75


def test_dictionaries_are_found_by_the_header_as_the_vectors_say(vectors):
    section = vectors("wire")["zstd_dict_header"]
    dictionary = Dictionary(section["dict_utf8"].encode())
    assert dictionary.hash == section["hash"]
    for case in section["cases"]:
        if "error" in case:
            with pytest.raises(BodyInvalid):
                dictionary_for(case["headers"], {dictionary.hash: dictionary})
        else:
            expected = None if case["result"] == "None" else dictionary
            assert dictionary_for(case["headers"], {dictionary.hash: dictionary}) == expected
