"""Calls and answers are the published bytes, in both dialects, and garbage is one error."""

import contextlib
import subprocess
import sys

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

import leaf_sdk
from leaf_sdk import CodecToolCall, CodecToolResult
from leaf_sdk.errors import CallInvalid
from tests.cases import each_of

CALL_IDS = st.one_of(st.text(), st.integers(-(2**31), 2**63 - 1))
IDS = st.lists(st.integers(0, 2**32 - 1)).map(tuple)


def test_a_published_call_is_read_and_written_byte_for_byte(vectors):
    published = vectors("bolt_on")["codec_tool_call"]
    call = CodecToolCall.from_bytes(bytes.fromhex(published["msgpack_hex"]))
    assert call.to_fields() == published["json"]
    assert call.to_bytes().hex() == published["msgpack_hex"]
    assert (call.name, call.dialect) == ("get_current_time", "tool-kit")


def test_published_answers_are_read_and_written_byte_for_byte(vectors):
    kinds = []
    for published in vectors("bolt_on")["codec_tool_results"]:
        result = CodecToolResult.from_bytes(bytes.fromhex(published["msgpack_hex"]))
        assert result.to_fields() == published["json"]
        assert result.to_bytes().hex() == published["msgpack_hex"]
        kinds.append(result.kind)
    assert kinds == ["tokens", "text", "error"]


def test_the_engines_dialect_is_read_and_written_byte_for_byte(vectors):
    published = vectors("bolt_on")["engine_dispatcher_variant"]
    call = CodecToolCall.from_bytes(bytes.fromhex(published["call_msgpack_hex"]))
    assert call.dialect == "engine"
    assert call.to_bytes().hex() == published["call_msgpack_hex"]
    result = CodecToolResult.from_bytes(bytes.fromhex(published["result_msgpack_hex"]))
    assert result == CodecToolResult.tokens("tc_00000001", (259, 264))
    assert result.to_bytes("engine").hex() == published["result_msgpack_hex"]


def test_an_error_in_the_engines_dialect_says_what_failed():
    failed = CodecToolResult.failed("c", "no such place", "E_BAD_ARG")
    fields = failed.to_fields("engine")
    assert (fields["is_error"], fields["error_message"], fields["response_ids"]) == (True, "no such place", [])
    assert CodecToolResult.from_fields(fields) == CodecToolResult.failed("c", "no such place")


def test_the_engines_dialect_has_no_room_for_a_text():
    with pytest.raises(CallInvalid, match="no field for a text"):
        CodecToolResult.said("c", "hello").to_fields("engine")


@given(st.text(), CALL_IDS, IDS, st.text())
def test_a_call_comes_back(name, call_id, ids, model):
    call = CodecToolCall(name, call_id, argument_ids=ids, model_id=model)
    assert CodecToolCall.from_bytes(call.to_bytes()) == call


@given(CALL_IDS, IDS, st.text())
def test_an_answer_comes_back(call_id, ids, text):
    answers = [CodecToolResult.tokens(call_id, ids), CodecToolResult.said(call_id, text)]
    for result in [*answers, CodecToolResult.failed(call_id, text, "E_X"), CodecToolResult.failed(call_id, text)]:
        assert CodecToolResult.from_bytes(result.to_bytes()) == result


@given(st.binary())
def test_any_bytes_are_a_message_or_our_error(data):
    for kind in (CodecToolCall, CodecToolResult):
        with contextlib.suppress(CallInvalid):
            assert kind.from_bytes(data).to_fields()


GOOD = {"name": "t", "callId": "c", "argumentIds": [1], "modelId": "m"}


@each_of(
    ("key", "value"),
    [
        ("name", None),
        ("callId", None),
        ("callId", True),
        ("callId", 1.0),
        ("argumentIds", None),
        ("argumentIds", [1.0]),
        ("argumentIds", [True]),
        ("argumentIds", [-1]),
        ("argumentIds", [2**32]),
        ("argumentIds", "12"),
        ("modelId", 7),
    ],
)
def test_a_call_with_a_wrong_field_names_it(key, value):
    with pytest.raises(CallInvalid, match=key):
        CodecToolCall.from_bytes(msgpack.packb(GOOD | {key: value}))


@pytest.mark.parametrize(
    "fields",
    [
        {"callId": "c"},
        {"callId": "c", "kind": "odd"},
        {"callId": "c", "kind": "tokens"},
        {"callId": "c", "kind": "text", "text": 1},
        {"callId": "c", "kind": "error"},
        {"response_ids": [1]},
        {"call_id": "c", "response_ids": ["1"], "is_error": False},
    ],
)
def test_an_answer_with_a_wrong_field_is_refused(fields):
    with pytest.raises(CallInvalid):
        CodecToolResult.from_bytes(msgpack.packb(fields))


@pytest.mark.parametrize("data", [b"\x91" * 100_000, msgpack.packb([1]), msgpack.packb({1: 2}), b"\x81", b""])
def test_what_is_no_map_of_fields_is_refused(data):
    with pytest.raises(CallInvalid):
        CodecToolCall.from_bytes(data)


def test_a_body_beyond_the_bound_is_not_opened():
    with pytest.raises(CallInvalid, match="at most 4194304"):
        CodecToolCall.from_bytes(bytes(4 * 2**20 + 1))


def test_unknown_fields_are_left_alone():
    assert CodecToolCall.from_fields(GOOD | {"x_trace": 1}) == CodecToolCall.from_fields(GOOD)


def test_the_bolt_on_half_is_imported_with_its_first_name():
    code = "import leaf_sdk, sys; a = 'msgpack' in sys.modules; leaf_sdk.CodecTool; print(a, 'msgpack' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "True"]


def test_every_name_of_the_sdk_is_there_and_no_other():
    assert all(getattr(leaf_sdk, name) is not None for name in leaf_sdk.__all__)
    with pytest.raises(AttributeError, match="'nope'"):
        _ = leaf_sdk.nope


def test_arguments_may_come_as_text_in_the_tool_kits_dialect():
    call = CodecToolCall("say", "c", model_id="", arguments_json='{"a": 1}')
    assert call.to_fields()["x_arguments_json"] == '{"a": 1}'
    assert call.to_fields()["argumentIds"] == []
    assert CodecToolCall.from_bytes(call.to_bytes()) == call


def test_arguments_as_text_must_be_a_text():
    with pytest.raises(CallInvalid, match="x_arguments_json"):
        CodecToolCall.from_fields({"name": "say", "callId": 1, "modelId": "", "x_arguments_json": 3})
