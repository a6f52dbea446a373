"""What waits for a client, when it reads and when it does not."""

import asyncio
import json

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RpcError
from gateway.protocol.messages import Response
from gateway.serve.mcp.methods import check_greeting
from gateway.serve.mcp.outbox import COUNT, EVERY, SIZE, HeldStream, Losses, Outbox
from gateway.serve.mcp.sessions import Asks

PROGRESS = "notifications/progress"
UPDATED = "notifications/resources/updated"
CHANGED = "notifications/tools/list_changed"


class Reader:
    def __init__(self):
        self.woken = 0
        self.lost = 0
        self.outbox = Outbox(self._wake, self._lose)

    def _wake(self):
        self.woken += 1

    def _lose(self):
        self.lost += 1

    def methods(self):
        return [json.loads(frame).get("method") for frame in self.outbox.take()]


@pytest.fixture
def reader():
    return Reader()


def test_frames_come_out_as_they_went_in(reader):
    reader.outbox.tell(PROGRESS, {"progress": 1})
    reader.outbox.put(b'{"id":1}')

    assert reader.outbox.take() == [
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}',
        b'{"id":1}',
    ]
    assert (reader.woken, reader.outbox.take(), reader.outbox.size) == (2, [], 0)


def test_list_that_changed_twice_has_changed_once_until_it_is_read(reader):
    reader.outbox.tell(CHANGED, {})
    reader.outbox.tell("notifications/prompts/list_changed", {})
    reader.outbox.tell(CHANGED, {})
    first = reader.methods()
    reader.outbox.tell(CHANGED, {})

    assert first == [CHANGED, "notifications/prompts/list_changed"]
    assert (reader.methods(), reader.lost) == ([CHANGED], 0)


def test_keys_tell_apart_what_would_look_alike(reader):
    for key in ("a", "b", "a"):
        reader.outbox.tell(CHANGED, {"for": key}, key)

    assert len(reader.methods()) == 2


def test_full_outbox_drops_progress_first_and_counts_it(reader):
    reader.outbox.tell(UPDATED, {"uri": "first"})
    for step in range(COUNT):
        reader.outbox.tell(PROGRESS, {"progress": step})
    reader.outbox.tell(UPDATED, {"uri": "last"})
    reader.outbox.put(b'{"id":1}')
    methods = reader.methods()

    assert (methods[0], methods[-2:]) == (UPDATED, [UPDATED, None])
    assert (methods.count(PROGRESS), reader.lost) == (COUNT - 2, 2)


def test_flood_of_progress_leaves_its_newest_in_number_and_bytes(reader):
    for step in range(COUNT + 5):
        reader.outbox.tell(PROGRESS, {"progress": step})
    steps = [json.loads(frame)["params"]["progress"] for frame in reader.outbox.take()]
    for step in range(20):
        reader.outbox.tell("notifications/message", {"data": "x" * (SIZE // 8), "step": step})
        assert reader.outbox.size <= SIZE
    newest = [json.loads(frame)["params"]["step"] for frame in reader.outbox.take()]

    assert steps == list(range(5, COUNT + 5))
    assert newest == list(range(13, 20))
    assert reader.lost == 5 + 13


def test_notification_over_the_size_goes_only_where_nothing_waits(reader):
    large = {"data": "x" * SIZE}
    reader.outbox.tell("notifications/message", large)
    alone = len(reader.outbox)
    reader.outbox.tell(UPDATED, {"uri": "a"})
    reader.outbox.tell(UPDATED, large)

    assert alone == 1
    assert (reader.methods(), reader.lost) == ([UPDATED], 2)


def test_request_of_ours_is_added_only_where_there_is_room(reader):
    reader.outbox.tell(PROGRESS, {"progress": 1})
    first = reader.outbox.offer(b" " * SIZE)
    second = reader.outbox.offer(b"{}")
    waiting = reader.outbox.take()

    assert (first, second, len(waiting), reader.lost) == (True, False, 1, 1)
    assert reader.outbox.offer(b"{}")


def test_client_that_does_not_read_is_not_asked_and_the_server_is_told():
    reader = Reader()
    asks = Asks({"sampling": {}})
    reader.outbox.put(b" " * SIZE)
    coroutine = asks.ask(reader.outbox, "sampling/createMessage", {})
    with pytest.raises(RpcError, match="does not read what it is sent: 'sampling/createMessage' was not asked"):
        coroutine.send(None)

    assert len(reader.outbox) == 1


@pytest.mark.anyio
async def test_answer_with_too_many_roots_is_an_error_for_the_server_that_asked():
    asks = Asks({"roots": {}})
    asking = asyncio.create_task(asks.ask(Reader().outbox, "roots/list", {}))
    await anyio.wait_all_tasks_blocked()
    asks.settle(Response("g1", {"roots": [{}] * 1001}))
    with pytest.raises(RpcError, match="the client has 1001 roots: at most 1000 are passed on"):
        await asking


def test_greeting_of_a_client_that_announces_too_much_is_refused():
    many = {"experimental": {"a": "x" * 20_000}}
    with pytest.raises(RpcError, match="capabilities: their text has more than 16384 characters: announce less"):
        check_greeting({"protocolVersion": "2025-11-25", "capabilities": many})


def test_losses_are_all_counted_and_said_once_a_minute(caplog):
    seconds, counted = [0.0], []
    losses = Losses(lambda: counted.append(1), lambda: seconds[0])
    for now in (0.0, 1.0, EVERY - 0.1, EVERY, EVERY + 1):
        seconds[0] = now
        losses()

    assert len(counted) == 5
    assert [record.msg["dropped"] for record in caplog.records] == [1, 3]


def test_full_outbox_without_progress_drops_what_comes_last_but_never_an_answer(reader):
    reader.outbox.put(b" " * SIZE)
    reader.outbox.tell(CHANGED, {})
    reader.outbox.put(b"{}")
    reader.outbox.take()
    reader.outbox.tell(CHANGED, {})

    assert (reader.lost, reader.methods()) == (1, [CHANGED])


@given(st.lists(st.sampled_from([PROGRESS, UPDATED, CHANGED, "put", "take"])))
def test_outbox_is_as_large_as_what_waits_in_it(steps):
    reader = Reader()
    for number, step in enumerate(steps):
        if step == "put":
            reader.outbox.put(b"x" * number)
        elif step == "take":
            reader.outbox.take()
        else:
            reader.outbox.tell(step, {"n": number, "pad": "x" * (SIZE // 8)})
        assert reader.outbox.size <= SIZE + SIZE // 7
    count, size = len(reader.outbox), reader.outbox.size
    frames = reader.outbox.take()

    assert (len(frames), sum(map(len, frames))) == (count, size)


def test_held_stream_gives_all_at_once_and_then_as_it_comes(reader):
    held = HeldStream(reader.outbox, reader._lose)
    held.tell(CHANGED, {})
    held.put(b"{}")
    assert held.offer(b"1")
    before = reader.outbox.take()
    held.release()
    after = reader.outbox.take()
    held.release()
    held.put(b"[]")
    assert held.offer(b"2")

    assert (before, after[1:], reader.outbox.take()) == ([], [b"{}", b"1"], [b"[]", b"2"])
