"""Lines that strict JSON refuses, read as far as they can be read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.rpc.mending import mend_line

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (rb'{"a": "\ud800"}', '{"a": "\ufffd"}'),
        (rb'{"\udfff": 1}', '{"\ufffd": 1}'),
        (rb'{"a": "\udc00\ud800"}', '{"a": "\ufffd\ufffd"}'),
        (b'{"a": "\xff"}', '{"a": "\ufffd"}'),
        (rb'{"a": "\\ud800"}', r'{"a": "\\ud800"}'),
        (rb'{"a": "\ud83d\ude00"}', '{"a": "\U0001f600"}'),
    ],
)
def test_what_is_no_character_becomes_a_replacement_character(line, text):
    mended = mend_line(line)

    assert mended is not None
    assert mended.text == text


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        (b'{"id": 7, "result": {}}', 7),
        (b'{"id": 7, "method": "ping"}', None),
        (b'{"id": "7", "result": {}}', None),
        (b'{"id": true, "result": {}}', None),
        (b'{"result": {"id": 7}}', None),
    ],
)
def test_only_an_answer_names_the_request_that_it_answers(line, answers):
    mended = mend_line(line)

    assert mended is not None
    assert mended.answers == answers


@pytest.mark.parametrize("line", [b"", b"[1, 2]", b"7", b'"x"', b"{", b"\x00\xff", b'{"a": ' + b"[" * 100_000])
def test_what_is_no_object_is_nothing(line):
    assert mend_line(line) is None


@given(st.dictionaries(st.text(), JSON))
def test_object_of_whole_characters_stays_what_it_is(value):
    mended = mend_line(json.dumps(value).encode())

    assert mended is not None
    assert json.loads(mended.text) == value


@given(st.binary())
def test_any_bytes_give_writable_text_or_nothing(data):
    mended = mend_line(data)

    assert mended is None or mended.text.encode()
