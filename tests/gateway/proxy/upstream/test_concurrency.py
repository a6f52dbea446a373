"""How many calls run at a time, whatever becomes of those that wait."""

import asyncio

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.upstream.dispatcher import Full, Gate

pytestmark = pytest.mark.anyio


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


async def test_calls_beyond_the_limit_wait_and_enter_in_the_order_in_which_they_came():
    gate, entered = Gate(1, 10), []

    async def call(number: int) -> None:
        await gate.enter()
        entered.append(number)

    await gate.enter()
    waiting = [asyncio.create_task(call(number)) for number in range(3)]
    await turns()
    assert (gate.inside, gate.waiting, entered) == (1, 3, [])
    for _ in range(3):
        gate.leave()
        await turns()

    assert (gate.inside, gate.waiting, entered) == (1, 0, [0, 1, 2])
    await asyncio.gather(*waiting)


async def test_call_behind_a_full_queue_is_refused_at_once():
    gate = Gate(1, 1)
    await gate.enter()
    waiting = asyncio.create_task(gate.enter())
    await turns()

    with pytest.raises(Full):
        await gate.enter()
    assert (gate.inside, gate.waiting) == (1, 1)
    gate.leave()
    await waiting


async def test_call_that_goes_away_while_it_waits_leaves_the_queue():
    gate = Gate(1, 1)
    await gate.enter()
    waiting = asyncio.create_task(gate.enter())
    await turns()
    waiting.cancel()
    await asyncio.wait([waiting])

    assert (gate.inside, gate.waiting, waiting.cancelled()) == (1, 0, True)
    gate.leave()
    assert gate.inside == 0


async def test_call_that_goes_away_in_the_moment_in_which_it_gets_a_place_gives_it_back():
    gate = Gate(1, 1)
    await gate.enter()
    waiting = asyncio.create_task(gate.enter())
    await turns()
    gate.leave()
    waiting.cancel()
    await asyncio.wait([waiting])

    assert (gate.inside, waiting.cancelled()) == (0, True)


async def test_place_that_comes_free_in_the_moment_in_which_its_waiter_goes_away_is_lost_to_nobody():
    gate = Gate(1, 2)
    await gate.enter()
    gone, next_one = asyncio.create_task(gate.enter()), asyncio.create_task(gate.enter())
    await turns()
    gone.cancel()
    gate.leave()
    await asyncio.wait([gone, next_one])

    assert gone.cancelled()
    assert (gate.inside, gate.waiting) == (1, 0)


@given(
    limit=st.integers(1, 3),
    queue=st.integers(0, 3),
    steps=st.lists(st.tuples(st.sampled_from(["enter", "leave", "cancel", "turn"]), st.integers(0, 9)), max_size=40),
)
def test_count_is_right_after_any_order_of_entering_leaving_and_going_away(limit, queue, steps):
    async def play() -> None:
        gate, tasks, inside = Gate(limit, queue), [], []

        async def call() -> None:
            await gate.enter()
            inside.append(asyncio.current_task())

        for step, number in steps:
            if step == "enter":
                tasks.append(asyncio.create_task(call()))
            elif step == "leave" and inside:
                inside.pop(number % len(inside))
                gate.leave()
            elif step == "cancel" and tasks:
                tasks[number % len(tasks)].cancel()
            elif step == "turn":
                await turns(2)
            assert 0 <= gate.inside <= limit
            assert gate.waiting <= queue
        await turns()
        assert gate.inside == len(inside)
        assert gate.waiting == 0 or gate.inside == limit
        while inside:
            inside.pop()
            gate.leave()
            await turns()
        assert (gate.inside, gate.waiting) == (0, 0)
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, Full | asyncio.CancelledError)

    asyncio.run(play())
