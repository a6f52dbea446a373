"""What replicas ask of the shared store, and what they believe of its answers, over a store in this process."""

import asyncio
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from gateway.observe.metrics import Metrics
from gateway.shared import StoreBounds, StoreRecord
from gateway.shared.redis_store import RedisStore
from gateway.shared.scripts import ACQUIRE, BUCKET, FIND, KEEP, PRESENT, Script
from gateway.shared.shared_store import SharedStore
from gateway.shared.store_interface import packed, unpacked
from gateway.shared.store_records import StoreKeys
from tests.gateway.shared.conftest import asked
from tests.gateway.shared.test_scripts import Clock
from tests.standins.redis_in_memory import Memory
from tests.standins.shared import SECRET, Direct, shared_in_memory

pytestmark = pytest.mark.anyio

MEBIBYTE = 2**20
BOUNDS = StoreBounds(10**9, 10**9, 60.0)
FIRST, SECOND = StoreRecord("1", None, b"one"), StoreRecord("2", "1", b"two", ("x",))


class Says(Direct):
    """A store that answers one script with what a test says."""

    def __init__(self, script: Script | None = None, answer: Any = None) -> None:
        super().__init__(Memory())
        self.answers = {script.digest: answer} if script is not None else {}
        self.ran: list[bytes | str | float] = []

    async def execute_command(self, *args: bytes | str | float) -> Any:
        await checkpoint()
        self.ran.append(args[1] if len(args) > 1 else args[0])
        if len(args) > 1 and args[1] in self.answers:
            answer = self.answers[str(args[1])]
            if isinstance(answer, Exception):
                raise answer
            return answer
        return await super().execute_command(*args)


async def test_replicas_take_from_one_bucket_and_a_look_takes_nothing() -> None:
    memory = Memory(Clock())
    async with shared_in_memory(Direct(memory)) as here, shared_in_memory(Direct(memory)) as there:
        looks = [await here.wait("rate", "ann", 1, 0.01) for _ in range(2)]
        takes = [await each.take("rate", "ann", 1, 0.01) for each in (here, there)]
        look = await there.wait("rate", "ann", 1, 0.01)
        other = await here.take("tries", "ann", 1, 0.01)

    assert (looks, takes, look, other) == ([0, 0], [0, pytest.approx(100)], pytest.approx(100), 0)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [(b"2.5", 2.5), (b"10", 10.0), (b"-0.5", 0.0), (b"10.1", None), (b"-11", None), (b"nan", None), (b"x", None)],
)
async def test_wait_is_believed_if_the_bucket_can_need_so_long(said: bytes, seconds: float | None) -> None:
    async with shared_in_memory(Says(BUCKET, said)) as shared:
        assert await shared.take("rate", "ann", 5, 0.1) == seconds


@pytest.mark.parametrize(
    ("said", "is_up"),
    [(1, True), (100_000, True), (0, False), (100_001, False), (b"1", False), (None, False), ([1], False)],
    ids=repr,
)
async def test_store_is_believed_if_it_counts_replicas_as_redis_would(said: Any, is_up: bool) -> None:
    async with shared_in_memory(Says(PRESENT, said)) as shared:
        status = shared.status

    assert (status.up, status.replicas) == (is_up, said if is_up else 1)
    assert status.reason == (None if is_up else "it does not answer like Redis")


async def test_record_is_kept_with_what_it_follows_where_the_store_has_lost_that() -> None:
    asked_for: list[int] = []

    def before() -> list[StoreRecord]:
        asked_for.append(1)
        return [FIRST]

    client = Says()
    async with shared_in_memory(client) as shared:
        await shared.keep("response", "ann", SECOND, BOUNDS, before)
        found = await shared.find("response", "ann", "2", BOUNDS)
        # It is not asked for again: the store has it.
        await shared.keep("response", "ann", StoreRecord("3", "2", b"three"), BOUNDS, before)
        by_alias = await shared.find_alias("response", "ann", ["none", "x"], BOUNDS)
        last = await shared.find("response", "ann", "3", BOUNDS, depth=1)

    assert [each.value for each in found] == [b"one", b"two"]
    assert asked_for == [1]
    assert [each.id for each in by_alias] == ["1", "2"]
    assert [(each.id, each.before) for each in last] == [("3", "2")]


