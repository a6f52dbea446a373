"""How large a result is, and how the call ended that gave it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.results import ending_of, error_result, exceeds

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def test_error_result_is_a_tool_result_that_failed():
    assert error_result("gone") == {"content": [{"type": "text", "text": "gone"}], "isError": True}


@pytest.mark.parametrize(("limit", "over"), [(12, True), (13, False)])
def test_bytes_of_keys_and_texts_are_counted(limit, over):
    assert exceeds({"ab": {"cdä": "wö€"}, "n": None}, limit) is over


def test_long_list_of_numbers_is_large():
    assert exceeds({"a": [0] * 1000}, 1000)


@given(JSON)
def test_nothing_exceeds_its_own_json(value):
    assert not exceeds(value, len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")) + 2)


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ({"content": []}, "ok"),
        ({"content": [], "isError": False}, "ok"),
        ({"content": [], "isError": "true"}, "ok"),
        (error_result("no"), "tool_error"),
    ],
)
def test_result_says_how_its_call_ended(result, outcome):
    assert ending_of(result) == outcome
