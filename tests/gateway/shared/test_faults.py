"""What a fault of the store means for those who ask next, and what the operator is told, without a wire."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from gateway.observe.metrics import Metrics
from gateway.shared import SharedStatus, StoreBounds, StoreRecord
from gateway.shared.redis_store import RedisStore, open_client
from gateway.shared.scripts import Script
from tests.gateway.shared.conftest import asked, until_up
from tests.standins.redis_in_memory import Memory
from tests.standins.shared import Direct, shared_in_memory

pytestmark = pytest.mark.anyio

SMALL, LARGE = Script("small"), Script("large", large=True)
BOUNDS = StoreBounds(10**7, 10**7, 60.0)


class Faulty:
    """Answers scripts with what `says` gives or raises, and probes as long as `is_there`."""

    def __init__(self) -> None:
        self.is_there = True
        self.says: Callable[[], Any] = lambda: b"said"
        self.probes = self.closed = 0

    async def execute_command(self, *args: bytes | str | float) -> Any:
        await checkpoint()
        if args[0] != "PING":
            return self.says()
        self.probes += 1
        if not self.is_there:
            raise ConnectionError("gone")
        return None

    async def aclose(self) -> None:
        await checkpoint()
        self.closed += 1


async def settle() -> None:
    """Let everything go on that can."""
    for _ in range(20):
        await checkpoint()


class Site:
    """A store over such a client, which is watched, and what is counted about it."""

    def __init__(self, timeout: float = 5.0) -> None:
        self.client, self.metrics = Faulty(), Metrics()
        self.store = RedisStore(self.client, timeout, self.metrics.shared)

    async def run(self, script: Script) -> Any:
        return await self.store.run("memory", script, [], [])

    def up(self) -> float | None:
        return self.metrics.registry.get_sample_value("codec_shared_up")

    def counted(self, result: str) -> float:
        return asked(self.metrics, "memory", result)


async def nothing() -> None:
    return


def fails(error: Exception) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


async def test_store_counts_as_down_until_it_has_answered() -> None:
    site = Site()
    before = (site.up(), site.store.reason, await site.run(SMALL))
    async with site.store.running(nothing):
        after = (site.up(), site.store.reason, await site.run(SMALL))

    assert before == (0, "it has not been asked yet", None)
    assert after == (1, None, b"said")
    assert (site.counted("away"), site.counted("ok")) == (1, 1)


async def test_store_that_is_lost_is_asked_no_more_and_probed_at_once() -> None:
    site = Site()
    async with site.store.running(nothing):
        site.client.says = fails(ConnectionError())
        lost = await site.run(SMALL)
        site.client.says = lambda: b"said"
        again = await site.run(SMALL)

    assert (lost, again) == (None, None)
    assert (site.counted("lost"), site.counted("away"), site.up()) == (1, 1, 0)
    # An error without words is named.
    assert site.store.reason == "ConnectionError"


async def test_small_question_that_comes_late_shows_that_the_store_is_down() -> None:
    site = Site()
    async with site.store.running(nothing):
        site.client.says = fails(TimeoutError())
        await site.run(SMALL)
        reason = site.store.reason

    assert reason == "it did not answer in time"
    assert site.counted("late") == 1


async def test_large_question_that_comes_late_has_the_store_probed_before_the_next_one() -> None:
    site = Site()
    async with site.store.running(nothing):
        probes, site.client.says = site.client.probes, fails(TimeoutError())
        await site.run(LARGE)
        reason, site.client.says = site.store.reason, lambda: b"said"
        with anyio.fail_after(20):
            # It waits for the probe.
            answer = await site.run(SMALL)

    assert (reason, answer, site.client.probes - probes) == (None, b"said", 1)
    assert (site.counted("late"), site.counted("away"), site.up()) == (1, 0, 1)


async def test_large_question_that_comes_late_at_a_store_that_is_gone_ends_in_one_probe() -> None:
    site = Site(timeout=600)
    async with site.store.running(nothing):
        site.client.says, site.client.is_there = fails(TimeoutError()), False
        await site.run(LARGE)
        with anyio.fail_after(20):
            answer = await site.run(SMALL)

    assert (answer, site.store.reason, site.counted("away")) == (None, "gone", 1)


async def test_refusal_leaves_the_store_up() -> None:
    site = Site()
    async with site.store.running(nothing):
        site.client.says = fails(ResponseError("no room"))
        refused = [await site.run(SMALL), await site.run(SMALL)]
        site.client.says = lambda: b"said"
        answer = await site.run(SMALL)

    assert (refused, answer, site.store.reason) == ([None, None], b"said", None)
    assert (site.counted("refused"), site.counted("ok")) == (2, 1)


async def test_nothing_found_is_counted_as_nothing() -> None:
    metrics = Metrics()
    async with shared_in_memory(Direct(Memory()), metrics=metrics) as shared:
        none = await shared.find("memory", "ann", "1", BOUNDS)
        counted = asked(metrics, "memory", "nothing")
        await shared.keep("memory", "ann", StoreRecord("1", None, b"one"), BOUNDS)
        found = await shared.find("memory", "ann", "1", BOUNDS)

    assert (none, [each.value for each in found]) == ([], [b"one"])
    assert (counted, asked(metrics, "memory", "nothing")) == (1, 1)


async def test_bytes_on_their_way_to_the_store_have_a_bound() -> None:
    metrics = Metrics()
    bounds = StoreBounds(10**9, 10**9, 60.0)
    async with shared_in_memory(Direct(Memory()), metrics=metrics) as shared:
        writes = [
            shared.keep_last("memory", "ann", StoreRecord(str(number), None, bytes(4 * 2**20)), bounds)
            for number in range(9)
        ]
        dropped = asked(metrics, "memory", "dropped")
        for write in writes:
            await write
        await shared.keep_last("memory", "ann", StoreRecord("9", None, bytes(4 * 2**20)), bounds)

    assert dropped == 1
    assert asked(metrics, "memory", "dropped") == 1


async def test_lease_is_given_by_a_store_only_that_has_answered_for_as_long_as_it_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.shared.redis_store._AGAIN", 0.0)
    client = Direct(Memory())
    async with shared_in_memory(client) as shared:
        never_away = await shared.acquire("ann", "a", 60.0)
    client.is_there = False
    async with shared_in_memory(client) as shared:
        away = await shared.acquire("ann", "b", 60.0)
        client.is_there = True
        await until_up(shared)
        # While it was away, a lease of another replica may have been lost with it.
        long, short = await shared.acquire("ann", "b", 60.0), await shared.acquire("ann", "b", 0.0)

    assert (never_away, away, long, short) == (True, None, False, True)


async def test_replica_counts_itself_though_the_store_was_never_there() -> None:
    client = Direct(Memory())
    client.is_there = False
    async with shared_in_memory(client) as shared:
        assert shared.status == SharedStatus(False, "away", 1)


async def test_replica_that_leaves_is_counted_no_more() -> None:
    memory = Memory()
    async with shared_in_memory(Direct(memory)) as first:
        async with shared_in_memory(Direct(memory)) as second:
            both = (first.status.replicas, second.status.replicas)
        async with shared_in_memory(Direct(memory)) as third:
            after = third.status.replicas

    assert (both, after) == ((1, 2), 2)


async def test_work_under_way_is_finished_before_the_store_is_left() -> None:
    class Slow(Direct):
        async def execute_command(self, *args: bytes | str | float) -> Any:
            await anyio.sleep(0.05)
            return await super().execute_command(*args)

    done: list[object] = []

    async def work() -> None:
        await shared.find("memory", "ann", "1", BOUNDS)
        done.append(asked(metrics, "memory", "nothing"))

    metrics = Metrics()
    async with shared_in_memory(Slow(Memory()), metrics=metrics) as shared:
        shared.run_in_background(work())

    assert done == [1]


async def test_refusals_and_losses_are_logged_once_until_the_store_has_answered_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def told() -> int:
        found = sum(line.levelname == "WARNING" for line in caplog.records)
        caplog.clear()
        return found

    site = Site()
    async with site.store.running(nothing):
        told()
        site.client.says = fails(ResponseError("no room"))
        for _ in range(3):
            await site.run(SMALL)
        refused = told()
        site.client.says = fails(ConnectionError("gone"))
        for _ in range(3):
            await site.run(SMALL)
        lost = told()

    assert (refused, lost) == (1, 1)


async def test_sign_in_that_no_replica_made_is_not_there_and_counted() -> None:
    metrics, client = Metrics(), Direct(Memory())
    async with shared_in_memory(client, metrics=metrics) as shared:
        await shared.newest("ann", "web", 2, b"second", 60.0)
        (name, *_) = shared._keys.names("sign-in", "ann", "web")
        found = await shared.newest("ann", "web", 1, b"first", 60.0)
        await client.execute_command("HSET", name, "value", b"forged")
        forged = await shared.newest("ann", "web", 1, b"first", 60.0)

    assert (found, forged) == (b"second", b"")
    assert asked(metrics, "sign-in", "unreadable") == 1


async def test_store_that_answers_is_left_alone_and_one_that_does_not_is_not_asked_all_the_time() -> None:
    there, gone = Site(), Site()
    gone.client.is_there = False
    async with there.store.running(nothing), gone.store.running(nothing):
        await settle()
        probes = (there.client.probes, gone.client.probes)

    assert probes == (1, 1)
    assert (there.client.closed, gone.client.closed) == (1, 2)


async def test_store_is_probed_at_once_when_it_is_lost_and_rests_when_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.shared.redis_store._AGAIN", 0.0)
    site = Site()
    async with site.store.running(nothing):
        probes, site.client.says = site.client.probes, fails(ConnectionError("reset"))
        await site.run(SMALL)
        lost = site.store.reason
        with anyio.fail_after(20):
            while site.store.reason is not None:
                await checkpoint()
        await settle()
        again = site.client.probes - probes

    assert (lost, again, site.up()) == ("reset", 1, 1)


async def test_store_whose_answer_makes_no_sense_is_down_and_its_connections_are_made_anew() -> None:
    async def strange() -> None:
        raise ValueError("it is no store")

    site = Site()
    async with site.store.running(strange):
        status = (site.store.reason, site.client.closed, site.up())

    assert status == ("it is no store", 1, 0)


async def test_no_more_than_32_requests_are_with_the_store_at_a_time() -> None:
    inside: list[str] = []
    go_on = asyncio.Event()

    class Held(Faulty):
        async def execute_command(self, *args: bytes | str | float) -> Any:
            if args[0] == "PING":
                return None
            inside.append("one")
            await go_on.wait()
            return b"said"

    store = RedisStore(Held(), 60.0, Metrics().shared)
    async with store.running(nothing):
        asking = [asyncio.ensure_future(store.run("memory", SMALL, [], [])) for _ in range(40)]
        await settle()
        held = len(inside)
        go_on.set()
        answers = await asyncio.gather(*asking)

    assert (held, answers) == (32, [b"said"] * 40)


async def test_request_that_gets_no_turn_in_time_says_nothing_of_the_store() -> None:
    class Held(Faulty):
        async def execute_command(self, *args: bytes | str | float) -> Any:
            if args[0] == "PING":
                return
            await anyio.sleep_forever()

    metrics = Metrics()
    store = RedisStore(Held(), 0.05, metrics.shared)
    async with store.running(nothing):
        asking = [store.run("memory", script, [], []) for script in [*[LARGE] * 32, SMALL]]
        answers = await asyncio.gather(*asking)
        reason = store.reason

    assert (answers, reason, asked(metrics, "memory", "late")) == ([None] * 33, None, 33)


async def test_request_whose_turn_leaves_it_little_time_says_nothing_of_the_store() -> None:
    held = asyncio.Event()

    class Busy(Faulty):
        async def execute_command(self, *args: bytes | str | float) -> Any:
            if args[0] == "PING":
                return
            if args[1] == SMALL.digest:
                await anyio.sleep_forever()
            await held.wait()

    metrics = Metrics()
    store = RedisStore(Busy(), 0.4, metrics.shared)
    async with store.running(nothing):
        asking = [store.run("memory", script, [], []) for script in [*[LARGE] * 32, SMALL]]
        asyncio.get_running_loop().call_later(0.3, held.set)
        answers = await asyncio.gather(*asking)
        reason = store.reason

    assert (answers, reason) == ([None] * 33, None)
    assert asked(metrics, "memory", "late") >= 1


async def test_store_that_is_left_leaves_no_task_and_no_connection_even_if_that_was_cancelled() -> None:
    site, tasks = Site(), asyncio.all_tasks()
    with anyio.CancelScope() as scope:
        async with site.store.running(nothing):
            scope.cancel()

    assert (asyncio.all_tasks(), site.client.closed) == (tasks, 1)


async def test_time_since_the_store_came_back_counts_from_the_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, ahead = asyncio.get_running_loop(), [0.0]
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + ahead[0])
    monkeypatch.setattr("gateway.shared.redis_store._AGAIN", 0.0)
    site = Site()
    site.client.is_there = False
    async with site.store.running(nothing):
        site.client.is_there = True
        for _ in range(3):
            probes, ahead[0] = site.client.probes, ahead[0] + 100.0
            with anyio.fail_after(20):
                while site.client.probes == probes:
                    await checkpoint()
            await settle()
        back_for = site.store.back_for

    assert 200 <= back_for < 300


async def test_operator_is_told_once_that_the_store_is_down_and_once_that_it_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.shared.redis_store._AGAIN", 0.0)
    caplog.set_level("INFO", "shared")
    site = Site()
    site.client.is_there = False
    async with site.store.running(nothing):
        await settle()
        down = [record.levelname for record in caplog.records]
        site.client.is_there = True
        await settle()

    assert site.client.probes > 2
    assert down == ["WARNING"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_command_is_sent_once_and_nothing_with_it() -> None:
    heard: list[bytes] = []

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1000))
        writer.close()

    async with await asyncio.start_server(cut, "127.0.0.1", 0) as server:
        client = open_client(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0", 20.0)
        with pytest.raises(RedisConnectionError):
            await client.execute_command("PING")
        await client.aclose()

    assert heard == [b"*1\r\n$4\r\nPING\r\n"]
