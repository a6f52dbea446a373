"""A conversation that comes back finds its slot; a new one does not take it away; a slot that works is not named."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.engine.interface import GenerationEnd, Timings, shared_prefix
from gateway.engine.slots.allocation import Place, SlotTable
from gateway.engine.slots.slot import Slot
from gateway.errors import EngineBusy, EngineUnavailable

pytestmark = pytest.mark.anyio


async def resting(number: int) -> bool:
    return True


def slot_table(count: int, *, isolate: bool = False) -> SlotTable:
    """Of an engine that is ours alone, and does nothing else."""
    return SlotTable(count, at_rest=resting, isolate=isolate)


@asynccontextmanager
async def generating(
    table: SlotTable, prompt: list[int], *, owner: str = "ada", leaves: list[int] | None = None
) -> AsyncGenerator[Place]:
    """One generation, which ends well and leaves its prompt behind, or more."""
    async with table.take(prompt, owner) as place:
        yield place
        place.slot.holds(prompt if leaves is None else leaves, at_rest=True, answered=True)


async def test_the_slot_with_the_longest_common_prefix_is_taken() -> None:
    table = slot_table(3)
    numbers: list[int | None] = []
    for prompt in ([1, 2, 3], [1, 9], [7]):
        async with generating(table, prompt) as place:
            numbers.append(place.pinned)
    async with generating(table, [1, 9, 9, 9]) as place:
        assert place.pinned == numbers[1]


async def test_a_new_conversation_takes_the_slot_that_has_rested_longest() -> None:
    table = slot_table(2)
    async with generating(table, [1, 2]) as first:
        pass
    async with generating(table, [5]):
        pass
    async with generating(table, [9]) as third:
        assert third.pinned == first.pinned


async def test_a_generation_waits_while_all_slots_are_taken() -> None:
    table = slot_table(1)
    order: list[str] = []

    async def second() -> None:
        async with generating(table, [2]):
            order.append("second")

    async with anyio.create_task_group() as tasks, generating(table, [1]):
        tasks.start_soon(second)
        await anyio.wait_all_tasks_blocked()
        order.append("first")
    assert order == ["first", "second"]


async def test_a_slot_comes_back_when_its_generation_fails() -> None:
    table = slot_table(1)
    with pytest.raises(RuntimeError):
        async with table.take([1], "ada"):
            raise RuntimeError
    with anyio.fail_after(20):
        async with table.take([1], "ada") as place:
            assert place.pinned == 0


async def test_a_reserved_slot_is_never_handed_out() -> None:
    table = slot_table(2)
    reserved = table.reserve()
    async with table.take([1], "ada") as place:
        assert place.pinned != reserved
        with pytest.raises(anyio.WouldBlock):
            table.reserve()


async def test_a_conversation_that_waits_for_a_tool_keeps_its_slot_although_all_begin_alike() -> None:
    table = slot_table(2)
    preamble = list(range(100))
    async with generating(table, [*preamble, 1], leaves=[*preamble, *[1] * 60]) as waiting:
        pass
    async with generating(table, [*preamble, 2]) as other:
        assert other.pinned != waiting.pinned
    async with generating(table, [*preamble, *[1] * 60, 3]) as place:
        assert place.pinned == waiting.pinned


@pytest.mark.parametrize(("lost", "same"), [(10, True), (11, False)])
async def test_an_answer_that_is_asked_for_again_finds_its_prompt_where_no_more_than_a_tenth_is_lost(
    lost: int, same: bool
) -> None:
    table = slot_table(2)
    prompt = list(range(100 - lost))
    async with generating(table, prompt, leaves=[*prompt, *[700] * lost]) as first:
        pass
    async with generating(table, prompt) as again:
        assert (again.pinned == first.pinned) is same


async def test_one_more_than_may_wait_is_refused_and_told_so() -> None:
    table = slot_table(1)

    async def wait() -> None:
        async with table.take([1], "ada"):
            pass

    async with table.take([0], "ada"), anyio.create_task_group() as tasks:
        for _ in range(64):
            tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(EngineUnavailable, match="64 requests are waiting"):
            async with table.take([2], "ada"):
                pass
        tasks.cancel_scope.cancel()


async def test_no_slot_is_named_where_the_engine_is_not_ours_alone() -> None:
    table = SlotTable(2)
    async with table.take([1], "ada") as one, table.take([1], "ada") as other:
        assert (one.pinned, other.pinned) == (None, None)


async def test_a_slot_is_named_only_once_the_engine_says_that_it_does_nothing() -> None:
    asked: list[int] = []

    async def busy_twice(number: int) -> bool:
        asked.append(number)
        return len(asked) > 2

    table = SlotTable(1, at_rest=busy_twice)
    # Of a server that was there before, nothing is known.
    async with generating(table, [1]) as place:
        assert (place.pinned, asked) == (0, [0, 0, 0])
    # Whoever was told the end knows it.
    async with table.take([1, 2], "ada") as place:
        assert len(asked) == 3
        place.slot.holds([1, 2], at_rest=False, answered=True)
    # Given up in the middle: it may work on.
    async with table.take([1, 2], "ada"):
        assert len(asked) == 4


async def test_a_slot_that_never_comes_to_rest_is_not_named() -> None:
    async def busy(number: int) -> bool:
        return False

    table = SlotTable(1, at_rest=busy, rest_time=0.05)
    for _ in range(2):
        with pytest.raises(EngineUnavailable, match="slot 0"):
            async with table.take([1], "ada"):
                pass


async def test_what_another_principal_left_decides_nothing() -> None:
    table = slot_table(2)
    async with generating(table, [8], owner="eve"):
        pass
    async with generating(table, [1, 2, 3], owner="ada") as hers:
        pass
    async with generating(table, [1, 2, 3, 4], owner="eve") as guess:
        # Any new conversation's: the one that has rested longest.
        assert guess.pinned != hers.pinned
    async with generating(table, [1, 2, 3, 4], owner="ada") as again:
        assert again.pinned == hers.pinned


def timings(cached: int, processed: int) -> Timings:
    return Timings(processed, cached, 1, 0.1, 0.1)


async def test_figures_tell_of_what_the_principal_left_behind_and_of_nothing_else() -> None:
    table = slot_table(2)
    secret = list(range(50))
    async with generating(table, secret, owner="ada", leaves=[*secret, 7, 7]):
        pass
    async with generating(table, secret, owner="eve") as guess:
        told = guess.shown(timings(cached=49, processed=1))
    async with generating(table, [*secret, 7, 8], owner="ada") as own:
        hers = own.shown(timings(cached=51, processed=1))
    async with generating(table, secret, owner="eve") as again:
        repeated = again.shown(timings(cached=49, processed=1))

    assert (told.cache_n, told.prompt_n) == (0, 50)
    assert (hers.cache_n, hers.prompt_n) == (51, 1)
    assert (repeated.cache_n, repeated.prompt_n) == (49, 1)


@dataclass(frozen=True)
class Asked:
    """A generation: whose, and of what. One that is not answered may have been processed all the same, or not."""

    owner: str
    prompt: list[int]
    answered: bool
    processed: bool


class Caches:
    """What a llama.cpp server reuses: the slot's ids, or with a host cache those of any prompt that it has seen."""

    def __init__(self, count: int, *, host: bool) -> None:
        self._slots: list[list[int]] = [[] for _ in range(count)]
        self._saved: list[list[int]] = []
        self._host = host

    def run(self, prompt: list[int], number: int | None) -> int:
        """Gives the ids that are reused."""
        if number is None:
            number = max(range(len(self._slots)), key=lambda n: shared_prefix(self._slots[n], prompt))
        held = [self._slots[number], *(self._saved if self._host else [])]
        self._slots[number] = prompt
        self._saved.append(prompt)
        return min(max(shared_prefix(ids, prompt) for ids in held), len(prompt) - 1)


