"""Records that replicas keep for each other: found whole, bounded for all, and nobody else's."""

import asyncio
import os
from collections import Counter
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.metrics import Metrics
from gateway.shared import StoreBounds, StoreRecord
from gateway.shared.scripts import DROP, FIND, KEEP
from gateway.shared.store_interface import WHOLE
from tests.gateway.shared.conftest import asked, open_store
from tests.gateway.shared.test_scripts import Clock, run
from tests.standins.redis_in_memory import Memory
from tests.standins.stores import Store

pytestmark = pytest.mark.anyio

LARGE = StoreBounds(1_000_000, 500_000, 60.0)
KIND = "kind:"
SIZE = 300


class Records:
    """Records of one kind, kept by the scripts."""

    def __init__(self, most: int = 10_000, share: int = 5_000, ttl: float = 60.0) -> None:
        self.clock = Clock()
        self.memory = Memory(self.clock)
        self.most, self.share, self.ttl = most, share, ttl

    def keep(
        self,
        owner: str,
        key: str,
        before: str = "",
        value: str = "",
        aliases: list[str] | None = None,
        *,
        whole: int = 1,
    ) -> Any:
        self.clock.now += 0.001
        args = [value, before, self.ttl, owner, self.most, self.share, whole]
        return run(self.memory, KEEP, [KIND, key, *(aliases or [])], *args)

    def find(self, owner: str, *keys: str, most: int = 10**6, depth: int = 100) -> list[str]:
        self.clock.now += 0.001
        found = run(self.memory, FIND, [KIND, *keys], most, depth, self.ttl, owner)
        assert isinstance(found, list)
        return [each.decode() for each in found[::2]]

    def drop(self, owner: str, *keys: str) -> object:
        return run(self.memory, DROP, [KIND, *keys], owner)

    def names(self) -> list[str]:
        held = [key.decode() for key, value in self.memory.values.items() if type(value) is dict]
        return sorted(key for key in held if self.memory.command(b"EXISTS", key.encode()))

    def accounts(self) -> tuple[int, dict[str, float]]:
        owners: dict[bytes, float] = self.memory.values.get(b"kind:owners", {})
        return int(self.memory.values.get(b"kind:sum", b"0")), {key.decode(): size for key, size in owners.items()}


def test_record_is_found_with_all_that_it_follows() -> None:
    records = Records()
    assert [records.keep("ann", "a"), records.keep("ann", "b", "a"), records.keep("ann", "c", "old b")] == [1, 1, 1]

    assert records.find("ann", "c") == ["c", "b", "a"]
    assert records.find("ann", "c", depth=1) == ["c"]
    assert records.find("ann", "nothing", "b") == ["b", "a"]
    assert records.find("ann", "c", most=0) == ["c", "b", "a"]
    assert records.keep("ann", "b", "a") == 2


def test_record_whose_beginning_is_gone_is_not_there_and_is_not_kept_either() -> None:
    records = Records()
    records.keep("ann", "a")
    records.keep("ann", "b", "a")
    records.drop("ann", "a")

    assert records.find("ann", "b") == []
    assert records.keep("ann", "c", "x") == 0
    assert records.find("ann", "c") == []


def test_conversation_that_is_too_long_is_not_there_rather_than_in_part() -> None:
    records = Records()
    for n in range(2049):
        before = f"r{n - 1}" if n else ""
        records.memory.command(b"HSET", f"r{n}".encode(), b"value", b"", b"before", before.encode(), b"size", b"1")

    assert len(records.find("ann", "r2047", depth=WHOLE)) == 2048
    assert records.find("ann", "r2048", depth=WHOLE) == []


def test_alias_names_the_newest_and_goes_with_its_record() -> None:
    records = Records()
    records.keep("ann", "a", aliases=["alias", "first"])
    records.keep("ann", "b", aliases=["alias"])

    assert records.find("ann", "alias") == ["b"]
    records.drop("ann", "a")
    assert records.find("ann", "first", "alias") == ["b"]
    records.drop("ann", "b")
    assert records.find("ann", "alias") == []
    assert b"alias" not in records.memory.values


def test_end_of_a_conversation_gives_way_before_its_beginning_and_the_oldest_first() -> None:
    records = Records(most=4 * SIZE)
    for key, before in (("a1", ""), ("a2", "a1"), ("b1", ""), ("b2", "b1")):
        records.keep("ann", key, before)
    records.keep("ann", "c1")
    assert records.names() == ["a1", "b1", "b2", "c1"]

    records.find("ann", "a1")
    records.keep("ann", "d1")
    assert records.names() == ["a1", "b1", "c1", "d1"]


