"""Server-sent events, however their bytes are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.lines import EventParser, LongEvent, LongLine, SseEvent, encode_event

BOUND = 40


def parse(*pieces: bytes, bound: int = BOUND) -> list[SseEvent | LongEvent]:
    parser = EventParser(bound)
    return [event for piece in pieces for event in parser.feed(piece)]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


PIECES = st.sampled_from(
    [
        b"data",
        b"id",
        b"event",
        b"retry",
        b":",
        b": ",
        b" ",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"x",
        b"7",
        b"\0",
        b"\xff",
        b"y" * 30,
    ]
)
STREAMS = st.lists(PIECES, max_size=60).map(b"".join)
PLACES = st.lists(st.integers(0, 5000), max_size=20)


def test_data_lines_of_one_event_are_joined_by_line_feeds():
    assert parse(b"data: a\ndata:b\ndata:  c\n\n") == [SseEvent(b"a\nb\n c")]


def test_event_names_its_kind_and_the_next_one_is_a_message_again():
    assert parse(b"event: ping\ndata: a\n\ndata: b\n\n") == [SseEvent(b"a", "ping"), SseEvent(b"b", "message")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_each_of_the_three_line_ends_ends_a_line(end):
    assert parse(b"data: a" + end + b"data: b" + end + end + b"data: c" + end + end) == [
        SseEvent(b"a\nb"),
        SseEvent(b"c"),
    ]


def test_pair_of_line_ends_cut_in_the_middle_is_one_end():
    assert parse(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [SseEvent(b"a\nb")]


def test_comments_unknown_fields_and_lines_without_colon_say_nothing():
    assert parse(b": keep-alive\nfoo: bar\nnonsense\ndata: a\n\n") == [SseEvent(b"a")]


def test_byte_order_mark_before_the_stream_is_no_part_of_it():
    assert parse(b"\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbf\n\n") == [SseEvent(b"a"), SseEvent(b"\xef\xbb\xbf")]


def test_event_that_the_end_of_the_stream_cuts_off_is_none():
    parser = EventParser(BOUND)

    assert parser.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n") == [SseEvent(b"a")]
    assert parser.last_id == "1"


def test_event_without_data_is_none_but_its_id_counts():
    parser = EventParser(BOUND)

    assert parser.feed(b"id: 7\nretry: 500\ndata: \n\n") == []
    assert (parser.last_id, parser.retry) == ("7", 500)


def test_id_stays_until_another_comes_or_an_empty_one_takes_it_back():
    parser = EventParser(BOUND, last_id="0")
    seen = [parser.last_id]
    for event in (b"id: a\ndata: 1\n\n", b"data: 2\n\n", b"id\ndata: 3\n\n"):
        parser.feed(event)
        seen.append(parser.last_id)

    assert seen == ["0", "a", "a", None]


@pytest.mark.parametrize("bad", [b"a\0b", b"a\x7fb", b"a\tb", b"x" * 1025, b"\xe2\x80\xae"])
def test_id_that_no_header_could_carry_is_no_id(bad):
    parser = EventParser(BOUND, last_id="before")
    parser.feed(b"id: " + bad + b"\ndata: 1\n\n")

    assert parser.last_id == "before"


@pytest.mark.parametrize("bad", [b"soon", b"-1", b"1.5", b"", b"9" * 10, "\u0661".encode()])
def test_pause_that_is_no_plain_number_is_passed_over(bad):
    parser = EventParser(BOUND)
    parser.feed(b"retry: 10\n\nretry: " + bad + b"\n\n")

    assert parser.retry == 10


def test_data_of_exactly_the_bound_is_kept_and_one_more_byte_is_not():
    assert parse(b"data: " + b"x" * BOUND + b"\n\n") == [SseEvent(b"x" * BOUND)]
    assert parse(b"data: " + b"x" * (BOUND + 1) + b"\n\ndata: y\n\n") == [
        LongEvent(LongLine(b"x" * 41, b"x" * 41, 41), ended=True),
        SseEvent(b"y"),
    ]


def test_many_data_lines_count_together_even_where_they_are_empty():
    (event,) = parse(b"data\n" * 100 + b"\n")

    assert isinstance(event, LongEvent)


def test_long_event_shows_whom_it_would_have_answered():
    head_first = b'data: {"jsonrpc": "2.0", "id": 5, "result": {"a": "' + b"x" * 5000 + b'"}}\n\n'
    head_last = b'data: {"result": {"a": "' + b"x" * 5000 + b'"}, "jsonrpc": "2.0", "id": 6}\n\n'
    events = parse(head_first, head_last)

    assert [event.data.answered_id() for event in events if isinstance(event, LongEvent)] == [5, 6]


def test_endless_event_keeps_no_more_than_its_ends():
    parser = EventParser(BOUND)
    for _ in range(1000):
        assert parser.feed(b"data: " + b"x" * 30 + b"\n") == []
    (event,) = parser.feed(b"\n")

    assert isinstance(event, LongEvent)
    assert len(event.data.head) + len(event.data.tail) <= 512


@given(STREAMS, PLACES)
def test_any_cut_of_the_bytes_gives_the_same_events_id_and_pause(data, places):
    whole, pieces = EventParser(BOUND), EventParser(BOUND)
    events = whole.feed(data)

    assert [event for piece in cut(data, places) for event in pieces.feed(piece)] == events
    assert (pieces.last_id, pieces.retry) == (whole.last_id, whole.retry)


@given(st.binary(max_size=300), PLACES)
def test_garbage_gives_events_and_no_exception(data, places):
    for event in parse(*cut(data, places)):
        assert isinstance(event, SseEvent | LongEvent)


@given(
    st.lists(st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]), min_size=1).map(str.encode)),
    PLACES,
)
def test_events_that_were_written_are_read_back(bodies, places):
    wanted = [body for body in bodies if body.strip(b"\n")]
    stream = b"".join(encode_event(body, event_id=str(n), kind="message") for n, body in enumerate(wanted))

    assert parse(*cut(stream, places), bound=10_000) == [SseEvent(body) for body in wanted]


def test_written_event_has_its_fields_before_its_data():
    assert encode_event(b"{}", event_id="1", kind="message", retry=500) == (
        b"id: 1\nevent: message\nretry: 500\ndata: {}\n\n"
    )
    assert encode_event(b"") == b"data: \n\n"


@pytest.mark.parametrize("begun", [b"data: ", b": ", b"id: ", b"x", b"data: " + b"y" * 300 + b"\ndata: "])
def test_what_goes_over_the_bound_is_seen_before_it_ends(begun):
    parser = EventParser(400)
    assert parser.feed(begun) == []
    assert parser.over is None

    assert parser.feed(b"z" * 500) == []
    assert parser.over is not None
    assert parser.over.length >= 500
    assert parser.over.tail == b"z" * 256


def test_event_of_many_lines_is_seen_to_be_over_the_bound_between_them():
    parser = EventParser(400)
    lengths: list[int] = []
    for _ in range(4):
        parser.feed(b"data: " + b"x" * 299 + b"\n")
        lengths.append(0 if parser.over is None else parser.over.length)

    assert lengths == [0, 600, 900, 1200]
    parser.feed(b"\n")
    assert parser.over is None


def test_long_comment_in_an_event_costs_the_event_nothing():
    assert parse(b":" + b"x" * 1000 + b"\ndata: a\n\n") == [SseEvent(b"a")]