async def told(asked: list[Asked], count: int, *, chosen: bool, host: bool) -> list[int]:
    """The cached ids that each answer of Eve's tells."""
    table = SlotTable(count, at_rest=resting if chosen else None)
    server = Caches(count, host=host)
    figures: list[int] = []
    for each in asked:
        async with table.take(each.prompt, each.owner) as place:
            if each.answered or each.processed:
                cached = server.run(each.prompt, place.pinned)
                shown = place.shown(timings(cached, len(each.prompt) - cached)).cache_n
                figures += [shown] * (each.answered and each.owner == "eve")
            # The id that a limit ended with was sampled, and not processed any more.
            left = [*each.prompt, each.prompt[0]]
            place.slot.holds(left, at_rest=each.answered, answered=each.answered)
    return figures


ASKED = st.builds(
    Asked,
    st.sampled_from(["eve", "eve", "ada", "bob"]),
    st.lists(st.integers(0, 1), min_size=1),
    st.booleans(),
    st.booleans(),
)


def all_answered(*asked: tuple[str, list[int]]) -> list[Asked]:
    return [Asked(owner, prompt, True, True) for owner, prompt in asked]


# A server that chooses gives her the slot that another's prompt has taken, since that agrees with hers.
@example(asked=all_answered(("eve", [1, 0]), ("ada", [1, 0, 0]), ("eve", [1, 0, 1])), count=2, chosen=False, host=False)
# Of the id that a limit ended with the host cache has only what another has asked.
@example(
    asked=all_answered(("eve", [1, 0]), ("ada", [1, 0, 1, 1]), ("eve", [1, 0, 1, 0])), count=2, chosen=True, host=True
)
@given(asked=st.lists(ASKED, max_size=12), count=st.integers(1, 3), chosen=st.booleans(), host=st.booleans())
async def test_figures_are_the_same_whatever_other_principals_ask(
    asked: list[Asked], count: int, *, chosen: bool, host: bool
) -> None:
    # Somebody else has been there from the beginning: that there are others is not a secret.
    asked = [Asked("ada", [0], True, True), *asked]
    others = [each if each.owner == "eve" else replace(each, prompt=[9 + n for n in each.prompt]) for each in asked]

    assert await told(asked, count, chosen=chosen, host=host) == await told(others, count, chosen=chosen, host=host)


