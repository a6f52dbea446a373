"""Bodies of `/v1/completions/codec`, the published ones and bad ones."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RequestInvalid
from gateway.serve.http.request_parts import ITEMS, VALUES, BodyUnread
from gateway.serve.openai.completions import read_codec_request
from tests.cases import each_of

MSGPACK = "application/x-msgpack"
PROTOBUF = "application/x-protobuf"
# Golden bodies: prompt_ids [1, 2, 3, 4567], 256 tokens, greedy, stop "</s>".
MSGPACK_BODY = bytes.fromhex(
    "85aa70726f6d70745f69647394010203cd11d7aa6d61785f746f6b656e73cd0100ab74656d7065726174757265cb0000000000000000"
    "a473746f7091a43c2f733ead73747265616d5f666f726d6174a76d73677061636b"
)
PROTOBUF_BODY = bytes.fromhex("0a05010203d72310800222043c2f733e2a076d73677061636b")
WARM_BODY = bytes.fromhex("0a05010203d7231080021d3333333f2201612201622a0870726f746f627566")


def test_body_of_very_many_lists_is_refused_before_each_is_looked_at():
    lists = VALUES + 1
    with pytest.raises(RequestInvalid, match=f"more than {VALUES} lists, maps and members"):
        read_codec_request(MSGPACK, b"\x81\xaaprompt_ids\xdd" + lists.to_bytes(4, "big") + b"\x90" * lists)


@pytest.mark.parametrize("body", [b"\x0a\x81\x80\x40" + b"\1" * (ITEMS + 1), b"\x0a\1\1" + b"\x22\0" * ITEMS])
def test_protobuf_of_very_many_items_is_refused_before_each_is_looked_at(body: bytes):
    with pytest.raises(RequestInvalid, match=f"more than {ITEMS} items"):
        read_codec_request(PROTOBUF, body)


def test_both_encodings_of_the_published_request_say_the_same():
    packed = read_codec_request(MSGPACK, MSGPACK_BODY)
    buffered = read_codec_request(PROTOBUF + "; charset=binary", PROTOBUF_BODY)

    assert packed.prompt == buffered.prompt == [1, 2, 3, 4567]
    assert packed.max_tokens == buffered.max_tokens == 256
    assert packed.stops == buffered.stops == ("</s>",)
    assert packed.stream_format == buffered.stream_format == "msgpack"
    assert packed.temperature == 0.0
    assert buffered.temperature is None  # a proto3 writer of others drops a zero


def test_temperature_and_format_of_a_protobuf_request_are_read():
    fields = read_codec_request(PROTOBUF, WARM_BODY)

    assert fields.temperature == pytest.approx(0.7)
    assert (fields.stream_format, fields.stops) == ("protobuf", ("a", "b"))


def test_stream_comes_in_the_bodys_format_unless_it_names_another():
    assert read_codec_request(PROTOBUF, bytes.fromhex("0a0101")).stream_format == "protobuf"
    assert read_codec_request(MSGPACK, bytes.fromhex("81aa70726f6d70745f6964739101")).stream_format == "msgpack"


def test_id_too_great_for_its_field_is_not_cut_to_another():
    # prompt_ids [2**32 + 5]: a parser of 32 bits reads 5.
    with suppress(RequestInvalid):
        assert read_codec_request(PROTOBUF, bytes.fromhex("0a058580808010")).prompt == [2**32 + 5]


@pytest.mark.parametrize("content_type", ["application/json", "", "text/plain"])
def test_other_content_types_are_not_read(content_type):
    with pytest.raises(BodyUnread, match="send application/x-msgpack"):
        read_codec_request(content_type, b"{}")


@each_of(
    ("content_type", "body"),
    [
        (MSGPACK, b""),
        (MSGPACK, MSGPACK_BODY[:-3]),
        (MSGPACK, b"\x93\x01\x02\x03"),
        (MSGPACK, bytes.fromhex("81aa70726f6d70745f69647391ff")),
        (MSGPACK, b"\x80"),
        (MSGPACK, b"\x91" * 100_000),
        (PROTOBUF, PROTOBUF_BODY[:-3]),
        (PROTOBUF, b"\xff" * 20),
    ],
)
def test_bad_body_is_refused_with_a_sentence(content_type, body):
    with pytest.raises(RequestInvalid) as refused:
        read_codec_request(content_type, body)
    assert refused.value.message


@given(st.sampled_from([MSGPACK, PROTOBUF]), st.binary(max_size=60))
def test_any_bytes_are_a_request_or_an_error_of_ours(content_type, body):
    with suppress(RequestInvalid):
        assert read_codec_request(content_type, body).stream
