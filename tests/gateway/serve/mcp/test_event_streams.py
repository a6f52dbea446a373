"""The events of a session's streams: their numbers, what is sent again to a client that comes back, and how much."""

import json

import pytest

from gateway.serve.mcp.event_streams import EventHistory, EventLog, EventStream
from gateway.shared import StoreBounds, StoreRecord

pytestmark = pytest.mark.anyio


class Log:
    """What other replicas are told."""

    def __init__(self):
        self.written = []

    def write(self, stream, number, frame, *, ahead=False):
        self.written.append((stream, number, frame, ahead))


@pytest.fixture
async def stream():
    return EventStream(7, EventHistory(), lambda: None)


def events_of(data):
    """Ids and data of server-sent events."""
    found = []
    for part in data.decode().split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in part.splitlines())
        if fields:
            found.append((fields.get("id"), fields.get("data") or fields.get("data:", "")))
    return found


async def test_events_have_numbers_of_their_stream_and_are_sent_again_behind_the_last_that_a_client_has(stream):
    first = stream.attach()
    for text in (b"1", b"2", b"3"):
        stream.put(text)
    sent = events_of(first.take())
    stream.put(b"4")
    again = stream.attach(after=1)

    assert sent == [("7-1", "1"), ("7-2", "2"), ("7-3", "3")]
    assert first.over
    assert first.take() == b""
    assert events_of(again.take()) == [("7-2", "2"), ("7-3", "3"), ("7-4", "4")]
    assert again.take() == b""
    assert not again.over


async def test_first_event_of_a_primed_response_says_where_its_client_is_and_when_to_come_back(stream):
    reader = stream.attach()
    reader.prime(500)
    before, first = reader.resumable, reader.take()
    stream.put(b"1")
    reader.take()
    again = stream.attach(after=0)
    again.prime(500)

    assert (before, reader.resumable) == (False, True)
    assert first.startswith(b"id: 7-0\n") or b"\nid: 7-0\n" in first
    assert b"retry: 500\n" in first
    assert [each for each, _ in events_of(again.take())] == ["7-0", "7-1"]


async def test_response_without_an_event_has_no_id_by_which_its_client_could_come_back(stream):
    reader = stream.attach()

    assert reader.take() == b""
    assert not reader.resumable


async def test_finished_stream_ends_its_response_behind_the_last_frame_and_wakes_nobody_more(stream):
    reader = stream.attach()
    reader.ready.clear()
    stream.finish(b"last")

    assert (reader.ready.is_set(), reader.over, stream.finished) == (True, True, True)
    assert events_of(reader.take()) == [("7-1", "last")]
    reader.ready.clear()
    stream.put(b"late")
    assert not reader.ready.is_set()


async def test_reader_that_another_took_over_from_detaches_nothing(stream):
    first = stream.attach()
    second = stream.attach()
    stream.detach(first)
    attached = stream.attached
    stream.detach(second)

    assert (attached, stream.attached) == (True, False)


async def test_events_that_nobody_has_read_are_told_to_other_replicas_once_the_stream_is_over():
    log = Log()
    stream = EventStream(7, EventHistory(log), lambda: None)
    reader = stream.attach()
    stream.put(b"1")
    reader.take()
    stream.detach(reader)
    before = list(log.written)
    stream.put(b"2")
    stream.finish(b"3")

    assert before == [(7, 1, b"1", False)]
    assert log.written[1:] == [(7, 2, b"2", True), (7, 3, b"3", True)]


@pytest.mark.parametrize(
    ("count", "size", "kept"), [(1024, 10, 1024), (1100, 10, 1024), (4, 1024 * 256, 4), (5, 1024 * 256, 4)]
)
async def test_history_of_a_session_is_bounded_in_events_and_bytes_and_forgets_the_oldest(count, size, kept):
    history = EventHistory()
    for number in range(1, count + 1):
        history.keep(number % 2, number, b"x" * size)
    found = [number for which in (0, 1) for number, _ in history.after(which, 0)]

    assert sorted(found) == list(range(count - kept + 1, count + 1))
    assert history.after(0, count) == []
    assert [number for number, _ in history.after(count % 2, count - 1)] == [count]


async def test_frame_is_sent_as_it_is(stream):
    frame = json.dumps({"jsonrpc": "2.0", "method": "x"}).encode()
    reader = stream.attach()
    stream.put(frame)

    assert events_of(reader.take()) == [("7-1", frame.decode())]


class Store:
    """A shared store that keeps what it gets only when the test lets it."""

    def __init__(self):
        self.kept = []
        self.writers = []

    def run_in_background(self, work):
        self.writers.append(work)

    async def keep_last(self, kind, owner, record, bounds):
        self.kept.append((kind, owner, record, bounds))

    async def write(self):
        """Do all that was begun. Returns how much of it there was."""
        writers, self.writers = self.writers, []
        for writer in writers:
            await writer
        return len(writers)


BOUNDS = StoreBounds(1, 1, 60.0)


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def log(store):
    return EventLog(store, BOUNDS, "ann", "s")


async def test_events_are_kept_one_behind_the_other_and_the_last_by_the_name_of_its_stream(store, log):
    log.write(3, 1, b"a")
    log.write(3, 2, b"b")

    assert await store.write() == 1
    assert store.kept == [
        ("event", "ann", StoreRecord("s 3-1", None, b"a", ("s 3",)), BOUNDS),
        ("event", "ann", StoreRecord("s 3-2", "s 3-1", b"b", ("s 3",)), BOUNDS),
    ]
    log.write(3, 3, b"c")
    assert await store.write() == 1
    assert store.kept[-1][2].value == b"c"


async def test_event_that_was_written_ahead_is_not_written_again_when_it_is_read(store, log):
    log.write(3, 1, b"a", ahead=True)
    log.write(3, 1, b"a", ahead=True)
    log.write(3, 1, b"a")
    await store.write()
    assert [record.value for _, _, record, _ in store.kept] == [b"a"]

    log.write(3, 1, b"anew")
    await store.write()
    assert [record.value for _, _, record, _ in store.kept] == [b"a", b"anew"]


@pytest.mark.parametrize(
    ("count", "size", "kept"), [(1024, 10, 1024), (1025, 10, 1024), (4, 1024 * 256, 4), (5, 1024 * 256, 4)]
)
async def test_events_that_wait_for_the_store_are_bounded_and_the_oldest_are_left_out(store, log, count, size, kept):
    for number in range(1, count + 1):
        log.write(3, number, b"x" * size)
    await store.write()
    log.write(4, 1, b"x" * 1024 * 1024)
    await store.write()

    written = [record.id for _, _, record, _ in store.kept]
    assert written == [*(f"s 3-{number}" for number in range(count - kept + 1, count + 1)), "s 4-1"]