async def test_figures_of_a_principal_that_is_alone_are_the_engines_wherever_the_slot_is_chosen() -> None:
    asked = [Asked("eve", prompt, True, True) for prompt in ([1, 2, 3], [1, 2, 4, 5], [7], [1, 2, 3, 4])]
    for chosen in (False, True):
        assert await told(asked, 1, chosen=chosen, host=True) == [0, 2, 0, 3]


async def test_isolated_principals_reuse_nothing_of_each_other() -> None:
    table = slot_table(1, isolate=True)
    reused: list[bool] = []
    for owner in ("ada", "ada", "eve", "eve", "ada"):
        async with generating(table, [1, 2], owner=owner) as place:
            reused.append(place.reuse)
    assert reused == [True, True, False, True, False]
    async with generating(slot_table(1), [1], owner="ada") as place:
        assert place.reuse


async def test_prompt_that_was_refused_or_given_up_tells_nothing_when_it_is_asked_again() -> None:
    table = slot_table(2)
    secret = list(range(50))
    async with generating(table, secret, owner="ada"):
        pass
    async with table.take(secret, "eve") as place:
        # The engine has not said a word of it: it may not even have begun.
        place.slot.holds(secret, at_rest=False, answered=False)
    async with generating(table, secret, owner="eve") as guess:
        told = guess.shown(timings(cached=49, processed=1))

    assert (told.cache_n, told.prompt_n) == (0, 50)


async def test_isolated_principal_does_not_reuse_what_a_request_without_an_answer_left_in_the_slot() -> None:
    table = slot_table(1, isolate=True)
    async with generating(table, [1, 2], owner="ada"):
        pass
    for _ in range(2):
        async with table.take([1, 2], "eve") as place:
            assert not place.reuse
            place.slot.holds([1, 2], at_rest=False, answered=False)
    async with generating(table, [1, 2], owner="eve") as place:
        assert not place.reuse
    async with generating(table, [1, 2], owner="eve") as place:
        assert place.reuse


