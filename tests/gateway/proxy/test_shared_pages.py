"""A browser that signs a user in at one replica and comes back to another, through the store that they share."""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gateway.config.gateway_config import GatewayConfig
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Nobody, Principal
from gateway.proxy.proxy import Proxy
from gateway.proxy.transport.oauth import user_sign_ins
from gateway.proxy.transport.oauth.code_flow import NotOurs
from gateway.proxy.transport.oauth.grants import Grant, GrantKey, GrantStore
from gateway.proxy.transport.oauth.user_sign_ins import UserSignIns, state_of
from gateway.proxy.transport.transport_interface import NoAnswer
from gateway.shared import StoreBounds
from tests.gateway.proxy.standin_accounts import Accounts, standin_accounts
from tests.standins.redis_in_memory import Memory
from tests.standins.shared import SECRET, Direct, shared_in_memory

pytestmark = pytest.mark.anyio


@dataclass
class Replica:
    """A gateway on a host of its own, and its way to the store."""

    way: Direct
    store: GrantStore
    sign_ins: UserSignIns


@dataclass
class World:
    """Two replicas, and one that has another secret."""

    accounts: Accounts
    memory: Memory
    one: Replica
    two: Replica
    stranger: Replica

    async def begin(self, at: Replica, owner: str, person: str) -> tuple[str, dict[str, str]]:
        """The query with which the browser comes back, and its cookies."""
        begun = await at.sign_ins.begin(self.accounts.config(), owner)
        self.accounts.person = person
        return self.accounts.approve(begun.address).partition("?")[2], {begun.cookie: begun.secret}

    async def finish(self, at: Replica, query: str, cookies: Mapping[str, str]) -> tuple[str, str]:
        return await at.sign_ins.finish(query, cookies, [self.accounts.config()])

    def kept(self, at: Replica, owner: str) -> Grant | None:
        return at.store.read(GrantKey(owner, "docs", self.accounts.url))

    def sealed(self) -> set[bytes]:
        """The keys of what has begun, in the store."""
        return {key for key, value in self.memory.values.items() if b"pending:" in key and type(value) is dict}


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[World]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    memory, made = Memory(), list[Replica]()
    async with AsyncExitStack() as stack:
        accounts = await stack.enter_async_context(standin_accounts())
        for name, secret in (("one", SECRET), ("two", SECRET), ("stranger", os.urandom(32))):
            way = Direct(memory)
            store = GrantStore(tmp_path / name, await stack.enter_async_context(shared_in_memory(way, secret)))
            made.append(Replica(way, store, UserSignIns(store)))
        yield World(accounts, memory, *made)


async def test_browser_may_come_back_to_another_replica(world):
    ann = await world.begin(world.one, "key:a", "ann")
    bob = await world.begin(world.two, "key:b", "bob")

    assert await world.finish(world.two, *ann) == ("docs", "key:a")
    assert await world.finish(world.one, *bob) == ("docs", "key:b")
    for owner, person in (("key:a", "ann"), ("key:b", "bob")):
        for at in (world.one, world.two):
            grant = await at.store.known(GrantKey(owner, "docs", world.accounts.url))
            assert grant is not None
            assert world.accounts.whose[grant.access] == person


async def test_redirect_is_used_once_by_whichever_replica_is_first(world):
    query, cookies = await world.begin(world.one, "key:a", "ann")
    ends = await asyncio.gather(
        *(world.finish(at, query, cookies) for at in (world.one, world.two) * 5), return_exceptions=True
    )

    assert [end for end in ends if not isinstance(end, NotOurs)] == [("docs", "key:a")]
    assert len(world.accounts.forms) == 1
    for at in (world.one, world.two):
        with pytest.raises(NotOurs):
            await world.finish(at, query, cookies)


async def test_browser_of_another_principal_finishes_nothing(world):
    """Bob has Ann's browser finish what he began: hers may bring any cookie, but not that of his browser."""
    query, bobs = await world.begin(world.one, "key:b", "ann")
    _, anns = await world.begin(world.two, "key:a", "ann")
    (name,), (hers,) = bobs, anns.values()
    whose = bobs[name].rpartition(".")[2]
    tries = [{}, anns, {name: ""}, {name: hers}, {name: f"{hers.rpartition('.')[0]}.{whose}"}, {name: f".{whose}"}]

    for cookies in tries:
        for at in (world.one, world.two):
            with pytest.raises(NotOurs):
                await world.finish(at, query, cookies)
    assert world.accounts.forms == []
    assert world.kept(world.one, "key:b") is world.kept(world.two, "key:b") is None
    assert await world.finish(world.two, query, bobs) == ("docs", "key:b")


async def test_replica_with_another_secret_finds_and_opens_nothing(world):
    query, cookies = await world.begin(world.one, "key:a", "ann")
    with pytest.raises(NotOurs):
        await world.finish(world.stranger, query, cookies)

    # Whoever can write to the store puts the sealed value where that replica looks.
    (name,) = world.sealed()
    theirs, stolen = await world.begin(world.stranger, "key:a", "ann")
    (place,) = world.sealed() - {name}
    world.memory.values[place] = dict(world.memory.values[name])
    for query_of, cookies_of in ((query, cookies), (theirs, stolen)):
        with pytest.raises(NotOurs):
            await world.finish(world.stranger, query_of, cookies_of)
    assert world.accounts.forms == []
    assert await world.finish(world.one, query, cookies) == ("docs", "key:a")


