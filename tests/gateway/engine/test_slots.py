"""A conversation that comes back finds its slot; a new one does not take it away."""

import anyio
import pytest

from gateway.engine.slots import SlotTable, shared_prefix
from gateway.errors import EngineUnavailable

pytestmark = pytest.mark.anyio


async def test_the_slot_with_the_longest_common_prefix_is_taken() -> None:
    table = SlotTable(3)
    for prompt in ([1, 2, 3], [1, 9], [7]):
        async with table.take(prompt) as slot:
            slot.ids = prompt
            number = slot.number
    async with table.take([1, 9, 9, 9]) as slot:
        assert slot.ids == [1, 9]
        assert slot.number != number


async def test_a_new_conversation_takes_the_slot_that_has_rested_longest() -> None:
    table = SlotTable(2)
    async with table.take([1, 2]) as first:
        first.ids = [1, 2]
    async with table.take([5]) as second:
        second.ids = [5]
    async with table.take([9]) as third:
        assert third.number == first.number


async def test_a_generation_waits_while_all_slots_are_taken() -> None:
    table = SlotTable(1)
    order: list[str] = []

    async def second() -> None:
        async with table.take([2]):
            order.append("second")

    async with anyio.create_task_group() as tasks, table.take([1]):
        tasks.start_soon(second)
        await anyio.wait_all_tasks_blocked()
        order.append("first")
    assert order == ["first", "second"]


async def test_a_slot_comes_back_when_its_generation_fails() -> None:
    table = SlotTable(1)
    with pytest.raises(RuntimeError):
        async with table.take([1]):
            raise RuntimeError
    with anyio.fail_after(20):
        async with table.take([1]) as slot:
            assert slot.number == 0


async def test_a_reserved_slot_is_never_handed_out() -> None:
    table = SlotTable(2)
    reserved = table.reserve()
    async with table.take([1]) as slot:
        assert slot.number != reserved
        with pytest.raises(anyio.WouldBlock):
            table.reserve()


@pytest.mark.parametrize(
    ("held", "prompt", "shared"),
    [([], [1], 0), ([1], [], 0), ([1, 2, 3], [1, 2, 3, 4], 3), ([1, 2, 9], [1, 2, 3], 2), ([4], [5], 0)],
)
def test_the_common_prefix_is_counted_in_ids(held: list[int], prompt: list[int], shared: int) -> None:
    assert shared_prefix(held, prompt) == shared


async def test_a_conversation_that_waits_for_a_tool_keeps_its_slot_although_all_begin_alike() -> None:
    table = SlotTable(2)
    preamble = list(range(100))
    async with table.take([*preamble, 1]) as slot:
        waiting = slot.number
        slot.ids = [*preamble, *[1] * 60]
    async with table.take([*preamble, 2]) as other:
        assert other.number != waiting
        other.ids = [*preamble, 2]
    async with table.take([*preamble, *[1] * 60, 3]) as slot:
        assert slot.number == waiting


async def test_an_answer_that_is_asked_for_again_finds_its_prompt() -> None:
    table = SlotTable(2)
    prompt = list(range(100))
    async with table.take(prompt) as slot:
        number = slot.number
        slot.ids = [*prompt, 7, 7, 7]
    async with table.take(prompt) as again:
        assert again.number == number


async def test_one_more_than_may_wait_is_refused_and_told_so() -> None:
    table = SlotTable(1)

    async def wait() -> None:
        async with table.take([1]):
            pass

    async with table.take([0]), anyio.create_task_group() as tasks:
        for _ in range(64):
            tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(EngineUnavailable, match="64 requests wait"):
            async with table.take([2]):
                pass
        tasks.cancel_scope.cancel()
