"""The leaf contract: results written and read as the reference does, of whatever kind; inputs stay untouched."""

import copy
import json
from pathlib import Path

import mcp.types as t
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaf_sdk import (
    CODEC_META_KEY,
    CodecMetaMapMismatchError,
    MetaTokenizer,
    has_codec_meta,
    make_meta_tokenizer,
    read_codec_meta,
    strip_codec_meta,
    take_ids,
    wrap_tool_call,
)
from leaf_sdk.errors import LeafResultInvalid, MapHashMalformed, MapHashMismatch, MapUnreachable
from leaf_sdk.leaf.contract import MORE_KEY
from leaf_sdk.testing import texts, tiny_map, tiny_meta
from tests.cases import each_of

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "leaf.json").read_text())
CASES = VECTORS["cases"]
OTHER_MAP = "sha256:" + "b" * 64


def _case_name(case):
    return case["name"]


@pytest.fixture
def meta(golden_map_path) -> MetaTokenizer:
    return make_meta_tokenizer(map_path=golden_map_path, map_hash=VECTORS["map_id"])


def _as_read(leaves):
    return [
        {
            "textIndex": leaf.text_index,
            "text": leaf.text,
            "ids": leaf.ids,
            "mapId": leaf.map_id,
            "source": leaf.source,
        }
        for leaf in leaves
    ]


@pytest.mark.parametrize("case", CASES, ids=_case_name)
def test_a_result_is_wrapped_as_the_reference_wraps_it(meta, case):
    given_result = copy.deepcopy(case["input"])
    assert wrap_tool_call(given_result, meta, min_text_length=case["minTextLength"]) == case["wrapped"]
    assert given_result == case["input"]


@each_of("case", CASES)
def test_a_wrapped_result_is_read_as_the_reference_reads_it(case):
    assert _as_read(read_codec_meta(case["wrapped"], VECTORS["map_id"])) == case["read"]
    assert take_ids(case["wrapped"]) == [entry["ids"] for entry in case["read"]]
    assert has_codec_meta(case["wrapped"]) is any(entry["ids"] is not None for entry in case["read"])


@each_of("case", CASES)
def test_a_wrapped_result_is_stripped_back(case):
    wrapped = copy.deepcopy(case["wrapped"])
    assert strip_codec_meta(wrapped) == case["stripped"]
    assert wrapped == case["wrapped"]


def test_a_result_without_ids_is_stripped_to_itself():
    plain = {"content": [{"type": "text", "text": "x", "_meta": {"a": 1}}]}
    assert strip_codec_meta(plain) is plain


def test_wrapping_twice_is_wrapping_once_even_when_the_text_went_stale(meta):
    once = wrap_tool_call({"content": [{"type": "text", "text": "hello"}]}, meta)
    once["content"][0]["text"] = "changed"
    assert wrap_tool_call(once, meta) == once


def test_a_payload_that_names_the_same_map_in_bare_hex_is_read_and_gets_the_whole_name(meta):
    bare = VECTORS["map_id"].removeprefix("sha256:").upper()
    result = {"content": [{"type": "text", "text": "hello", "_meta": {CODEC_META_KEY: {"map_id": bare, "ids": [1]}}}]}
    assert read_codec_meta(result, VECTORS["map_id"])[0].ids == [1]
    (block,) = wrap_tool_call(result, meta)["content"]
    assert block["_meta"][CODEC_META_KEY] == {"map_id": VECTORS["map_id"], "ids": [1]}


def test_a_further_payload_in_bare_hex_gets_the_whole_name_too(meta):
    bare = OTHER_MAP.removeprefix("sha256:")
    payload = {"map_id": VECTORS["map_id"], "ids": [1], MORE_KEY: [{"map_id": bare, "ids": [2]}]}
    result = {"content": [{"type": "text", "text": "hello", "_meta": {CODEC_META_KEY: payload}}]}
    (block,) = wrap_tool_call(result, meta)["content"]
    expected = {"map_id": VECTORS["map_id"], "ids": [1], MORE_KEY: [{"map_id": OTHER_MAP, "ids": [2]}]}
    assert block["_meta"][CODEC_META_KEY] == expected


