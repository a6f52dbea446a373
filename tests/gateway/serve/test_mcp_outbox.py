"""What waits for a client, when it reads and when it does not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.serve.mcp.outbox import COUNT, SIZE, HeldStream, Outbox

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
    before = reader.outbox.take()
    held.let_go()
    after = reader.outbox.take()
    held.let_go()
    held.put(b"[]")

    assert (before, len(after), reader.outbox.take()) == ([], 2, [b"[]"])
