"""Requests in frames are read as published, and anything else is our own error."""

from contextlib import suppress

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaf_sdk.errors import FormatUnavailable, FrameInvalid, FrameTooLarge
from leaf_sdk.wire import CodecRequest, Limits, codec_pb2, read_request

every_encoding = pytest.mark.parametrize("encoding", ["msgpack", "protobuf"])


def body_of(encoding, **fields):
    if encoding == "msgpack":
        return msgpack.packb(fields)
    return codec_pb2.CodecRequest(**fields).SerializeToString()


def test_the_vectors_are_read(vectors):
    for case in vectors("wire")["requests"]["cases"]:
        fields = dict(case["body"])
        expected = CodecRequest(
            tuple(fields["prompt_ids"]),
            fields["max_tokens"],
            fields["temperature"],
            tuple(fields["stop"]),
            fields["stream_format"],
        )
        if "msgpack_hex" in case:
            assert read_request(bytes.fromhex(case["msgpack_hex"]), "msgpack") == expected
        found = read_request(bytes.fromhex(case["protobuf_hex"]), "protobuf")
        assert (found.prompt_ids, found.max_tokens, found.stop) == (expected.prompt_ids, 256, expected.stop)
        assert found.stream_format == expected.stream_format
        # The published schema drops a temperature of 0; it is read as none, which leaves the choice to the server.
        assert found.temperature == (pytest.approx(expected.temperature) if expected.temperature else None)


@every_encoding
def test_a_temperature_of_zero_is_told_from_none_where_the_schema_is_ours(encoding):
    assert read_request(body_of(encoding, prompt_ids=[1], temperature=0.0), encoding).temperature == 0.0
    assert read_request(body_of(encoding, prompt_ids=[1]), encoding) == CodecRequest((1,))


@every_encoding
def test_what_is_over_a_limit_is_refused(encoding):
    limits = Limits(frame_bytes=100, ids=3, parts=2, largest_id=500)
    for fields in (
        {"prompt_ids": [1, 2, 3, 4]},
        {"prompt_ids": [501]},
        {"prompt_ids": [1], "stop": ["a", "b", "c"]},
        {"prompt_ids": [1], "stop": ["x" * 200]},
    ):
        with pytest.raises(FrameTooLarge, match="the request"):
            read_request(body_of(encoding, **fields), encoding, limits)
    assert read_request(body_of(encoding, prompt_ids=[500, 2, 3], stop=["a", "b"]), encoding, limits).stop == ("a", "b")


def test_an_id_is_not_cut_to_32_bits():
    with pytest.raises(FrameTooLarge, match="4294967301"):
        read_request(b"\x08\x85\x80\x80\x80\x10", "protobuf")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"prompt_ids": "text"},
        {"prompt_ids": [1, "2"]},
        {"prompt_ids": [1], "max_tokens": -1},
        {"prompt_ids": [1], "max_tokens": True},
        {"prompt_ids": [1], "max_tokens": 1.5},
        {"prompt_ids": [1], "temperature": float("nan")},
        {"prompt_ids": [1], "temperature": float("inf")},
        {"prompt_ids": [1], "temperature": "hot"},
        {"prompt_ids": [1], "stop": "text"},
        {"prompt_ids": [1], "stop": [1]},
        {"prompt_ids": [1], "stream_format": 1},
    ],
)
def test_a_field_of_another_type_is_an_error_that_names_it(fields):
    with pytest.raises(FrameInvalid, match=rf"the request: {next(reversed(fields), 'prompt_ids')}"):
        read_request(msgpack.packb(fields), "msgpack")


@every_encoding
@given(body=st.binary(max_size=60))
def test_any_bytes_give_a_request_or_our_own_error(encoding, body):
    with suppress(FrameInvalid, FrameTooLarge):
        assert isinstance(read_request(body, encoding), CodecRequest)


def test_two_requests_in_one_body_are_none():
    with pytest.raises(FrameInvalid, match="no message"):
        read_request(body_of("msgpack", prompt_ids=[1]) * 2, "msgpack")


def test_protobuf_without_its_library_is_unavailable(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "google.protobuf.message", None)
    with pytest.raises(FormatUnavailable, match=r"codec-leaf\[wire\]"):
        read_request(b"", "protobuf")
