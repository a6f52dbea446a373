"""What tool authors assert with tells them what is wrong."""

import pytest

from leaf_sdk import CodecMetaMapMismatchError, wrap_tool_call
from leaf_sdk.testing import assert_leaf_result, tiny_map, tiny_meta

RESULT = {"content": [{"type": "text", "text": "hello"}]}


def test_a_leaf_result_passes():
    assert_leaf_result(wrap_tool_call(RESULT, tiny_meta()), tiny_map())


def test_a_plain_result_fails_and_says_what_is_missing():
    with pytest.raises(AssertionError, match=r"content\[0\] \('hello'\) carries no ids"):
        assert_leaf_result(RESULT, tiny_map())


def test_ids_of_a_changed_text_fail():
    wrapped = wrap_tool_call(RESULT, tiny_meta())
    wrapped["content"][0]["text"] = "other"
    with pytest.raises(AssertionError, match="bad ids: text"):
        assert_leaf_result(wrapped, tiny_map())


def test_ids_of_another_map_fail(golden_map):
    with pytest.raises(CodecMetaMapMismatchError):
        assert_leaf_result(wrap_tool_call(RESULT, tiny_meta()), golden_map)