def test_owner_over_its_share_takes_nothing_from_the_others() -> None:
    records = Records(most=8 * SIZE, share=4 * SIZE)
    for n in range(8):
        records.keep("ann", f"a{n}")
    assert len(records.names()) == 8

    records.keep("bob", "b0")
    assert sum(key.startswith("a") for key in records.names()) == 7
    records.keep("ann", "a9")
    assert records.names() == ["a5", "a6", "a7", "a9", "b0"]


def test_what_nobody_used_for_its_time_is_gone_from_the_accounts_too() -> None:
    records = Records(ttl=60)
    records.keep("ann", "a")
    records.keep("bob", "b")
    records.clock.now += 40
    records.find("bob", "b")
    records.clock.now += 40

    assert records.find("ann", "a") == []
    records.keep("cleo", "c")
    assert records.accounts() == (2 * SIZE, {"bob": SIZE, "cleo": SIZE})


STEP = st.tuples(
    st.sampled_from(["keep", "keep", "keep", "find", "drop", "wait"]),
    st.sampled_from(["ann", "bob", "cleo"]),
    st.integers(0, 12),
    st.integers(0, 12),
    st.integers(0, 400),
)


@given(st.lists(STEP, max_size=60))
def test_accounts_are_those_of_the_records_and_never_over_the_bounds(
    steps: list[tuple[str, str, int, int, int]],
) -> None:
    records = Records(most=3000, share=1500, ttl=50)
    whose: dict[str, str] = {}
    for what, owner, n, m, size in steps:
        key = f"{owner}{n}"
        if what == "keep":
            before = f"{owner}{m}" if m % 2 else ""
            records.keep(owner, key, before if before != key else "", "x" * size, [f"alias{owner}{m}"])
            whose[key] = owner
        elif what == "find":
            records.find(owner, key)
        elif what == "drop":
            records.drop(owner, key)
        else:
            records.clock.now += size / 10
        total, owners = records.accounts()
        assert total == sum(owners.values())
        assert total <= records.most
        assert what != "keep" or len(owners) <= 1 or owners.get(owner, 0) <= records.share
    # Once what is over was looked for, nothing else is counted.
    for owner in ("ann", "bob", "cleo"):
        records.keep(owner, f"{owner}-last")
    held = Counter[str]()
    for key in records.names():
        held[key.rstrip("0123456789").removesuffix("-last")] += int(records.memory.values[key.encode()][b"size"])
    assert records.accounts()[1] == held


async def test_other_replica_finds_what_one_kept(store: Store) -> None:
    async with open_store(store.url, prefix="ra:") as here, open_store(store.url, prefix="ra:") as there:
        first = StoreRecord("1", None, b"one", ("x", "y"))
        second = StoreRecord("2", "1", b"two \xff", ("y",))
        await here.keep("response", "ann", first, LARGE)
        await here.keep("response", "ann", second, LARGE)

        found = await there.find("response", "ann", "2", LARGE)
        by_alias = await there.find_alias("response", "ann", ["nobody", "y"], LARGE)
        last = await there.find("response", "ann", "2", LARGE, depth=1)

        assert [(each.id, each.before, each.value) for each in found] == [("1", None, b"one"), ("2", "1", b"two \xff")]
        assert by_alias == found
        assert last == found[1:]
        assert await there.find("response", "bob", "2", LARGE) == []
        assert await there.find("memory", "ann", "2", LARGE) == []
        assert await there.drop("response", "bob", "2") is False
        assert await there.drop("response", "ann", "1") is True
        assert await here.find("response", "ann", "2", LARGE) == []


async def test_beginning_that_the_store_has_lost_is_written_again(store: Store) -> None:
    async with open_store(store.url, prefix="rb:") as shared:
        chain = [StoreRecord(f"{n}", f"{n - 1}" if n else None, b"%d" % n) for n in range(4)]
        await shared.keep("memory", "ann", chain[-1], LARGE, lambda: chain[:-1])

        assert len(await shared.find("memory", "ann", "3", LARGE)) == 4


async def test_secret_that_was_exchanged_leaves_conversations_whole(store: Store) -> None:
    old, new = os.urandom(32), os.urandom(32)
    first, second = StoreRecord("1", None, b"one"), StoreRecord("2", "1", b"two")
    async with (
        open_store(store.url, secrets=(old,), prefix="rc:") as before,
        open_store(store.url, secrets=(new, old), prefix="rc:") as both,
        open_store(store.url, secrets=(new,), prefix="rc:") as after,
    ):
        await before.keep("memory", "ann", first, LARGE)
        await both.keep("memory", "ann", second, LARGE)

        assert [each.id for each in await both.find("memory", "ann", "2", LARGE)] == ["1", "2"]
        assert await after.find("memory", "ann", "2", LARGE) == []