async def test_principal_that_fills_its_share_of_the_queue_leaves_room_for_the_others() -> None:
    table = SlotTable(1, share=0.25)

    async def wait(owner: str) -> None:
        async with table.take([1], owner):
            pass

    async with table.take([0], "eve"), anyio.create_task_group() as tasks:
        for _ in range(16):
            tasks.start_soon(wait, "eve")
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(
            EngineUnavailable, match=r"'eve' has 16 of the 64 .* share is 16 \(limits.principal_share\)"
        ):
            async with table.take([2], "eve"):
                pass
        for _ in range(4):
            tasks.start_soon(wait, "ada")
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0):
            async with table.take([2], "eve", alone=True):
                pass
        tasks.cancel_scope.cancel()
    async with anyio.create_task_group() as tasks, table.take([0], "ada"):
        # Who has waited has its share again.
        for _ in range(16):
            tasks.start_soon(wait, "eve")
        await anyio.wait_all_tasks_blocked()


async def test_slot_that_was_left_at_work_is_looked_at_though_nobody_asks_for_it() -> None:
    busy, asked = {0, 1}, list[int]()

    async def at_rest(number: int) -> bool:
        asked.append(number)
        return number not in busy

    table = SlotTable(2, at_rest=at_rest, rest_time=0.0)
    assert not await table.look()
    assert asked == []
    busy.clear()
    for prompt in ([1], [2]):
        # Given up: nobody reports that its slot has come to rest.
        async with table.take(prompt, "ada"):
            pass
    asked.clear()
    busy.add(1)
    assert await table.look()
    assert (table.jammed, sorted(asked)) == (1, [0, 1])
    # The other has come to rest, so that it need not be asked about again.
    asked.clear()
    await table.look()
    assert asked == [1]


async def test_slot_that_is_taken_while_it_is_looked_at_does_not_count_as_rested() -> None:
    looked, answered = anyio.Event(), anyio.Event()
    taken = False

    async def at_rest(number: int) -> bool:
        if not taken:
            looked.set()
            await answered.wait()
        return True

    table = SlotTable(1, at_rest=at_rest)
    taken = True
    async with table.take([1], "ada"):
        pass
    taken = False
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(table.look)
        await looked.wait()
        taken = True
        async with table.take([1], "ada") as place:
            answered.set()
            await anyio.wait_all_tasks_blocked()
            assert not place.slot.at_rest


async def test_slot_that_does_not_come_to_rest_in_time_is_told_of() -> None:
    async def working(_number: int) -> bool:
        return False

    table = SlotTable(1, at_rest=working, rest_time=0.05)
    assert table.jammed is None
    with pytest.raises(EngineUnavailable, match="still busy with a generation that was cancelled"):
        async with table.take([1], "ada"):
            pass
    assert table.jammed == 0


async def test_slot_that_works_is_looked_at_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def rests(_number: int) -> bool:
        return len(pauses) == 7

    monkeypatch.setattr("gateway.engine.slots.allocation.anyio.sleep", sleep)
    async with SlotTable(1, at_rest=rests).take([1], "ada") as place:
        assert place.pinned == 0
    assert pauses == [0.01, 0.02, 0.04, 0.08, 0.16, 0.2, 0.2]


async def test_slots_of_other_gateways_are_not_counted() -> None:
    asked: list[int] = []

    async def at_rest(number: int) -> bool:
        asked.append(number)
        return True

    table = SlotTable(2, first=3, at_rest=at_rest)
    async with table.take([1], "ada") as one, table.take([2], "ada") as two:
        assert (one.pinned, two.pinned) == (3, 4)
    assert asked == [3, 4]


async def test_salt_is_each_principal_s_own_and_all_that_it_finds_is_told() -> None:
    table = SlotTable(1, salt=lambda owner: f"salt of {owner}")
    for owner in ("ada", "eve"):
        async with generating(table, [1, 2, 3], owner=owner) as place:
            assert (place.salt, place.own, place.reuse, place.pinned) == (f"salt of {owner}", 3, True, None)
            assert place.shown(timings(3, 0)).cache_n == 3
    async with generating(SlotTable(1), [1, 2, 3]) as place:
        assert place.salt is None