async def test_record_whose_beginning_nobody_has_is_kept_only_if_its_end_is_useful() -> None:
    lost = StoreRecord("2", "1", b"two")
    async with shared_in_memory(Direct(Memory())) as shared:
        await shared.keep("memory", "ann", lost, BOUNDS)
        without = await shared.find("memory", "ann", "2", BOUNDS, depth=1)
        # What it follows can't be kept either.
        await shared.keep("memory", "ann", StoreRecord("3", "2", b"three"), BOUNDS, lambda: [lost])
        neither = await shared.find("memory", "ann", "3", BOUNDS, depth=1)
        await shared.keep_last("memory", "ann", lost, BOUNDS)
        alone = await shared.find("memory", "ann", "2", BOUNDS, depth=1)
        whole = await shared.find("memory", "ann", "2", BOUNDS)

    assert (without, neither, [each.value for each in alone], whole) == ([], [], [b"two"], [])


async def test_writing_stops_at_the_first_record_that_can_not_be_kept() -> None:
    client, lost = Says(), StoreRecord("2", "1", b"two")
    async with shared_in_memory(client) as shared:
        ran = len(client.ran)
        await shared.keep("memory", "ann", StoreRecord("4", "3", b""), BOUNDS, lambda: [lost, lost])
        commands = client.ran[ran:]

    # The script itself is sent once, and run for the record, and for the first that it follows.
    assert len(commands) == 3


@pytest.mark.parametrize(
    ("size", "bounds", "is_kept"),
    [
        (4 * MEBIBYTE, BOUNDS, True),
        (4 * MEBIBYTE + 1, BOUNDS, False),
        (500, StoreBounds(10_000, 500, 60.0), True),
        (501, StoreBounds(10_000, 500, 60.0), False),
    ],
)
async def test_record_that_is_too_large_is_dropped_and_counted(size: int, bounds: StoreBounds, is_kept: bool) -> None:
    metrics = Metrics()
    async with shared_in_memory(Direct(Memory()), metrics=metrics) as shared:
        await shared.keep("memory", "ann", StoreRecord("1", None, bytes(size)), bounds)
        counted = asked(metrics, "memory", "dropped")
        held = await shared.drop("memory", "ann", "1")

    assert (counted, held) == (0 if is_kept else 1, is_kept)


async def test_store_that_is_away_is_not_written_to_and_answers_nothing() -> None:
    metrics, client = Metrics(), Direct(Memory())
    client.is_there = False
    async with shared_in_memory(client, metrics=metrics) as shared:
        await shared.keep("memory", "ann", FIRST, BOUNDS)
        counted = asked(metrics, "memory", "away")
        answers = [
            await shared.find("memory", "ann", "1", BOUNDS),
            await shared.drop("memory", "ann", "1"),
            await shared.newest("ann", "web", 1, b"x", 60.0),
            await shared.take("rate", "ann", 1, 1.0),
        ]

    assert (counted, answers) == (1, [[], None, None, None])


async def test_dropped_record_is_not_there() -> None:
    async with shared_in_memory(Direct(Memory())) as shared:
        await shared.keep("response", "ann", FIRST, BOUNDS)
        dropped = [await shared.drop("response", owner, "1") for owner in ("bob", "ann", "ann")]
        found = await shared.find("response", "ann", "1", BOUNDS)

    assert (dropped, found) == ([False, True, False], [])


async def test_value_that_no_replica_sealed_is_not_there_and_counted() -> None:
    metrics, client = Metrics(), Direct(Memory())
    async with shared_in_memory(client, metrics=metrics) as shared:
        await shared.keep("response", "ann", FIRST, BOUNDS)
        (name,) = StoreKeys([SECRET], "t:").names("response", "record", "ann", "1")
        await client.execute_command("HSET", name, "value", b"forged")
        found = await shared.find("response", "ann", "1", BOUNDS)

    assert found == []
    assert (asked(metrics, "response", "unreadable"), asked(metrics, "response", "nothing")) == (1, 0)


async def test_key_that_leads_to_another_record_leads_to_none_and_is_counted() -> None:
    metrics, client = Metrics(), Direct(Memory())
    async with shared_in_memory(client, metrics=metrics) as shared:
        await shared.keep("response", "ann", FIRST, BOUNDS)
        one, other = (StoreKeys([SECRET], "t:").names("response", "record", "ann", each)[0] for each in ("1", "other"))
        await client.execute_command("SET", other, one)
        found = await shared.find("response", "ann", "other", BOUNDS)

    assert found == []
    assert asked(metrics, "response", "unreadable") == 1