@pytest.mark.parametrize("payload", [None, 7, [], {}, {"map_id": 1, "ids": []}, {"map_id": OTHER_MAP, "ids": "1,2"}])
def test_a_malformed_payload_reads_as_none_and_is_replaced_on_writing(meta, payload):
    result = {"content": [{"type": "text", "text": "hello", "_meta": {CODEC_META_KEY: payload}}]}
    assert take_ids(result) == [None]
    assert not has_codec_meta(result)
    assert take_ids(wrap_tool_call(result, meta)) == [[259]]


def test_a_legacy_sibling_is_read_and_stripped_but_never_written(meta):
    legacy = VECTORS["legacy_sibling"]
    assert _as_read(read_codec_meta(legacy["input"])) == legacy["read"]
    assert strip_codec_meta(legacy["input"]) == legacy["stripped"]
    assert [block["type"] for block in wrap_tool_call(legacy["stripped"], meta)["content"]] == ["text"]


def test_meta_wins_over_a_legacy_sibling():
    payload = {"map_id": VECTORS["map_id"], "ids": [1]}
    sibling = {"type": "_codec_meta", "map_id": VECTORS["map_id"], "ids": [2]}
    result = {"content": [{"type": "text", "text": "x", "_meta": {CODEC_META_KEY: payload}}, sibling]}
    assert [(leaf.ids, leaf.source) for leaf in read_codec_meta(result)] == [([1], "meta")]


@pytest.mark.parametrize(("named", "found"), [(0, True), (None, True), (2, False)])
def test_a_legacy_sibling_that_names_another_block_is_not_this_blocks(named, found):
    sibling = {"type": "_codec_meta", "map_id": VECTORS["map_id"], "ids": [2], "sibling_index": named}
    result = {"content": [{"type": "text", "text": "x"}, sibling]}
    assert has_codec_meta(result) is found


def test_ids_of_another_map_are_an_error_that_names_both_maps_and_the_block():
    case = VECTORS["mismatch"]
    with pytest.raises(CodecMetaMapMismatchError) as raised:
        read_codec_meta(case["input"], case["expectedMapHash"])
    error = raised.value
    expected = case["read"]
    assert (error.expected, error.found, error.text_index) == (
        expected["expected"],
        expected["found"],
        expected["textIndex"],
    )


def test_a_map_id_that_is_no_hash_matches_no_map():
    result = {"content": [{"type": "text", "text": "x", "_meta": {CODEC_META_KEY: {"map_id": "v1", "ids": [1]}}}]}
    assert read_codec_meta(result)[0].map_id == "v1"
    with pytest.raises(CodecMetaMapMismatchError, match="'v1'"):
        read_codec_meta(result, OTHER_MAP)


def test_the_expected_map_may_be_spelled_in_bare_hex_but_must_be_a_hash():
    wrapped = CASES[0]["wrapped"]
    assert take_ids(wrapped, VECTORS["map_id"].removeprefix("sha256:")) == [[259, 264]]
    with pytest.raises(MapHashMalformed):
        read_codec_meta(wrapped, "latest")


@pytest.mark.parametrize("result", [{}, {"content": None}, {"content": "text"}, None, [], "x", object()])
def test_what_is_no_result_is_refused(meta, result):
    with pytest.raises(LeafResultInvalid, match="content"):
        wrap_tool_call(result, meta)
    with pytest.raises(LeafResultInvalid):
        read_codec_meta(result)
    with pytest.raises(LeafResultInvalid):
        strip_codec_meta(result)


def test_a_result_that_can_not_be_copied_is_refused(meta):
    class Odd:
        content: list[object] = []  # noqa: RUF012 - stands for a class that is neither a dict nor a model

    with pytest.raises(LeafResultInvalid, match="Odd"):
        wrap_tool_call(Odd(), meta)


