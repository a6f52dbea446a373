"""The flush policy: nothing is lost or put in another order, nothing waits too long, and the first ids never wait."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaf_sdk.wire import AT_ONCE, BATCH, INTERACTIVE, Extras, FlushGate, FlushPolicy, Frame, ToolCall, Usage

from .conftest import frames, last_frames

policies = st.builds(FlushPolicy, st.sampled_from([0.0, 0.01, 0.04, math.inf]), st.sampled_from([1, 2, 5, 1024]))
arrivals = st.lists(st.tuples(frames, st.integers(0, 30)), max_size=12)


def ids_of(sent):
    return [token for frame in sent for token in frame.context_ids]


@given(policy=policies, arriving=arrivals, last=last_frames)
def test_every_id_leaves_once_and_in_order_with_everything_that_frames_say(policy, arriving, last):
    gate, now, sent = FlushGate(policy), 0.0, []
    for frame, pause in arriving:
        now += pause / 1000
        sent += gate.tick(now) + gate.feed(frame, now)
    sent += gate.feed(last, now) + gate.close()
    given_frames = [*(frame for frame, _ in arriving), last]
    assert ids_of(sent) == ids_of(given_frames)
    assert [(f.tool_calls, f.extras) for f in sent if not f.is_plain] == [
        (f.tool_calls, f.extras) for f in given_frames if not f.is_plain
    ]
    assert (sent[-1].done, sent[-1].finish_reason) == (True, last.finish_reason)
    assert not any(frame.done for frame in sent[:-1])


@given(policy=policies, arriving=arrivals)
def test_no_id_waits_longer_than_the_policy_says_where_deadlines_are_kept(policy, arriving):
    gate, now, waiting = FlushGate(policy), 0.0, []
    for frame, pause in arriving:
        later = now + pause / 1000
        deadline = gate.deadline
        if deadline is not None and deadline <= later:
            assert gate.tick(deadline) != []
            waiting = []
        now = later
        waiting = [] if gate.feed(frame, now) else [*waiting, *([now] if frame.ids else [])]
        assert all(now - came <= policy.max_delay for came in waiting)
        assert len(waiting) == 0 or gate.deadline == (
            None if policy.max_delay == math.inf else waiting[0] + policy.max_delay
        )


@pytest.mark.parametrize("policy", [INTERACTIVE, BATCH, AT_ONCE])
def test_the_first_ids_leave_at_once_under_every_policy(policy):
    assert FlushGate(policy).feed(Frame((7, 8)), 0.0) == [Frame((7, 8))]


@pytest.mark.parametrize("policy", [INTERACTIVE, BATCH])
def test_a_frame_before_the_first_ids_does_not_make_them_wait(policy):
    gate = FlushGate(policy)
    assert gate.feed(Frame(extras=Extras(prompt_ids=(1,))), 0.0) != []
    assert gate.feed(Frame((2,)), 0.0) == [Frame((2,))]
    assert gate.feed(Frame((3,)), 0.0) == []


def test_ids_that_wait_leave_as_one_frame_when_the_oldest_is_due():
    gate = FlushGate(FlushPolicy(max_delay=0.04))
    gate.feed(Frame((1,)), 0.0)
    assert [gate.feed(Frame((number,)), number / 100) for number in (2, 3, 4)] == [[], [], []]
    assert gate.deadline == pytest.approx(0.06)
    assert gate.tick(0.0599) == []
    assert gate.tick(gate.deadline) == [Frame((2, 3, 4))]
    assert gate.deadline is None
    assert gate.tick(9.0) == []


def test_a_frame_that_comes_late_takes_those_that_waited_along():
    gate = FlushGate(FlushPolicy(max_delay=0.04))
    gate.feed(Frame((1,)), 0.0)
    gate.feed(Frame((2,)), 0.01)
    assert gate.feed(Frame((3,)), 0.2) == [Frame((2, 3))]


def test_ids_behind_a_pause_as_long_as_they_could_wait_leave_at_once():
    gate = FlushGate(FlushPolicy(max_delay=0.04))
    gate.feed(Frame((1,)), 1.0)
    assert [gate.feed(Frame((number,)), 1 + number * 0.05) for number in (2, 3)] == [[Frame((2,))], [Frame((3,))]]
    # The engine is fast again: ids wait for each other as before.
    assert gate.feed(Frame((4,)), 1.16) == []
    assert gate.feed(Frame((5,)), 1.17) == []
    assert gate.tick(1.2) == [Frame((4, 5))]


def test_no_pause_is_long_where_only_the_number_decides():
    gate = FlushGate(BATCH)
    gate.feed(Frame((1,)), 0.0)
    assert gate.feed(Frame((2,)), 1000.0) == []


def test_ids_leave_when_enough_have_gathered():
    gate = FlushGate(FlushPolicy(max_delay=math.inf, max_ids=3))
    gate.feed(Frame((1,)), 0.0)
    assert gate.feed(Frame((2, 3)), 0.0) == []
    assert gate.feed(Frame((4,)), 0.0) == [Frame((2, 3, 4))]


@pytest.mark.parametrize(
    "frame",
    [
        Frame((5,), True, "length"),
        Frame((), False, None, (ToolCall("{}"),)),
        Frame((5,), extras=Extras(region_ids=(6,))),
        Frame((), True, "error", extras=Extras(error="gone", usage=Usage(1, 2))),
    ],
)
def test_a_frame_that_says_more_than_ids_leaves_at_once_with_those_that_waited(frame):
    gate = FlushGate(BATCH)
    gate.feed(Frame((1,)), 0.0)
    gate.feed(Frame((2,)), 0.0)
    (sent,) = gate.feed(frame, 0.0)
    assert sent.ids == (2, *frame.ids)
    assert (sent.done, sent.tool_calls, sent.extras) == (frame.done, frame.tool_calls, frame.extras)


def test_a_keep_alive_leaves_at_once_and_takes_those_that_waited_along():
    gate = FlushGate(BATCH)
    gate.feed(Frame((1,)), 0.0)
    gate.feed(Frame((2,)), 0.0)
    assert gate.feed(Frame(), 0.0) == [Frame((2,))]
    assert gate.feed(Frame(), 0.0) == [Frame()]


def test_at_once_never_lets_ids_wait():
    gate = FlushGate(AT_ONCE)
    assert [gate.feed(Frame((number,)), 0.0) for number in range(4)] == [[Frame((number,))] for number in range(4)]


def test_batch_keeps_what_waits_in_bounds():
    gate = FlushGate(BATCH)
    sent = [frame for number in range(70_000) for frame in gate.feed(Frame((number,)), 0.0)]
    assert [len(frame.ids) for frame in sent] == [1, BATCH.max_ids]
