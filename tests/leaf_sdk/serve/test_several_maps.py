"""One result for several models: each reader finds the ids of its own map, packed where it asked for that."""

import base64
import json

import mcp.types as t
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from mcp.server import MCPServer

from leaf_sdk import (
    CODEC_META_KEY,
    CodecMetaMapMismatchError,
    MapPin,
    MetaTokenizer,
    announce_packing,
    load_map,
    make_meta_tokenizer,
    read_codec_meta,
    strip_codec_meta,
    take_ids,
    wrap_tool_call,
)
from leaf_sdk.errors import CodecError, MapHashMalformed, MapUnreachable
from leaf_sdk.leaf.packing import PACKED_KEY, pack, unpack
from leaf_sdk.serve import make_leaf
from leaf_sdk.testing import texts, tiny_map, tiny_map_bytes, tiny_meta
from leaf_sdk.vocab import map_digest

TINY = tiny_map()
HELLO = {"content": [{"type": "text", "text": "hello world"}]}


@pytest.fixture(scope="module")
def other() -> MetaTokenizer:
    """The tiny map without its merges: other bytes, other ids."""
    fields = json.loads(tiny_map_bytes()) | {"merges": []}
    token_map = load_map(json.dumps(fields).encode())
    return MetaTokenizer(token_map.map_id, token_map, token_map.encode)


@pytest.fixture(scope="module")
def both(other) -> MetaTokenizer:
    return MetaTokenizer(TINY.map_id, TINY, TINY.encode, others=(other,))


def test_each_reader_finds_the_ids_of_its_own_map(both, other):
    wrapped = wrap_tool_call(HELLO, both)
    assert take_ids(wrapped, TINY.map_id) == [TINY.encode("hello world")]
    assert take_ids(wrapped, other.map_id) == [other.encode("hello world")]
    assert take_ids(wrapped, TINY.map_id) != take_ids(wrapped, other.map_id)


def test_a_reader_that_knows_one_payload_alone_sees_the_first_map(both):
    payload = wrap_tool_call(HELLO, both)["content"][0]["_meta"][CODEC_META_KEY]
    assert payload["map_id"] == TINY.map_id
    assert payload["ids"] == TINY.encode("hello world")


def test_a_reader_of_a_third_map_is_told_of_the_first(both):
    wanted = "sha256:" + "c" * 64
    with pytest.raises(CodecMetaMapMismatchError) as raised:
        read_codec_meta(wrap_tool_call(HELLO, both), wanted)
    assert raised.value.found == TINY.map_id


def test_wrapping_twice_adds_nothing_and_a_missing_map_is_added(both):
    once = wrap_tool_call(HELLO, both)
    assert wrap_tool_call(once, both) == once
    assert wrap_tool_call(wrap_tool_call(HELLO, tiny_meta()), both) == once
    assert strip_codec_meta(once) == HELLO


def test_maps_are_opened_by_their_pins(tmp_path, golden_map_path):
    tiny = tmp_path / "tiny.json"
    tiny.write_bytes(tiny_map_bytes())
    pins = [MapPin(TINY.map_id, path=tiny), MapPin(map_digest(golden_map_path.read_bytes()), path=golden_map_path)]
    meta = make_meta_tokenizer(maps=pins)
    assert [meta.map_id, *(each.map_id for each in meta.others)] == [pin.hash for pin in pins]
    assert meta.for_map(pins[1].hash).others == ()
    assert meta.for_map("sha256:" + "c" * 64) is meta


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"maps": [MapPin(TINY.map_id)], "map_hash": TINY.map_id},
        {"maps": [MapPin(TINY.map_id)]},
        {"maps": [MapPin(TINY.map_id, path="x", url="y")]},
        {"map_path": "x"},
    ],
)
def test_pins_that_do_not_say_one_source_each_are_refused(wrong):
    with pytest.raises(MapUnreachable):
        make_meta_tokenizer(**wrong)


def test_the_hash_of_a_pin_is_looked_at_before_its_source():
    with pytest.raises(MapHashMalformed):
        make_meta_tokenizer(maps=[MapPin("latest", url="https://127.0.0.1:1/never")])


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_packed_ids_come_back(ids):
    assert unpack(pack(ids)) == ids


@pytest.mark.parametrize(
    ("ids", "data"), [([], b""), ([0], b"\0"), ([127, 128], b"\x7f\x80\x01"), ([300], b"\xac\x02")]
)
def test_packing_is_leb128_in_base64(ids, data):
    assert pack(ids) == base64.b64encode(data).decode()


@pytest.mark.parametrize("data", [b"\x80", b"\x01\xff", b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x01"])
def test_bytes_that_end_in_an_id_or_pass_32_bits_are_no_ids(data):
    assert unpack(base64.b64encode(data).decode()) is None


@given(st.text())
def test_any_text_is_ids_or_none(text):
    assert isinstance(unpack(text), list | None)


def test_a_packed_text_beyond_the_bound_is_not_opened():
    assert unpack("A" * (16 * 2**20 + 4)) is None


def test_packed_ids_are_at_most_what_32_bits_hold() -> None:
    assert unpack(base64.b64encode(b"\xff\xff\xff\xff\x0f").decode()) == [2**32 - 1]
    assert unpack(base64.b64encode(b"\x80\x80\x80\x80\x10").decode()) is None


@given(texts())
def test_packed_and_plain_payloads_read_alike_and_packed_is_never_in_ids(text):
    plain = {"content": [{"type": "text", "text": text}]}
    wrapped = wrap_tool_call(plain, tiny_meta(), packed=True)
    assert take_ids(wrapped, TINY.map_id) == take_ids(wrap_tool_call(plain, tiny_meta()), TINY.map_id)
    assert "ids" not in wrapped["content"][0]["_meta"][CODEC_META_KEY]


def test_a_packed_payload_that_is_broken_reads_as_none():
    meta = {CODEC_META_KEY: {"map_id": TINY.map_id, PACKED_KEY: "!"}}
    assert take_ids({"content": [{"type": "text", "text": "x", "_meta": meta}]}) == [None]


@pytest.mark.anyio
async def test_a_request_chooses_its_map_and_announces_packing(both, other):
    server = MCPServer("two")

    @server.tool(structured_output=False)
    def greet() -> str:
        """Greet."""
        return "hello world"

    make_leaf(server, both)
    async with Client(server) as client:
        every = await client.call_tool("greet", {})
        mine = await client.call_tool("greet", {}, meta={"ai.codec/map": other.map_id.removeprefix("sha256:").upper()})
        packed = await client.call_tool("greet", {}, meta=announce_packing({"ai.codec/map": other.map_id}))
        odd = await client.call_tool("greet", {}, meta={"ai.codec/map": 7})
    ids = other.encode("hello world")
    assert [each["map_id"] for each in _payload(every)["x_more"]] == [other.map_id]
    assert _payload(mine) == {"map_id": other.map_id, "ids": ids}
    assert _payload(packed) == {"map_id": other.map_id, PACKED_KEY: pack(ids)}
    assert _payload(odd) == _payload(every)


def _payload(result: t.CallToolResult):
    return result.content[0].meta[CODEC_META_KEY]


def test_a_server_that_can_not_be_wrapped_is_refused_by_name():
    with pytest.raises(CodecError, match="object has no list of middleware"):
        make_leaf(object(), tiny_meta())