@pytest.mark.parametrize("change", ["cut", "forged", "moved", "older", "linked"])
async def test_what_somebody_else_wrote_is_not_there_and_is_counted(store: Store, change: str) -> None:
    metrics = Metrics()
    async with open_store(store.url, metrics, prefix=f"rd{change}:") as shared:
        client = shared._store._client
        await shared.keep("response", "ann", StoreRecord("1", None, b"one"), LARGE)
        await shared.keep("response", "ann", StoreRecord("0", None, b"zero"), LARGE)
        await shared.keep("response", "ann", StoreRecord("2", "1", b"two"), LARGE)
        one, zero, two = (shared._keys.names("response", "record", "ann", each)[0] for each in "102")
        value: bytes = await client.execute_command("HGET", two, "value")
        forged = {"cut": value[:-1], "forged": value[:-1] + bytes([value[-1] ^ 1]), "older": b"\x00" + value[1:]}
        if change == "moved":
            await client.execute_command("HSET", two, "value", await client.execute_command("HGET", one, "value"))
        elif change == "linked":
            await client.execute_command("HSET", two, "before", zero)
        else:
            await client.execute_command("HSET", two, "value", forged[change])

        assert await shared.find("response", "ann", "2", LARGE) == []

    assert asked(metrics, "response", "unreadable") == 1


async def test_end_that_somebody_cut_off_its_beginning_is_not_there(store: Store) -> None:
    async with open_store(store.url, prefix="re:") as shared:
        await shared.keep("response", "ann", StoreRecord("1", None, b"one"), LARGE)
        await shared.keep("response", "ann", StoreRecord("2", "1", b"two"), LARGE)
        two = shared._keys.names("response", "record", "ann", "2")[0]
        await shared._store._client.execute_command("HSET", two, "before", "")

        assert await shared.find("response", "ann", "2", LARGE) == []


async def test_circle_that_somebody_made_ends(store: Store) -> None:
    async with open_store(store.url, prefix="rf:") as shared:
        await shared.keep("response", "ann", StoreRecord("1", None, b"one"), LARGE)
        one = shared._keys.names("response", "record", "ann", "1")[0]
        await shared._store._client.execute_command("HSET", one, "before", one)

        assert await shared.find("response", "ann", "1", LARGE) == []


async def test_what_is_too_large_or_too_much_is_dropped_and_counted(store: Store) -> None:
    metrics = Metrics()
    small = StoreBounds(1000, 500, 60.0)
    async with open_store(store.url, metrics, prefix="rg:") as shared:
        await shared.keep("response", "ann", StoreRecord("1", None, bytes(501)), small)
        await shared.keep(
            "response", "ann", StoreRecord("2", None, bytes(5 * 1024 * 1024)), StoreBounds(10**9, 10**9, 60.0)
        )
        many = [
            shared.keep(
                "response", "ann", StoreRecord(f"m{n}", None, bytes(4_000_000)), StoreBounds(10**9, 10**9, 60.0)
            )
            for n in range(12)
        ]
        for each in many:
            await each

    assert asked(metrics, "response", "dropped") >= 2 + 12 - 33_554_432 // 4_000_000 - 1


async def test_store_that_is_away_keeps_nothing_and_is_not_waited_for() -> None:
    metrics = Metrics()
    async with open_store("redis://127.0.0.1:1", metrics, up=False) as shared:
        with anyio.fail_after(5):
            await shared.keep("response", "ann", StoreRecord("1", None, b""), LARGE)
            assert await shared.find("response", "ann", "1", LARGE) == []
            assert await shared.drop("response", "ann", "1") is None

    assert asked(metrics, "response", "away") == 3


async def test_work_that_does_not_end_holds_nobody_up_at_the_end(store: Store) -> None:
    with anyio.fail_after(30):
        async with open_store(store.url, prefix="ri:") as shared:
            endless = shared.run_in_background(anyio.sleep_forever())
        await asyncio.wait({endless})

    assert endless.cancelled()


async def test_writes_that_are_on_their_way_are_finished_at_the_end(store: Store) -> None:
    async with open_store(store.url, prefix="rh:") as shared:
        shared.keep("response", "ann", StoreRecord("1", None, b"one"), LARGE)
    async with open_store(store.url, prefix="rh:") as shared:
        assert len(await shared.find("response", "ann", "1", LARGE)) == 1