async def test_store_reveals_nothing_of_what_has_begun(world):
    query, cookies = await world.begin(world.one, "key:a", "ann")
    stored = repr([*world.memory.values.items()])

    for secret in (*cookies.values(), state_of(query), "key:a", world.accounts.url, world.accounts.origin):
        assert secret not in stored


async def test_sign_in_that_has_begun_ends_after_a_while(world, monkeypatch):
    query, cookies = await world.begin(world.one, "key:a", "ann")
    places = [key for key in world.memory.values if b"pending:" in key]
    assert all(world.memory.ends[key] <= world.memory.clock() + user_sign_ins.LIFE + 60 for key in places)
    monkeypatch.setattr(user_sign_ins, "LIFE", -1)

    with pytest.raises(NotOurs):
        await world.finish(world.two, query, cookies)


async def test_sign_ins_that_one_owner_has_begun_are_bounded_at_all_replicas_together(world, monkeypatch):
    monkeypatch.setattr(user_sign_ins, "_BOUNDS", StoreBounds(10**6, 5000, user_sign_ins.LIFE))
    bob = await world.begin(world.one, "key:b", "bob")
    begun = [await world.begin(at, "key:a", "ann") for _ in range(4) for at in (world.one, world.two)]

    assert 2 < len(world.sealed()) < 8
    with pytest.raises(NotOurs):
        await world.finish(world.two, *begun[0])
    assert await world.finish(world.one, *begun[-1]) == ("docs", "key:a")
    assert await world.finish(world.two, *bob) == ("docs", "key:b")


async def test_without_the_store_a_browser_comes_back_to_the_replica_that_it_left(world):
    world.one.way.is_there = False
    query, cookies = await world.begin(world.one, "key:a", "ann")

    with pytest.raises(NotOurs):
        await world.finish(world.two, query, cookies)
    assert await world.finish(world.one, query, cookies) == ("docs", "key:a")
    with pytest.raises(NoAnswer):
        await world.finish(world.one, query, cookies)


async def test_sign_in_that_the_store_took_late_is_used_once(world, monkeypatch):
    async def late(*_: object, **__: object) -> list[object]:
        return []

    with monkeypatch.context() as slow:
        slow.setattr(world.one.store.shared, "find", late)
        query, cookies = await world.begin(world.one, "key:a", "ann")
    assert world.sealed()

    assert await world.finish(world.one, query, cookies) == ("docs", "key:a")
    for at in (world.one, world.two):
        with pytest.raises(NotOurs):
            await world.finish(at, query, cookies)
    assert world.sealed() == set()


async def test_callback_without_the_cookie_asks_the_store_nothing(world):
    query, cookies = await world.begin(world.one, "key:a", "ann")
    asked = world.memory.command
    with pytest.MonkeyPatch.context() as watched:
        watched.setattr(world.memory, "command", lambda *_: pytest.fail("the store was asked"))
        with pytest.raises(NotOurs):
            await world.finish(world.two, query, {})
    assert world.memory.command == asked
    assert await world.finish(world.two, query, cookies) == ("docs", "key:a")


async def test_store_that_is_away_when_the_browser_comes_back_costs_no_sign_in(world):
    query, cookies = await world.begin(world.one, "key:a", "ann")
    world.two.way.is_there = False
    with pytest.raises(NoAnswer, match="store that the replicas share does not answer"):
        await world.finish(world.two, query, cookies)

    assert await world.finish(world.one, query, cookies) == ("docs", "key:a")


async def test_moved_server_is_not_signed_in_to(world):
    query, cookies = await world.begin(world.one, "key:a", "ann")
    moved = replace(world.accounts.config(), url="https://moved.example/mcp")

    with pytest.raises(NotOurs):
        await world.two.sign_ins.finish(query, cookies, [moved])
    assert world.accounts.forms == []


async def test_user_who_signs_in_as_somebody_else_at_one_replica_is_that_at_all(world, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.oauth.token_renewal._LOOK", 0.0)
    config = GatewayConfig(upstreams=(world.accounts.config(),), prefix="always")
    caller = Nobody(modern=False, principal=Principal("ann", owner="key:a"))
    asked = {"name": "docs__who", "arguments": {}}
    async with (
        Proxy(config, Metrics(), grants=world.one.store) as one,
        Proxy(config, Metrics(), grants=world.two.store) as two,
    ):
        found = list[str]()
        for at, person in ((world.one, "ann"), (world.two, "amy"), (world.one, "anna")):
            await world.finish(at, *await world.begin(at, "key:a", person))
            for proxy in (one, two, one):
                outcome = await proxy.call_tool(asked, caller)
                found.append(outcome.result["content"][0]["text"].strip())

    assert found == [*["ann"] * 3, *["amy"] * 3, *["anna"] * 3]
    assert world.accounts.mixed == []
