"""Lines that strict JSON refuses, read as far as they can be read."""

import json
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.mending import BrokenAnswer, mend_line, mend_message
from gateway.protocol.messages import Failure, Malformed, Notification, Request, Response, parse_message
from tests.cases import each_of

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


@each_of(
    ("line", "answers"),
    [
        (b'{"id": 7, "result": {}}', 7),
        (b'{"id": 7, "method": "ping"}', None),
        (b'{"id": "7", "result": {}}', 7),
        (b'{"id": "7"}', None),
        (b'{"id": "07", "result": {}}', 7),
        (b'{"id": 7.0, "result": {}}', 7),
        (b'{"id": 7, "method": null, "result": {}}', 7),
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
    if not {"method", "result", "error"} & value.keys():
        assert json.loads(mended.text) == value


@given(st.binary())
def test_any_bytes_give_writable_text_or_nothing(data):
    mended = mend_line(data)

    assert mended is None or mended.text.encode()


def refused(data: bytes) -> Malformed:
    message = parse_message(data)
    assert isinstance(message, Malformed)
    return message


@each_of(
    ("data", "message"),
    [
        (rb'{"jsonrpc": "2.0", "id": 7, "result": {"a": "\ud800"}}', Response(7, {"a": "\ufffd"})),
        (b'{"jsonrpc": "2.0", "id": 7, "result": []}', BrokenAnswer(7, ANY)),
        (b'{"id": 7, "result": {}}', Response(7, {})),
        (b'{"jsonrpc": 2.0, "id": 7, "result": {}}', Response(7, {})),
        (b'{"jsonrpc": null, "id": 7, "result": {}}', Response(7, {})),
        (b'{"jsonrpc": "1.0", "id": "7", "result": {}}', Response(7, {})),
        (b'{"jsonrpc": "2.0", "id": 7.0, "result": {}}', Response(7, {})),
        (b'{"jsonrpc": "2.0", "id": 7, "error": null, "result": {}}', Response(7, {})),
        (b'{"jsonrpc": "2.0", "id": 7, "error": "", "result": {}}', Response(7, {})),
        (b'{"jsonrpc": "2.0", "id": "7", "method": null, "error": false, "result": {}}', Response(7, {})),
        (b'{"jsonrpc": "2.0", "id": 7, "error": "no"}', Failure(7, {"code": -32603, "message": "no"})),
        (
            b'{"id": "7", "error": {"code": 1, "message": "no"}, "result": null}',
            Failure(7, {"code": 1, "message": "no"}),
        ),
        (b'{"id": 7, "error": null}', BrokenAnswer(7, ANY)),
        (b'{"id": "7", "result": []}', BrokenAnswer(7, ANY)),
        (b'{"id": 7.5, "result": {}}', Malformed(-32600, ANY)),
        (b'\xef\xbb\xbf{"jsonrpc": "2.0", "id": 7, "result": {}}', Response(7, {})),
        (b'Loading {x}... {"jsonrpc": "2.0", "id": 7, "result": {}}', Response(7, {})),
        (b'> {"id": "7", "result": {}, "jsonrpc": "2.0"}', Response(7, {})),
        (b'{"method": "notifications/progress", "params": {"a": 1}}', Notification("notifications/progress", {"a": 1})),
        (b'{"id": "q", "method": "roots/list"}', Request("q", "roots/list", {})),
        (b'{"level": "info", "method": "GET", "id": 7}', Malformed(-32600, ANY, 7)),
        (b'{"level": "info", "id": "7", "msg": "x"}', Malformed(-32600, ANY, "7")),
        (b'{"jsonrpc": "2.0", "id": 7, "method": 1}', Malformed(-32600, ANY, 7)),
        (b"Welcome!", Malformed(-32700, ANY)),
    ],
)
def test_message_that_was_refused_is_read_as_far_as_it_can_be(data, message):
    assert mend_message(data, refused(data)) == message


def test_answer_that_is_nested_too_deep_fails_its_own_request():
    data = b'{"jsonrpc": "2.0", "id": 7, "result": ' + b'{"a": ' * 500 + b"1" + b"}" * 501

    assert mend_message(data, refused(data)) == BrokenAnswer(7, ANY)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":' + b'{"a":' * 200_000 + b"1" + b"}" * 200_000 + b"}", "nested too deeply"),
        (b'{"result":' + b"[" * 200_000 + b"]" * 200_000 + b',"jsonrpc":"2.0","id":7}', "nested too deeply"),
        (b'{"jsonrpc":"2.0","id":7,"result":' + b"[" * 500 + b"]" * 500 + b"}", "nested too deeply"),
        (b'{"jsonrpc": "2.0", "id": 7, "result": {"a": "cut sh', "not JSON"),
        (b'{"jsonrpc": "2.0", "id": 7, "result": {"a": ' + b"9" * 5000 + b"}}", "not JSON"),
    ],
)
def test_answer_that_is_no_json_is_known_by_its_ends(line, said):
    refused = parse_message(line)
    assert isinstance(refused, Malformed)
    message = mend_message(line, refused)

    assert isinstance(message, BrokenAnswer)
    assert message.id == 7
    assert said in message.detail


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":7,"method":"x","params":' + b"[" * 100_000,
        b'{"id": 7, "level": "debug", oops',
        b'{"jsonrpc":"2.0","result":{"id":7,' + b"[" * 100_000,
    ],
)
def test_line_that_is_no_json_and_shows_no_answer_answers_nobody(line):
    refused = parse_message(line)
    assert isinstance(refused, Malformed)

    assert mend_message(line, refused) == refused
