"""codecai 0.4.1, the published Python client, reads what we write; it writes no frames, so its vectors stand for it."""

import codecai
import pytest
from hypothesis import given

from leaf_sdk.wire import Decoder, Dictionary, FlushGate, FlushPolicy, Frame, FrameWriter, dictionary_for, open_encoder

from .conftest import cut, streams, written

both = pytest.mark.parametrize("form", ["msgpack", "protobuf"])


async def theirs(form, pieces):
    async def body():
        for piece in pieces:
            yield piece

    return [(frame.ids, frame.done, frame.finish_reason) async for frame in codecai.decode_stream(body(), form)]


@both
@given(stream=streams)
@pytest.mark.anyio
async def test_it_reads_our_frames_and_skips_what_it_does_not_know(form, stream):
    expected = [(frame.ids, frame.done, frame.finish_reason) for frame in stream]
    assert await theirs(form, cut(written(form, stream), [5, 17, 40])) == expected


@both
@pytest.mark.parametrize("coding", ["identity", "gzip", "br", "zstd"])
@pytest.mark.anyio
async def test_it_reads_a_stream_that_was_gathered_flushed_and_compressed(form, coding):
    dictionary = Dictionary(b"codec-test-dictionary") if coding == "zstd" else None
    gate, writer, encoder = FlushGate(FlushPolicy(0.04)), FrameWriter(form), open_encoder(coding, dictionary)
    frames = [sent for n in range(50) for sent in gate.feed(Frame((n,), n == 49), n / 100)]
    pieces = [encoder.write(writer.write(frame)) + encoder.flush() for frame in frames]
    decoder = Decoder(coding, dictionary=dictionary)
    found = await theirs(form, [decoder.feed(piece) for piece in [*pieces, encoder.close()]])
    assert [token for ids, _, _ in found for token in ids] == list(range(50))
    assert 10 <= len(found) <= 12


def test_it_finds_the_dictionary_that_our_headers_name():
    dictionary = Dictionary(b"codec-test-dictionary")
    headers = {"Content-Encoding": "zstd", "Codec-Zstd-Dict": dictionary.hash}
    theirs = codecai.select_zstd_dict_for_response(headers, loaded_dicts={dictionary.hash: dictionary.data})
    assert theirs == dictionary.data
    assert dictionary_for(headers, {dictionary.hash: dictionary}) is dictionary