def test_an_object_with_content_of_its_own_comes_back_as_a_changed_copy(meta):
    class ToolResult:
        def __init__(self, content):
            self.content = content
            self.structured_content = {"a": 1}

    blocks = [t.TextContent(type="text", text="hello")]
    given_result = ToolResult(blocks)
    wrapped = wrap_tool_call(given_result, meta)
    assert isinstance(wrapped, ToolResult)
    assert take_ids(wrapped) == [[259]]
    assert wrapped.structured_content == {"a": 1}
    assert given_result.content is blocks
    assert take_ids(given_result) == [None]


def test_an_mcp_result_comes_back_as_one_with_everything_else_kept(meta):
    result = t.CallToolResult(
        content=[
            t.TextContent(type="text", text="hello", annotations=t.Annotations(priority=0.5), _meta={"app/x": 1}),
            t.ImageContent(type="image", data="AAAA", mime_type="image/png"),
        ],
        is_error=True,
        structured_content={"a": 1},
        _meta={"app/y": 2},
    )
    before = result.model_dump()
    wrapped = wrap_tool_call(result, meta)
    assert isinstance(wrapped, t.CallToolResult)
    assert result.model_dump() == before
    dumped = wrapped.model_dump(by_alias=True, exclude_none=True)
    assert dumped["content"][0]["_meta"] == {
        "app/x": 1,
        CODEC_META_KEY: {"map_id": VECTORS["map_id"], "ids": [259]},
    }
    assert dumped["content"][0]["annotations"] == {"priority": 0.5}
    assert wrapped.content[1] is result.content[1]
    assert (wrapped.is_error, wrapped.structured_content, wrapped.meta) == (True, {"a": 1}, {"app/y": 2})
    assert take_ids(wrapped) == [[259]]
    assert strip_codec_meta(wrapped).model_dump() == before
    assert strip_codec_meta(result) is result


def test_an_mcp_block_whose_only_meta_was_ours_has_none_after_stripping(meta):
    result = t.CallToolResult(content=[t.TextContent(type="text", text="hello")])
    assert strip_codec_meta(wrap_tool_call(result, meta)).content[0].meta is None


@pytest.mark.parametrize(("text", "length"), [("abc", 3), ("🚀", 2), ("é", 1), ("e\u0301", 2)])
def test_the_shortest_text_is_counted_in_utf_16_units(meta, text, length):
    result = {"content": [{"type": "text", "text": text}]}
    assert has_codec_meta(wrap_tool_call(result, meta, min_text_length=length))
    assert not has_codec_meta(wrap_tool_call(result, meta, min_text_length=length + 1))


@given(st.lists(texts()))
def test_reading_gives_back_the_ids_of_every_text_that_was_written(contents):
    meta = tiny_meta()
    result = {"content": [{"type": "text", "text": text} for text in contents]}
    wrapped = wrap_tool_call(result, meta)
    assert take_ids(wrapped, meta.map_id) == [tiny_map().encode(text) for text in contents]
    assert strip_codec_meta(wrapped) == result


def test_a_meta_tokenizer_needs_exactly_one_source(golden_map_path):
    digest = VECTORS["map_id"]
    with pytest.raises(MapUnreachable, match="exactly one"):
        make_meta_tokenizer(map_hash=digest)
    with pytest.raises(MapUnreachable, match="exactly one"):
        make_meta_tokenizer(map_path=golden_map_path, map_url="https://example.org/map.json", map_hash=digest)


def test_the_hash_is_looked_at_before_the_source():
    with pytest.raises(MapHashMalformed):
        make_meta_tokenizer(map_path="/does/not/exist", map_hash="sha256:short")


def test_a_map_with_another_hash_makes_no_tokenizer(golden_map_path):
    with pytest.raises(MapHashMismatch):
        make_meta_tokenizer(map_path=golden_map_path, map_hash=OTHER_MAP)
