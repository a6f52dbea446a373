"""A server's answer is read as any message is, and its result keeps its own bytes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.messages import LastingResult, Response, encode_response, parse_answer, parse_message
from tests.cases import each_of

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
results = st.dictionaries(st.sampled_from(["content", "id", "jsonrpc", "result", "_meta", "a"]), values, max_size=4)
blanks = st.sampled_from([b"", b" ", b"\t", b"\n", b"\r\n "])


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """An answer with its fields in any order and blanks anywhere between them, and the JSON of its result."""
    result = draw(results)
    if draw(st.booleans()):
        text = json.dumps(result, indent=1, ensure_ascii=draw(st.booleans())).encode("utf-8", "replace")
    else:
        text = json.dumps(result, separators=(",", ":")).encode()
    number = draw(st.integers(0, 10**17))
    fields = [b'"jsonrpc"@:@"2.0"', b'"id"@:@%d' % number, b'"result"@:@' + text.replace(b"@", b"\\u0040")]
    around = b"@{@" + b"@,@".join(draw(st.permutations(fields))) + b"@}@"
    parts = around.split(b"@")
    return b"".join(part + draw(blanks) for part in parts), text.replace(b"@", b"\\u0040")


@given(answers())
def test_answer_is_read_as_any_message_and_its_result_keeps_its_bytes(answer: tuple[bytes, bytes]):
    data, text = answer
    plain, read = parse_message(data), parse_answer(data)

    assert isinstance(plain, Response)
    assert read == plain
    assert isinstance(read.result, LastingResult)
    assert read.result.json == text.replace(b"\n", b" ").replace(b"\r", b" ")
    assert encode_response(7, read.result) == b'{"jsonrpc":"2.0","id":7,"result":%b}' % read.result.json


@given(st.lists(st.sampled_from([
    *(b"{", b"}", b",", b":", b" ", b"[", b"]", b'"', b"1", b"\\", b"NaN", b"1e999"),
    *(b'"jsonrpc":"2.0"', b'"id":1', b'"id":2', b'"result":', b'"result":{}', b'{"jsonrpc":"2.0","id":1,"result":{'),
    *(b'"error":{}', b'"method":"m"', b'"a":1', b"}}", b',"id":3}', b',"jsonrpc":"2.0"}'),
]), max_size=14).map(b"".join))  # fmt: skip
def test_whatever_a_line_is_nothing_but_one_json_object_passes_as_a_result(data: bytes):
    plain, read = parse_message(data), parse_answer(data)
    if not (isinstance(read, Response) and isinstance(read.result, LastingResult)):
        assert read == plain
        return
    whole: Any = json.loads(data, object_pairs_hook=list)
    assert sorted(key for key, _ in whole) == ["id", "jsonrpc", "result"]
    assert json.loads(read.result.json) == dict(json.loads(data))["result"]
    assert json.loads(encode_response(9, read.result)) == {
        "jsonrpc": "2.0",
        "id": 9,
        "result": json.loads(data)["result"],
    }


@pytest.mark.parametrize("blank", [b"\n", b"\r", b"\r\n", b" \n"])
def test_line_end_anywhere_in_a_result_ends_no_line(blank: bytes):
    """Answers of the usual kind, whose fields have no blanks between them."""
    for text in (b"@{}", b"{@}", b"{}@", b'{"a":@1}'):
        read = parse_answer(b'{"jsonrpc":"2.0","id":1,"result":%b}' % text.replace(b"@", blank))

        assert isinstance(read, Response)
        assert isinstance(read.result, LastingResult)
        assert not set(read.result.json) & set(b"\r\n")


def test_blanks_behind_an_answer_are_no_part_of_it_and_one_that_was_cut_is_none():
    usual = b'{"jsonrpc":"2.0","id":1,"result":{"a":1}}'
    read = parse_answer(usual + b" \r\n")

    assert isinstance(read, Response)
    assert isinstance(read.result, LastingResult)
    assert (read.id, read.result.json) == (1, b'{"a":1}')
    for cut in (usual[:-1], usual[:-2], usual[:-1] + b" ", usual[:-1] + b"]"):
        assert parse_answer(cut) == parse_message(cut)
        assert not isinstance(parse_answer(cut), Response)


@each_of(
    "number",
    ["1.50e3", "0.10", "1E400", "-0", "-0.0", "3.141592653589793238462643", "123456789012345678901234567890", "1e-400"],
)
def test_number_keeps_its_spelling(number: str):
    read = parse_answer(b'{"jsonrpc":"2.0","id":1,"result":{"n":%b}}' % number.encode())

    assert isinstance(read, Response)
    assert encode_response(1, read.result) == b'{"jsonrpc":"2.0","id":1,"result":{"n":%b}}' % number.encode()


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", '"\\ud800"', "01", "1.", "'a'"])
def test_what_is_no_json_passes_in_no_form(word: str):
    data = b'{"jsonrpc":"2.0","id":1,"result":{"n":%b}}' % word.encode()

    assert parse_answer(data) == parse_message(data)
    assert not isinstance(parse_answer(data), Response)


@each_of("data", [
    b'{"jsonrpc":"2.0","id":1,"result":{},"result":{"a":1}}',
    b'{"jsonrpc":"2.0","id":1,"id":2,"result":{}}',
    b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"result":{}}',
    b'{"jsonrpc":"2.0","id":1,"result":{},"id":2}',
    b'{"jsonrpc":"2.0","id":1,"result":{},"more":1}',
    b'{"jsonrpc":"2.0","id":"1","result":{}}',
    b'{"jsonrpc":"2.0","id":1,"result":{}},{"id":2}',
    b'{"jsonrpc":"2.0","result":{}}',
    b'{"jsonrpc":"2.0","id":1,"result":[]}',
])  # fmt: skip
def test_answer_of_an_unusual_kind_is_read_as_any_message(data: bytes):
    read = parse_answer(data)

    assert read == parse_message(data)
    assert not (isinstance(read, Response) and isinstance(read.result, LastingResult))
