"""A request and its answer as records between two replicas, and back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.replicas.forwarder import (
    BODY,
    END,
    FORWARDED,
    PIECE,
    head_of,
    message_of,
    pieces,
    scope_of,
    start_of,
    streams,
)
from gateway.replicas.sealed_records import MOST, RecordFault
from tests.cases import each_of

HEADERS = st.lists(st.tuples(st.binary(max_size=9).map(lambda name: b"x-" + name), st.binary(max_size=20)), max_size=4)
SCOPES = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["GET", "POST", "DELETE"]),
        "path": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        "headers": HEADERS,
    },
    optional={
        "scheme": st.sampled_from(["http", "https"]),
        "query_string": st.binary(max_size=20),
        "client": st.none() | st.tuples(st.ip_addresses().map(str), st.integers(0, 65535)),
    },
)


@given(SCOPES, st.binary(max_size=8))
def test_request_is_read_as_it_was_written(scope: dict[str, Any], boot: bytes) -> None:
    read, meant_for = scope_of(head_of(scope, boot))

    assert meant_for == boot
    assert (read["type"], read[FORWARDED], read["raw_path"]) == ("http", True, scope["path"].encode())
    defaults = {"scheme": "http", "query_string": b"", "client": None}
    for name, value in {**defaults, **scope}.items():
        assert read[name] == value


@given(st.integers(100, 599), HEADERS)
def test_answer_is_read_as_it_was_written(status: int, headers: list[tuple[bytes, bytes]]) -> None:
    message = {"type": "http.response.start", "status": status, "headers": headers}

    assert message_of(start_of(message)) == message
    assert message_of(start_of({"status": status})) == {**message, "headers": []}


def test_headers_of_one_connection_stay_there() -> None:
    kept = [(b"Content-Type", b"text/plain"), (b"te-x", b"1")]
    own = [b"Connection", b"keep-alive", b"Transfer-Encoding", b"upgrade", b"TE", b"trailer"]
    headers = [kept[0], *((name, b"x") for name in own), kept[1]]

    assert message_of(start_of({"status": 200, "headers": headers}))["headers"] == kept


@pytest.mark.parametrize("said", [b"", b"{", b"[]", b"null", b'{"client": [1]}', b"[" * 100_000, b"\xff"])
def test_bytes_that_are_no_request_or_answer_are_told(said: bytes) -> None:
    with pytest.raises(RecordFault, match="a request that can't be read"):
        scope_of(said)
    with pytest.raises(RecordFault, match="an answer that can't be read"):
        message_of(said)


@pytest.mark.parametrize(
    ("headers", "streamed"),
    [
        ([], False),
        ([(b"content-type", b"text/event-stream")], True),
        ([(b"x", b"y"), (b"Content-Type", b"text/event-stream; charset=utf-8")], True),
        ([(b"content-type", b"application/json"), (b"accept", b"text/event-stream")], False),
    ],
)
def test_answer_is_streamed_if_its_type_is_that_of_events(headers: list[tuple[bytes, bytes]], streamed: bool) -> None:
    assert streams(headers) is streamed


SIZES = [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 5]


@each_of("size", SIZES)
@each_of("more", [False, True])
def test_body_is_cut_into_records_whose_last_ends_it_unless_more_follows(size: int, more: bool) -> None:
    body = bytes(n % 251 for n in range(size))
    records = pieces(body, more=more)

    assert b"".join(data for _, data in records) == body
    assert [kind for kind, _ in records][:-1] == [BODY] * (len(records) - 1)
    assert records[-1:] == [] if more and not size else records[-1][0] == (BODY if more else END)
    assert all(len(data) < MOST // 2 for _, data in records)
    assert len(records) == max(-(-size // PIECE), not more)