async def test_sign_in_and_lease_are_kept_for_the_seconds_that_they_were_given() -> None:
    clock = Clock()
    memory = Memory(clock)
    async with shared_in_memory(Direct(memory)) as here, shared_in_memory(Direct(memory)) as there:
        empty = await here.newest("ann", "web", 1, b"", 60.0)
        await here.newest("ann", "web", 2, b"second", 60.0)
        leases = [await each.acquire("ann", "web", 30.0) for each in (here, there)]
        clock.now += 29.9
        held = await there.acquire("ann", "web", 30.0)
        clock.now += 0.2
        over = await there.acquire("ann", "web", 30.0)
        clock.now += 29.8
        kept = await there.newest("ann", "web", 1, b"", 60.0)
        clock.now += 59.9
        again = await there.newest("ann", "web", 1, b"", 60.0)
        clock.now += 60.1
        gone = await there.newest("ann", "web", 1, b"", 60.0)

    assert (leases, held, over) == ([True, False], False, True)
    assert (empty, kept, again, gone) == (b"", b"second", b"second", b"")


async def test_lease_that_was_released_is_free_and_nobody_releases_that_of_another() -> None:
    memory = Memory()
    async with shared_in_memory(Direct(memory)) as here, shared_in_memory(Direct(memory)) as there:
        taken = [await here.acquire("ann", "web", 60.0)]
        await there.release("ann", "web")
        taken.append(await there.acquire("ann", "web", 60.0))
        await here.release("ann", "web")
        taken.append(await there.acquire("ann", "web", 60.0))

    assert taken == [True, False, True]


@pytest.mark.parametrize("said", [2, None, b"1", [1]], ids=repr)
async def test_lease_of_a_store_that_makes_no_sense_is_no_answer(said: Any) -> None:
    async with shared_in_memory(Says(ACQUIRE, said)) as shared:
        assert await shared.acquire("ann", "web", 60.0) is None


@pytest.mark.parametrize(("late", "is_up"), [(FIND, True), (KEEP, True), (BUCKET, False)], ids=["find", "keep", "take"])
async def test_only_questions_that_may_be_large_may_be_late_though_the_store_is_there(
    late: Script, is_up: bool
) -> None:
    async with shared_in_memory(Says(late, TimeoutError())) as shared:
        await shared.find("memory", "ann", "1", BOUNDS)
        await shared.keep("memory", "ann", FIRST, BOUNDS)
        await shared.take("rate", "ann", 1, 1.0)

        assert shared.status.up is is_up


async def test_replica_that_is_cancelled_finishes_what_it_writes_and_is_counted_no_more() -> None:
    class Slow(Direct):
        async def execute_command(self, *args: bytes | str | float) -> Any:
            await checkpoint()
            return await super().execute_command(*args)

    memory = Memory()
    async with shared_in_memory(Direct(memory)) as other:
        with anyio.CancelScope() as scope:
            async with shared_in_memory(Slow(memory)) as shared:
                shared.keep("memory", "ann", FIRST, BOUNDS)
                scope.cancel()
        found = await other.find("memory", "ann", "1", BOUNDS)
        async with shared_in_memory(Direct(memory)) as third:
            replicas = third.status.replicas

    assert ([each.value for each in found], replicas) == ([b"one"], 2)


async def test_work_that_does_not_end_is_cancelled_when_the_store_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.shared.shared_store._LAST", 0.0)
    async with shared_in_memory(Direct(Memory())) as shared:
        endless = shared.run_in_background(anyio.sleep_forever())
    await asyncio.wait({endless})

    assert endless.cancelled()


async def test_write_is_waited_for_no_longer_than_a_request_may_take() -> None:
    hold = asyncio.Event()

    class Held(Direct):
        async def execute_command(self, *args: bytes | str | float) -> Any:
            await hold.wait()
            return await super().execute_command(*args)

    metrics = Metrics().shared
    client = Held(Memory())
    store = SharedStore(RedisStore(client, 60.0, metrics), StoreKeys([SECRET], "t:"), metrics, 0.0)
    hold.set()
    async with store.running():
        hold.clear()
        with anyio.fail_after(20):
            await store.keep("memory", "ann", FIRST, BOUNDS)
        hold.set()


def test_share_of_an_owner_is_a_part_of_all_bytes() -> None:
    assert StoreBounds.of(1000, 0.25, 5.0) == StoreBounds(1000, 250, 5.0)


def test_values_come_back_from_their_bytes_as_they_were() -> None:
    value = ["text", "\ud800", b"\xff", 1, 2.5, None, True, [], {"a": {"b": 1}}]

    assert unpacked(packed(value)) == value
