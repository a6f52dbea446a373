"""The store at its worst: away, silent, foreign, killed in the middle. Nobody who asks is told, or waits for long."""

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from bench.processes import free_port
from gateway.config.replicas import SharedConfig
from gateway.errors import ConfigError
from gateway.observe.metrics import Metrics
from gateway.shared import StoreBounds, StoreRecord
from gateway.shared.redis_store import RedisStore
from gateway.shared.shared_store import SharedStore, store_of
from gateway.shared.store_records import StoreKeys
from tests.cases import each_of
from tests.gateway.shared.conftest import SECRET, asked, open_store, until_up
from tests.standins.redis_in_memory import Memory
from tests.standins.shared import Direct, shared_in_memory
from tests.standins.stores import Store, running_store

pytestmark = pytest.mark.anyio

BOUNDS = StoreBounds(10**8, 10**8, 60.0)
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Tell = Callable[[asyncio.StreamWriter, bytes], Awaitable[None]]


async def one(shared: SharedStore, who: str = "ann") -> float | None:
    return await shared.take("rate", who, 2, 0.001)


async def test_replicas_take_from_one_bucket(store: Store) -> None:
    async with open_store(store.url, prefix="a:") as here, open_store(store.url, prefix="a:") as there:
        first = [await one(here), await one(there)]
        third = await one(here)
        look = await there.wait("rate", "ann", 2, 0.001)
        other = await one(there, "bob")

    assert first == [0, 0]
    assert third is not None
    assert third > 900
    assert look is not None
    assert look > 900
    assert other == 0


async def test_replicas_know_how_many_they_are(store: Store) -> None:
    async with open_store(store.url, prefix="b:"):
        async with open_store(store.url, prefix="b:") as second:
            assert second.status.replicas == 2
        async with open_store(store.url, prefix="b:") as third:
            assert third.status.replicas == 2


async def test_gateways_with_other_prefixes_or_secrets_meet_nowhere(store: Store) -> None:
    other = (b"x" * 32,)
    async with (
        open_store(store.url, prefix="c:") as a,
        open_store(store.url, prefix="d:") as b,
        open_store(store.url, secrets=other, prefix="c:") as c,
    ):
        found = [await one(each) for each in (a, b, c) for _ in range(2)]

    assert found == [0] * 6


@asynccontextmanager
async def served(talk: Talk) -> AsyncGenerator[str]:
    """The address of a server that is no Redis."""
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(1000):
        pass
    writer.close()