def ending(cached: int, *, reported: bool = True, tells_cache: bool = True) -> GenerationEnd:
    return GenerationEnd("stop", 9, timings(cached, 1), reported=reported, tells_cache=tells_cache)


@pytest.mark.parametrize(
    ("end", "answered", "at_rest", "known", "checkpoints"),
    [
        (ending(40), True, True, True, (40, 46)),
        (ending(40), False, True, True, (40, 46)),
        # It sent the whole answer, but not how it ended.
        (ending(40, reported=False), False, False, True, (46,)),
        (ending(0, tells_cache=False), True, True, True, (46,)),
        (None, True, False, True, (46,)),
        (None, False, False, False, ()),
    ],
)
def test_generation_notes_what_it_has_left(
    end: GenerationEnd | None, checkpoints: tuple[int, ...], *, answered: bool, at_rest: bool, known: bool
) -> None:
    slot = Slot(0, checkpoints=())
    ids = list(range(60))
    Place(slot, 0, reuse=True, own=0).leaves(ids, 50, end, answered=answered)

    assert (slot.ids, slot.at_rest, slot.answered, slot.checkpoints) == (ids, at_rest, known, checkpoints)


async def test_place_tells_what_the_slot_held_for_its_principal() -> None:
    table = slot_table(1)
    async with generating(table, [1, 2, 3, 4]) as place:
        assert (place.in_slot, place.own) == (0, 0)
    async with generating(table, [1, 2, 3, 4, 5]) as place:
        # The last id may have been sampled and not processed.
        assert (place.in_slot, place.own) == (3, 4)
    async with generating(table, [1, 2, 3, 4, 5], owner="eve") as place:
        assert (place.in_slot, place.own) == (0, 0)
    async with generating(SlotTable(1), [1, 2]) as place:
        assert place.in_slot == 0


async def test_table_is_idle_once_every_slot_is_back() -> None:
    table = slot_table(2)
    assert table.is_idle
    await table.idle()
    waited: list[bool] = []

    async def wait() -> None:
        await table.idle()
        waited.append(table.is_idle)

    async with anyio.create_task_group() as tasks:
        async with table.take([1], "ada"):
            async with table.take([2], "ada"):
                tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                assert not table.is_idle
            await anyio.wait_all_tasks_blocked()
            assert waited == []
        await anyio.wait_all_tasks_blocked()
        assert waited == [True]
        # It can be waited for again.
        async with table.take([1], "ada"):
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert waited == [True]
    assert waited == [True, True]


async def test_slot_that_is_reserved_counts_no_more() -> None:
    table = slot_table(2)
    assert table.reserve() in (0, 1)
    assert table.is_idle
    async with table.take([1], "ada") as place:
        assert place.pinned in (0, 1)
        assert not table.is_idle
        with anyio.move_on_after(0):
            async with table.take([2], "ada"):
                pytest.fail("it is not to be handed out")


async def test_slot_is_lent_only_with_exactly_what_its_principal_has_left_and_while_nobody_else_runs() -> None:
    table = slot_table(2)
    async with generating(table, [1, 2]) as place:
        number = place.slot.number

    async def lent(held: list[int], owner: str = "ada") -> int | None:
        async with table.lent(held, owner) as slot:
            if slot is not None:
                slot.holds(held, at_rest=True, answered=True)
            return None if slot is None else slot.number

    assert [await lent([1, 2]), await lent([1]), await lent([1, 2], "eve")] == [number, None, None]
    async with table.take([5], "eve"):
        assert await lent([1, 2]) is None
    async with table.lent([1, 2], "ada") as slot:
        # Until the borrower says what it holds, that counts as unknown.
        assert slot is not None
        assert (slot.at_rest, slot.answered, table.is_idle) == (False, False, False)
    assert table.is_idle
    assert await lent([1, 2]) is None
    unchosen = SlotTable(1)
    async with generating(unchosen, [1, 2]):
        pass
    async with unchosen.lent([1, 2], "ada") as slot:
        assert slot is None


