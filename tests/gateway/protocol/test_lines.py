"""Bytes into bounded lines, however they are cut."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.lines import PORTION, LineSplitter, LongLine, portions
from tests.cases import each_of

BOUND = 20


def split(pieces: list[bytes], bound: int = BOUND) -> list[bytes | LongLine]:
    splitter = LineSplitter(bound)
    return [line for piece in pieces for line in splitter.feed(piece)] + splitter.close()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def test_lines_end_at_newlines_and_the_rest_comes_at_the_close():
    assert split([b"a\n\nb"]) == [b"a", b"", b"b"]


def test_line_of_exactly_the_bound_is_kept_and_one_more_byte_is_not():
    assert split([b"x" * BOUND + b"\n"]) == [b"x" * BOUND]
    assert split([b"x" * (BOUND + 1) + b"\ny\n"]) == [LongLine(b"x" * 21, b"x" * 21, 21), b"y"]


@given(st.lists(st.binary(max_size=600), max_size=4), st.lists(st.integers(0, 5000), max_size=20))
def test_any_cut_of_the_bytes_gives_the_same_lines(lines, places):
    data = b"\n".join(lines)

    assert split(cut(data, places)) == split([data])


@given(st.lists(st.binary(max_size=600), max_size=6), st.lists(st.integers(0, 5000), max_size=20))
def test_short_lines_come_whole_and_long_ones_with_both_ends(lines, places):
    expected = [line for part in lines for line in part.split(b"\n")]
    seen = split(cut(b"".join(line + b"\n" for line in lines), places))

    assert len(seen) == len(expected)
    for line, data in zip(seen, expected, strict=True):
        if len(data) <= BOUND:
            assert line == data
        else:
            assert line == LongLine(data[:256], data[-256:], len(data))


@pytest.mark.parametrize("first", [1, BOUND, 100, 255, 256, 300])
def test_long_line_has_no_longer_ends_where_it_comes_in_two_pieces(first):
    data = bytes(byte % 7 + 97 for byte in range(1000))

    assert split([data[:first], data[first:]]) == [LongLine(data[:256], data[-256:], 1000)]


def test_endless_line_keeps_no_more_than_its_ends():
    splitter = LineSplitter(BOUND)
    for _ in range(1000):
        assert splitter.feed(b"x" * 1000) == []
    (line,) = splitter.close()

    assert isinstance(line, LongLine)
    assert (line.length, len(line.head), len(line.tail)) == (1_000_000, 256, 256)


@each_of(
    ("text", "expected"),
    [
        ('{"jsonrpc": "2.0", "id": 7, "result": {"text": "PAD"}}', 7),
        ('{"id":7,"jsonrpc":"2.0","result":{"text":"PAD"}}', 7),
        ('{"result":{"text":"PAD"},"jsonrpc":"2.0","id":7}', 7),
        ('{"result":{"text":"PAD"},"id":7,"jsonrpc":"2.0"}', 7),
        ('{"result": {"id": 5, "text": "PAD"}, "x": 1}', None),
        ('{"result": {"text": "PAD", "jsonrpc": "2.0", "id": 5}}', None),
        ('{"result": {"text": "PAD, \\"id\\": 5}"}}', None),
        ('{"jsonrpc": "2.0", "id": "7", "result": {"text": "PAD"}}', None),
        ('[{"jsonrpc": "2.0", "id": 7, "result": {"text": "PAD"}}]', 7),
        ('[{"method": "n", "params": {"text": "PAD"}}, {"jsonrpc": "2.0", "id": 7, "result": {}}]', None),
        ('{"result": [{"text": "PAD", "id": 5}]', None),
        ("PAD", None),
    ],
)
def test_long_line_tells_whose_answer_it_was_only_where_it_can_be_no_nested_id(text, expected):
    data = text.replace("PAD", "x" * 1000).encode()
    (line,) = split([data])

    assert isinstance(line, LongLine)
    assert line.answered_id() == expected
    if expected is not None:
        read = json.loads(data)
        assert (read[0] if isinstance(read, list) else read)["id"] == expected


@pytest.mark.parametrize(
    "head",
    [
        b'{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage","params":{"a":"',
        b'{"method":"sampling/createMessage","params":{"a":"',
        b'{"id": 5, "method": "x", "params": {"a": "',
    ],
)
def test_long_request_of_the_server_answers_none_of_ours(head):
    (line,) = split([head + b"x" * 1000 + b'"},"jsonrpc":"2.0","id":5}\n'])

    assert isinstance(line, LongLine)
    assert line.answered_id() is None


def test_line_over_the_bound_is_seen_before_it_ends_and_no_longer_when_it_did():
    splitter = LineSplitter(300)
    seen: list[LongLine | None] = []
    for piece in (b"x" * 300, b"y", b"z" * 1000, b"\nshort"):
        splitter.feed(piece)
        seen.append(splitter.over)

    head, edge = b"x" * 256, b"x" * 255 + b"y"
    assert seen == [None, LongLine(head, edge, 301), LongLine(head, b"z" * 256, 1301), None]


def test_line_over_a_bound_that_is_shorter_than_a_head_is_not_judged_by_half_of_one():
    splitter = LineSplitter(BOUND)
    splitter.feed(b'{"jsonrpc":"2.0","id":5,')

    assert splitter.over is None


@given(st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"data: x", b"\x85", "\u2028".encode()]), max_size=400))
def test_portions_are_all_bytes_in_order_and_none_has_more_line_ends_than_others_can_wait_for(parts):
    data = b"".join(parts)
    pieces = list(portions(data))

    assert b"".join(pieces) == data
    assert all(piece.count(b"\n") + piece.count(b"\r") <= PORTION for piece in pieces)


@each_of("length", [0, 500, 100_000])
@each_of("ends", [b"\n" * PORTION, b"\r" * PORTION, b"x\r\n" * (PORTION // 2)])
def test_bytes_of_few_lines_are_one_portion_however_long_they_are(length: int, ends: bytes):
    data = b"x" * length + ends

    assert list(portions(data)) == [data]
    assert [len(piece) for piece in portions(data + b"\n")] == [len(data), 1]