def says(answer: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(1000):
                writer.write(answer)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    return talk


GARBAGE = [
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\x00\xff\x15\x03\x01" * 100,
    b"$99999999999999999999\r\n",
    b"*999999999\r\n" * 3,
    b"*1\r\n" * 5000,
    b"$x\r\n",
    b":12345678901234567890123456789012345678901234567890\r\n",
    b"+OK\r\n" * 1000,
    b"-MOVED 1 127.0.0.1:1\r\n",
    b"-\xff\xfe\x1b[31m red\r\n",
    b"\r\n\r\n",
]


@each_of("talk", [silent, *map(says, GARBAGE)])
async def test_what_is_no_redis_is_away_and_harms_nobody(talk: Talk) -> None:
    metrics = Metrics()
    async with served(talk) as url, open_store(url, metrics, timeout=0.5, up=False) as shared:
        answers = [await one(shared) for _ in range(3)]
        status = shared.status

    assert answers == [None] * 3
    assert not status.up
    assert status.reason
    assert status.reason.isprintable()
    assert asked(metrics, "limit", "away") == 4  # with the last word to the others
    assert metrics.registry.get_sample_value("codec_shared_up") == 0


async def test_port_that_refuses_is_away_and_found_when_it_is_there() -> None:
    store, metrics = Store(), Metrics()
    try:
        async with open_store(store.url, metrics, up=False) as shared:
            before = await one(shared)
            store.start()
            await until_up(shared)
            after = await one(shared)
    finally:
        store.kill()

    assert (before, after) == (None, 0)
    assert metrics.registry.get_sample_value("codec_shared_up") == 1


async def test_store_that_is_killed_and_started_again_is_missed_by_nobody() -> None:
    with running_store() as store:
        async with open_store(store.url) as shared:
            assert await one(shared) == 0
            store.kill()
            missed = [await one(shared) for _ in range(3)]
            status = shared.status
            store.start()
            await until_up(shared)
            # Scripts are gone with it, and sent again.
            again = [await one(shared) for _ in range(2)]

    assert missed == [None] * 3
    assert not status.up
    assert again == [0, 0]


def at_once(writer: asyncio.StreamWriter, data: bytes) -> Awaitable[None]:
    writer.write(data)
    return writer.drain()


def passing(store: Store, tell: Tell = at_once) -> Talk:
    """What passes connections on to a store. `tell` gives a client what the store says."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, out = await asyncio.open_connection("127.0.0.1", store.port)

        async def back() -> None:
            while data := await inner.read(1 << 20):
                await tell(writer, data)

        task = asyncio.get_running_loop().create_task(back())
        try:
            while data := await reader.read(1 << 20):
                out.write(data)
        except ConnectionError:
            pass
        task.cancel()
        out.close()
        writer.close()

    return talk


async def dripping(writer: asyncio.StreamWriter, data: bytes) -> None:
    """What is more than some bytes comes piece by piece, and never its end."""
    for at in range(0, len(data), 1000):
        writer.write(data[at : at + 1000])
        if len(data) > 4000:
            await anyio.sleep(0.05)


async def test_store_that_falls_silent_costs_one_wait_and_no_second() -> None:
    metrics = Metrics()
    silence = asyncio.Event()
    with running_store() as store:

        async def unless_silent(writer: asyncio.StreamWriter, data: bytes) -> None:
            if not silence.is_set():
                writer.write(data)

        async with served(passing(store, unless_silent)) as url, open_store(url, metrics, timeout=3) as shared:
            assert await one(shared) == 0
            silence.set()
            during = [await one(shared) for _ in range(5)]
            silence.clear()
            await until_up(shared)
            after = await one(shared, "bob")

    assert during == [None] * 5
    assert asked(metrics, "limit", "late") == 1
    assert asked(metrics, "limit", "away") == 4
    assert after == 0


LARGE = StoreRecord("1", None, bytes(1_000_000))


async def kept(store: Store, prefix: str, record: StoreRecord = LARGE) -> None:
    async with open_store(store.url, prefix=prefix) as shared:
        await shared.keep("memory", "ann", record, BOUNDS)


async def test_large_value_that_does_not_come_in_time_does_not_make_the_store_away(store: Store) -> None:
    await kept(store, "h:")
    metrics = Metrics()
    async with served(passing(store, dripping)) as url, open_store(url, metrics, prefix="h:", timeout=5) as shared:
        found = [await shared.find("memory", "ann", "1", BOUNDS) for _ in range(2)]
        after = await one(shared)
        status = shared.status

    assert found == [[], []]
    assert after == 0
    assert status.up
    assert asked(metrics, "memory", "late") == 2
    assert asked(metrics, "limit", "away") == 0


async def test_small_questions_behind_many_large_values_do_not_make_the_store_away(store: Store) -> None:
    await kept(store, "i:")
    metrics = Metrics()
    async with served(passing(store, dripping)) as url, open_store(url, metrics, prefix="i:", timeout=5) as shared:
        large = [shared.find("memory", "ann", "1", BOUNDS) for _ in range(64)]
        answers = await asyncio.gather(*large, *(one(shared, f"{n}") for n in range(8)))
        after = await one(shared)

    assert answers[:64] == [[]] * 64
    assert after == 0
    assert asked(metrics, "limit", "away") == 0


async def test_store_that_falls_silent_in_a_large_question_is_away_after_one_look() -> None:
    metrics = Metrics()
    with running_store() as store:
        async with open_store(store.url, metrics, timeout=1) as shared:
            store.freeze()
            found = await shared.find("memory", "ann", "1", BOUNDS)
            after = await one(shared)
            await until_up(shared, False)
            store.thaw()
            await until_up(shared)

    assert (found, after) == ([], None)
    assert asked(metrics, "memory", "late") == 1
    assert asked(metrics, "limit", "away") >= 1


async def test_primary_that_became_a_replica_is_left_for_the_new_one_behind_the_same_address(store: Store) -> None:
    moved = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if moved.is_set():
            return await passing(store)(reader, writer)
        return await says(b"-READONLY You can't write against a read only replica.\r\n")(reader, writer)

    async with served(talk) as url, open_store(url, up=False) as shared:
        before = await one(shared)
        moved.set()
        await until_up(shared)
        after = await one(shared, "of the new one")

    assert (before, after) == (None, 0)


async def test_answer_that_comes_late_is_never_taken_for_that_of_another_question(store: Store) -> None:
    metrics = Metrics()
    draw = random.Random(1)

    async def late(writer: asyncio.StreamWriter, data: bytes) -> None:
        await anyio.sleep(draw.choice([0, 0, 0.02, 0.12]) if b"record" in data or len(data) > 60 else 0)
        writer.write(data)

    async with open_store(store.url, prefix="l:") as before:
        for number in range(20):
            await before.keep("memory", "ann", StoreRecord(f"{number}", None, f"value {number}".encode()), BOUNDS)
    async with (
        served(passing(store, late)) as url,
        open_store(url, metrics, prefix="l:", timeout=0.1, up=False) as shared,
    ):
        await until_up(shared)
        found: list[tuple[int, bytes]] = []
        for _ in range(15):
            answers = await asyncio.gather(*(shared.find("memory", "ann", f"{n}", BOUNDS) for n in range(20)))
            found += [(n, each[0].value) for n, each in enumerate(answers) if each]

    assert found
    assert all(value == f"value {number}".encode() for number, value in found)
    assert asked(metrics, "memory", "unreadable") == 0
    assert asked(metrics, "memory", "late") > 0


async def test_connections_that_are_closed_while_many_wait_on_them_are_made_anew() -> None:
    with running_store() as store:
        async with open_store(store.url, timeout=0.5) as shared:
            for _ in range(3):
                store.freeze()
                async with anyio.create_task_group() as tasks:
                    for number in range(48):
                        tasks.start_soon(shared.find, "memory", "ann", f"{number}", BOUNDS)
                    await until_up(shared, False)
                    store.thaw()
                await until_up(shared)
            answer = await one(shared)

    assert answer == 0


async def test_fault_of_the_library_at_the_close_of_connections_is_not_the_end_of_looks() -> None:
    class Faulty(Direct):
        async def aclose(self) -> None:
            raise RuntimeError("it can't be closed")

    client = Faulty(Memory())
    client.is_there = False
    async with shared_in_memory(client) as shared:
        client.is_there = True
        await until_up(shared)
        answer = await one(shared)

    assert answer == 0


async def test_cancellation_that_is_lost_in_the_library_does_not_hold_up_the_end() -> None:
    looking = asyncio.Event()

    class Deaf(Direct):
        async def execute_command(self, *args: bytes | str | float) -> Any:
            if args[0] == "PING" and shared.status.up:
                looking.set()
                try:
                    await anyio.sleep_forever()
                except asyncio.CancelledError:
                    return b"PONG"
            return await super().execute_command(*args)

    client = Deaf(Memory())
    shared = SharedStore(RedisStore(client, 5.0, Metrics().shared), StoreKeys([SECRET], "t:"), Metrics().shared, 5.0)
    async with shared.running():
        shared._store._failed.set()
        await looking.wait()


async def test_key_that_somebody_else_has_is_refused_and_the_store_stays(store: Store) -> None:
    metrics = Metrics()
    async with open_store(store.url, metrics, prefix="e:") as shared:
        name = shared._keys.names("rate", "ann")[0]
        await shared._store._client.execute_command("ZADD", name, 1, "x")
        found = await one(shared)
        bob = await one(shared, "bob")

    assert (found, bob) == (None, 0)
    assert asked(metrics, "limit", "refused") == 1


async def test_client_that_leaves_in_the_middle_takes_nothing_along(store: Store) -> None:
    async with open_store(store.url, prefix="f:") as shared:
        for _ in range(50):
            with anyio.move_on_after(0.0005):
                await one(shared, "cancelled")
        answers = [await one(shared, f"{n}") for n in range(50)]
        assert shared.status.up

    assert answers == [0] * 50


async def test_many_at_a_time_are_answered(store: Store) -> None:
    async with open_store(store.url, prefix="g:") as shared:
        answers = await asyncio.gather(*(shared.take("rate", "ann", 100, 0.001) for _ in range(200)))

    assert answers.count(0) == 100


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1?socket_timeout=soon", "redis://127.0.0.1:1?no_such_option=1"])
async def test_address_that_can_not_work_is_an_error_at_the_start(url: str) -> None:
    with pytest.raises(ConfigError, match=r"shared\.url can't be used"):
        store_of(SharedConfig(url), [SECRET], Metrics().shared)


async def test_unix_socket_that_is_not_there_is_away() -> None:
    async with open_store(f"unix:///tmp/{free_port()}.sock", up=False) as shared:
        assert await one(shared) is None


async def test_newer_sign_in_wins_at_every_replica(store: Store) -> None:
    async with open_store(store.url) as one, open_store(store.url) as two:
        assert await one.newest("ann", "web", -1, b"", 60.0) == b""
        assert await one.newest("ann", "web", 3, b"third", 60.0) == b""
        assert await two.newest("ann", "web", 2, b"second", 60.0) == b"third"
        assert await two.newest("ann", "web", 3, b"third", 60.0) == b""
        assert await two.newest("ann", "web", 10**13, b"last", 60.0) == b""
        assert await one.newest("ann", "web", -1, b"", 60.0) == b"last"
        assert await one.newest("bob", "web", -1, b"", 60.0) == b""


async def test_lease_has_one_holder_until_it_is_released_or_ends(store: Store) -> None:
    async with open_store(store.url) as one, open_store(store.url) as two:
        assert await one.acquire("ann", "lease", 60.0)
        assert await two.acquire("bob", "lease", 60.0)
        assert await two.acquire("ann", "lease", 60.0) is False
        await two.release("ann", "lease")
        assert await two.acquire("ann", "lease", 60.0) is False
        await one.release("ann", "lease")
        assert await two.acquire("ann", "lease", 0.2)
        await anyio.sleep(0.3)
        assert await one.acquire("ann", "lease", 60.0)


async def test_sign_in_and_lease_hold_while_the_secret_is_replaced(store: Store) -> None:
    old, new = os.urandom(32), os.urandom(32)
    async with open_store(store.url, secrets=(old, new)) as one, open_store(store.url, secrets=(new, old)) as two:
        assert await one.newest("ann", "moved", 1, b"first", 60.0) == b""
        assert await two.newest("ann", "moved", 2, b"second", 60.0) == b""
        assert await one.newest("ann", "moved", 1, b"first", 60.0) == b"second"
        assert await one.acquire("ann", "moved", 60.0)
        assert await two.acquire("ann", "moved", 60.0) is False
        await one.release("ann", "moved")
        assert await two.acquire("ann", "moved", 60.0)
