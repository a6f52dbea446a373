"""Bytes into JSON-RPC messages and back: nothing raises, nothing is lost."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.messages import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    Failure,
    LastingResult,
    Malformed,
    Notification,
    Request,
    Response,
    Unwritable,
    encode_failure,
    encode_notification,
    encode_request,
    encode_response,
    is_json,
    names_no_number,
    parse_message,
    read_message,
)

# What JSON can carry through both directions: whole characters, and numbers that are numbers.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXT, VALUES)
IDS = st.integers() | TEXT


@given(IDS, TEXT, OBJECTS)
def test_request_comes_back_as_it_was(request_id, method, params):
    assert parse_message(encode_request(request_id, method, params)) == Request(request_id, method, params)


@given(TEXT, OBJECTS)
def test_notification_comes_back_as_it_was(method, params):
    assert parse_message(encode_notification(method, params)) == Notification(method, params)


@given(st.lists(IDS, min_size=1), OBJECTS)
def test_lasting_result_is_written_as_any_other_however_often(ids, result):
    lasting = LastingResult.of(result)
    assert [encode_response(each, lasting) for each in ids] == [encode_response(each, result) for each in ids]


@given(IDS, OBJECTS, OBJECTS, st.integers(), TEXT)
def test_answers_come_back_as_they_were(request_id, result, more, code, message):
    error = {**more, "code": code, "message": message}
    assert parse_message(encode_response(request_id, result)) == Response(request_id, result)
    assert parse_message(encode_failure(request_id, error)) == Failure(request_id, error)
    assert parse_message(encode_failure(None, error)) == Failure(None, error)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({}, {"code": -32603, "message": "no reason was given"}),
        ({"code": "x", "message": "no", "data": [1]}, {"code": -32603, "message": "no", "data": [1]}),
        ({"code": True, "message": None}, {"code": -32603, "message": "no reason was given"}),
        ({"code": 1.5, "message": {"a": [1]}}, {"code": -32603, "message": '{"a":[1]}'}),
        ({"code": 7, "message": 5}, {"code": 7, "message": "5"}),
    ],
)
def test_error_that_no_reader_would_take_is_read_as_one_that_all_take(sent, read):
    assert parse_message(encode_failure(3, sent)) == Failure(3, read)


@given(st.binary())
def test_any_bytes_are_a_message_or_malformed(data):
    assert isinstance(parse_message(data), Request | Notification | Response | Failure | Malformed)


@given(
    st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]), VALUES | st.just("2.0"))
)
def test_any_object_is_a_message_or_malformed_with_an_id_only_if_it_could_be_one(fields):
    message = read_message(fields)

    assert isinstance(message, Request | Notification | Response | Failure | Malformed)
    if isinstance(message, Malformed) and message.id is not None:
        assert message.id == fields["id"]
        assert not isinstance(message.id, bool)


@pytest.mark.parametrize("digits", [16, 64, 4000])
def test_integers_keep_all_their_digits(digits):
    number = int("9" * digits)
    message = parse_message(b'{"jsonrpc":"2.0","id":%d,"method":"m","params":{"n":-%d}}' % (number, number))

    assert message == Request(number, "m", {"n": -number})
    assert json.loads(encode_request(number, "m", {"n": -number}))["params"]["n"] == -number


@pytest.mark.parametrize("data", [b"[]", b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]'])
def test_batch_is_refused_with_a_way_out(data):
    assert parse_message(data) == Malformed(INVALID_REQUEST, "the message is a batch; send one message at a time")


@pytest.mark.parametrize("data", [b"", b"{", b"nope", b"\xff\xfe", b'{"a":"\\ud800"}', b"[" * 300 + b"]" * 300])
def test_what_is_no_json_that_could_be_carried_on_is_a_parse_error(data):
    message = parse_message(data)

    assert isinstance(message, Malformed)
    assert (message.code, message.id) == (PARSE_ERROR, None)


@pytest.mark.parametrize("bad", ["null", "true", "1.5", "[]", "{}"])
def test_request_whose_id_is_neither_text_nor_integer_is_refused_and_no_notification(bad):
    message = parse_message(b'{"jsonrpc":"2.0","id":%s,"method":"m"}' % bad.encode())

    assert message == Malformed(INVALID_REQUEST, "the id must be a string or an integer", None)


@pytest.mark.parametrize(
    "fields",
    [
        {"id": 7, "method": "m"},
        {"jsonrpc": "1.0", "id": 7, "method": "m"},
        {"jsonrpc": "2.0", "id": 7, "method": 1},
        {"jsonrpc": "2.0", "id": 7, "method": "m", "params": []},
        {"jsonrpc": "2.0", "id": 7},
        {"jsonrpc": "2.0", "id": 7, "result": None},
        {"jsonrpc": "2.0", "id": 7, "error": "text"},
    ],
)
def test_who_sent_what_is_no_message_is_answered_under_its_id(fields):
    message = read_message(fields)

    assert isinstance(message, Malformed)
    assert (message.code, message.id) == (INVALID_REQUEST, 7)


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"id": 7, "method": "m"}, 'the message is not JSON-RPC 2.0: expected "jsonrpc": "2.0"'),
        ({"jsonrpc": "2.0", "id": 7, "method": 1}, "the method must be a string"),
        ({"jsonrpc": "2.0", "id": 7, "method": "m", "params": []}, "the params must be an object"),
        ({"jsonrpc": "2.0", "id": 7}, "the message has no method, no result object and no error"),
        ({"jsonrpc": "2.0", "id": 7, "result": []}, "the message has no method, no result object and no error"),
        ({"jsonrpc": "2.0", "id": 7, "error": []}, "the error response has no error object or an invalid id"),
        ({"jsonrpc": "2.0", "id": 7, "error": {}, "result": {}}, "the response has a result and an error"),
    ],
)
def test_what_is_no_message_is_refused_with_what_was_expected(fields, detail):
    assert read_message(fields) == Malformed(INVALID_REQUEST, detail, 7)


@pytest.mark.parametrize("bad", [True, 1.5, [], {}])
def test_answer_whose_id_nobody_can_have_sent_is_refused(bad):
    for fields in ({"result": {}}, {"error": {"code": 1, "message": "no"}}):
        message = read_message({"jsonrpc": "2.0", "id": bad, **fields})
        assert isinstance(message, Malformed)
        assert message.id is None
    assert isinstance(read_message({"jsonrpc": "2.0", "result": {}}), Malformed)


def test_error_beside_a_result_is_the_answer_unless_it_is_empty():
    error = {"code": 1, "message": "no"}

    assert read_message({"jsonrpc": "2.0", "id": 7, "error": error, "result": {}}) == Failure(7, error)
    assert read_message({"jsonrpc": "2.0", "id": None, "error": error}) == Failure(None, error)
    assert isinstance(read_message({"jsonrpc": "2.0", "id": 7, "error": {}}), Failure)


def test_codes_of_errors_are_those_of_json_rpc_and_of_mcp():
    codes = (PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR)
    assert codes == (-32700, -32600, -32601, -32602, -32603)
    assert (HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION) == (-32020, -32021, -32022)


@pytest.mark.parametrize(("data", "deep"), [(b"[" * 300 + b"]" * 300, True), (b"[", False)])
def test_message_that_is_nested_too_deeply_is_told_so(data, deep):
    detail = "the message is nested too deeply" if deep else "the message is not JSON"
    assert parse_message(data) == Malformed(PARSE_ERROR, detail)


@pytest.mark.parametrize(("data", "whole"), [(b"{}", True), (b"7", True), (b"NaN", True), (b"{", False), (b"", False)])
def test_json_is_a_whole_value(data, whole):
    assert is_json(data) is whole


@pytest.mark.parametrize(
    ("data", "names"), [(b"NaN", True), (b"Infinity", True), (b"[-Infinity]", True), (b"Na", False)]
)
def test_number_that_json_does_not_have_is_found_by_its_name_anywhere(data, names):
    assert names_no_number(data) is names


def test_lasting_result_is_written_once():
    lasting, known = LastingResult.of({"a": 1}), LastingResult.of({"a": 1.5}, b'{"a":1.50}')
    before = (lasting.written_bytes, known.written_bytes)

    assert lasting.json is lasting.json
    assert before == (0, 10)
    assert lasting.written_bytes == len(b'{"a":1}')
    assert encode_response(7, known) == b'{"jsonrpc":"2.0","id":7,"result":{"a":1.50}}'


def test_missing_and_null_params_are_empty_ones():
    assert read_message({"jsonrpc": "2.0", "method": "m", "params": None}) == Notification("m", {})
    assert json.loads(encode_request(1, "m", None)) == {"jsonrpc": "2.0", "id": 1, "method": "m"}


def test_what_no_json_can_hold_is_not_written():
    with pytest.raises(ValueError, match="surrogates"):
        encode_request(1, "m", {"x": "\ud800"})


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_number_that_json_does_not_have_is_refused_by_name_where_it_is_read(word):
    message = parse_message(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":%s}}' % word.encode())

    assert message == Malformed(
        PARSE_ERROR, "the message is not JSON: NaN and Infinity are not JSON numbers; send null or a string"
    )


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "say NaN"])
def test_texts_may_say_what_they_like(text):
    params = {"x": text, text: 1}

    assert parse_message(encode_request(1, "m", params)) == Request(1, "m", params)
    assert parse_message(b'{"x":"NaN", nope') == Malformed(PARSE_ERROR, "the message is not JSON")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 1e999])
def test_number_that_json_does_not_have_is_not_written(number):
    for write in (
        lambda x: encode_request(1, "m", x),
        lambda x: encode_notification("m", x),
        lambda x: encode_response(1, x),
        lambda x: encode_response(1, LastingResult.of(x)),
        lambda x: encode_failure(1, x),
    ):
        with pytest.raises(Unwritable, match="NaN and Infinity are not JSON numbers"):
            write({"x": [number]})


def test_number_too_large_for_a_float_comes_back_to_nobody_as_something_else():
    message = parse_message(b'{"jsonrpc":"2.0","id":1,"result":{"x":1e999}}')

    assert isinstance(message, Response)
    with pytest.raises(Unwritable):
        encode_response(1, message.result)