async def test_lent_slot_that_does_not_come_to_rest_is_not_lent() -> None:
    busy = False

    async def at_rest(_number: int) -> bool:
        return not busy

    table = SlotTable(1, at_rest=at_rest, rest_time=0.01)
    async with table.take([1, 2], "ada") as place:
        place.slot.holds([1, 2], at_rest=False, answered=True)
    busy = True
    with pytest.raises(EngineUnavailable, match="still busy"):
        async with table.lent([1, 2], "ada"):
            pass
    assert table.is_idle


async def test_busy_slot_is_jammed_once_it_has_been_left_for_longer_than_it_may_work(monkeypatch) -> None:
    now, rests, answers = 1000.0, True, True

    async def at_rest(_number: int) -> bool:
        if not answers:
            raise EngineUnavailable("gone")
        return rests

    monkeypatch.setattr("gateway.engine.slots.allocation.monotonic", lambda: now)
    table = SlotTable(1, at_rest=at_rest, rest_time=60.0)
    async with table.take([1], "ada"):
        pass
    now, rests = 1060.0, False
    assert not await table.look()
    now, answers = 1060.1, False
    # One that does not answer has not said that it rests.
    assert await table.look()


async def test_slot_is_left_only_by_a_generation_that_may_still_run() -> None:
    table = slot_table(1)
    async with generating(table, [1]) as place:
        pass
    assert place.slot.left is None
    async with table.take([1], "ada"):
        pass
    assert place.slot.left is not None
    unchosen = SlotTable(1)
    async with unchosen.take([1], "ada") as place:
        pass
    assert place.slot.left is None
    assert not await unchosen.look()


async def test_waiting_generations_count_for_their_principal_only_while_they_wait() -> None:
    table = SlotTable(1, share=1 / 64)

    async def wait(owner: str) -> None:
        async with table.take([1], owner):
            pass

    async with table.take([0], "ada"), anyio.create_task_group() as tasks:
        for owner in ("ada", "eve"):
            tasks.start_soon(wait, owner)
        await anyio.wait_all_tasks_blocked()
        for owner in ("ada", "eve"):
            with pytest.raises(EngineBusy, match=f"'{owner}' has 1 of the 64"):
                await wait(owner)
        tasks.cancel_scope.cancel()
    async with table.take([0], "ada"), anyio.create_task_group() as tasks:
        tasks.start_soon(wait, "ada")
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(EngineBusy):
            await wait("ada")
        tasks.cancel_scope.cancel()


async def test_free_slot_is_taken_at_once() -> None:
    taking = slot_table(1).take([1], "ada").__aenter__()
    with pytest.raises(StopIteration):
        taking.send(None)


async def test_slot_that_was_seen_at_rest_is_not_asked_about_again() -> None:
    asked: list[int] = []

    async def at_rest(number: int) -> bool:
        asked.append(number)
        return True

    table = SlotTable(1, at_rest=at_rest)
    async with table.take([1], "ada"):
        pass
    assert not await table.look()
    asked.clear()
    async with table.take([1], "ada"):
        assert asked == []
    assert not await table.look()


@pytest.mark.parametrize("fails", [False, True])
async def test_slots_are_saved_at_the_end_even_of_who_is_cancelled_and_in_ten_seconds(
    monkeypatch, *, fails: bool
) -> None:
    kept: list[list[int]] = []

    class Keeping:
        adopted = anyio.Event()

        async def keep(self, slots: list[Slot]) -> None:
            await anyio.lowlevel.checkpoint()
            kept.append([slot.number for slot in slots])
            if fails:
                raise EngineUnavailable("gone")

    limits: list[tuple[float, bool]] = []
    move_on_after = anyio.move_on_after

    def noted(seconds: float, *, shield: bool = False) -> anyio.CancelScope:
        limits.append((seconds, shield))
        return move_on_after(seconds, shield=shield)

    table = SlotTable(2, at_rest=resting, swapper=Keeping())  # type: ignore[arg-type]
    monkeypatch.setattr("gateway.engine.slots.allocation.anyio.move_on_after", noted)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await table.keep()
    assert (kept, limits) == ([[0, 1]], [(10.0, True)])
    await slot_table(1).keep()
