"""One sign-in at several replicas that share a store: renewed once, whatever dies or is away, and nobody else's."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.observe.logs import get_logger
from gateway.proxy.transport.http.client import HttpClient, open_http_client
from gateway.proxy.transport.oauth import grants, token_renewal
from gateway.proxy.transport.oauth.discovery import fetcher_for
from gateway.proxy.transport.oauth.grants import OPERATOR, Grant, GrantKey, GrantStore
from gateway.proxy.transport.oauth.sign_in import begin_sign_in, finish_sign_in
from gateway.proxy.transport.oauth.token_renewal import SignedIn
from gateway.proxy.transport.transport_interface import NoAnswer
from gateway.shared.shared_store import SharedStore
from tests.standins.redis_in_memory import Memory
from tests.standins.shared import SECRET, Direct, shared_in_memory

from .standin_authorization import StandInAuthorization, standin_authorization

pytestmark = pytest.mark.anyio
REDIRECT = "http://127.0.0.1:7777/callback"
LONGEST = 120.0
"""Seconds: what waits for the store to come back takes long on a busy machine."""


@dataclass
class Replica:
    """A host with a folder of its own, and its way to the store."""

    way: Direct
    shared: SharedStore
    store: GrantStore
    config: UpstreamConfig
    signed_in: SignedIn

    @property
    def key(self) -> GrantKey:
        return GrantKey(OPERATOR, self.config.name, self.config.url or "")

    async def token(self) -> str | None:
        """What the next request would carry, after the second in which nothing is looked up again."""
        self.signed_in._looked = self.signed_in._asked = -10.0
        return (await self.signed_in.headers()).get("authorization")


@dataclass
class World:
    standin: StandInAuthorization
    replicas: list[Replica]
    client: HttpClient
    memory: Memory

    async def sign_in(self, replica: Replica) -> Grant:
        flow = await begin_sign_in(replica.config, self.client, REDIRECT, replica.store.read(replica.key))
        code = flow.read_redirect(self.standin.approve(flow.address()))
        grant = await finish_sign_in(flow, fetcher_for(replica.config, self.client), code)
        async with replica.store.alone(replica.key):
            await replica.store.replace(replica.key, grant)
        kept = replica.store.read(replica.key)
        assert kept is not None
        return kept

    async def renewed_late(self) -> Grant:
        """A sign-in that every replica knows and whose token has expired."""
        grant = await self.sign_in(self.replicas[0])
        stale = replace(grant, expires=0.0, version=grant.version + 1)
        self.replicas[0].store.write(self.replicas[0].key, stale)
        for each in self.replicas:
            await each.store.newest(each.key, stale)
            each.store.write(each.key, stale)
        return stale

    @property
    def refreshes(self) -> int:
        return sum(form["grant_type"] == "refresh_token" for form in self.standin.forms)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[World]:
    monkeypatch.setattr(token_renewal, "FETCH_TIME", LONGEST)
    memory = Memory()
    async with AsyncExitStack() as stack:
        standin = await stack.enter_async_context(standin_authorization())
        client = await stack.enter_async_context(open_http_client())
        config, replicas = UpstreamConfig("web", url=standin.url), list[Replica]()
        for name in "abc":
            way = Direct(memory)
            shared = await stack.enter_async_context(shared_in_memory(way, SECRET))
            store = GrantStore(tmp_path / name, shared)
            signed_in = SignedIn(config, OPERATOR, fetcher_for(config, client), store, get_logger("test"))
            replicas.append(Replica(way, shared, store, config, signed_in))
        yield World(standin, replicas, client, memory)


async def until_up(*replicas: Replica) -> None:
    """Wait until they have noticed that the store answers again."""
    with anyio.fail_after(LONGEST):
        while not all(each.shared.status.up for each in replicas):  # noqa: ASYNC110 - it says nothing
            await anyio.sleep(0.05)


async def until_missed(*replicas: Replica) -> None:
    """Have them notice that the store is away, and find that again."""
    with anyio.fail_after(LONGEST):
        for each in replicas:
            await each.signed_in.look_up()
            before = each.way.refused
            while each.way.refused == before:  # noqa: ASYNC110 - as above
                await anyio.sleep(0.05)


async def until_waiting(replica: Replica) -> None:
    """Wait until it has looked several times whether another one has renewed the sign-in."""
    before = replica.way.asked
    while replica.way.asked < before + 5:  # noqa: ASYNC110 - as above
        await anyio.sleep(0.05)


async def test_sign_in_at_one_replica_is_used_by_all(world):
    grant = await world.sign_in(world.replicas[1])
    config = replace(world.replicas[0].config, auth=None)

    assert world.replicas[0].store.state(world.replicas[0].key) is None
    assert await world.replicas[0].signed_in.refused(401, f'Bearer resource_metadata="{config.url}"', {})
    for each in world.replicas[:2]:
        assert await each.token() == f"Bearer {grant.access}"


async def test_expired_token_is_renewed_once_for_all_replicas(world):
    stale = await world.renewed_late()
    sent = await asyncio.gather(*(each.signed_in.headers() for each in world.replicas for _ in range(25)))

    (token,) = {headers["authorization"] for headers in sent}
    assert token != f"Bearer {stale.access}"
    assert world.refreshes == 1


async def test_replicas_take_turns_with_each_refresh_token(world):
    await world.renewed_late()
    for _ in range(12):
        for each in world.replicas:
            newest = await each.store.known(each.key)
            each.store.write(each.key, replace(newest, expires=0.0, version=newest.version + 1))
            await each.token()
    assert world.refreshes == 12 * len(world.replicas)


async def test_token_that_is_still_valid_is_used_while_another_replica_renews_it(world):
    grant = await world.sign_in(world.replicas[0])
    first, second = world.replicas[:2]
    soon = replace(grant, expires=first.signed_in._clock() + 20, version=grant.version + 1)
    first.store.write(first.key, soon)
    assert await second.shared.acquire(OPERATOR, f"web {world.standin.url}", 60.0)
    first.signed_in._keep(soon, first.store.state(first.key))
    first.signed_in._due = 0.0

    with anyio.fail_after(LONGEST):
        assert await first.token() == f"Bearer {grant.access}"
    assert world.refreshes == 0


async def test_replica_that_dies_with_the_lease_delays_the_others_until_it_ends(world):
    stale = await world.renewed_late()
    dead, alive = world.replicas[:2]
    assert await dead.shared.acquire(OPERATOR, f"web {world.standin.url}", 0.5)

    with anyio.fail_after(LONGEST):
        token = await alive.token()
    assert token not in (None, f"Bearer {stale.access}")
    assert world.refreshes == 1


async def test_nothing_is_renewed_without_the_store_and_everything_after_it_is_back(world):
    stale = await world.renewed_late()
    for each in world.replicas:
        each.way.is_there = False
    for each in world.replicas:
        with pytest.raises(NoAnswer, match="share does not answer"):
            await each.token()
    assert world.refreshes == 0
    for each in world.replicas:
        each.way.is_there = True
    await until_up(*world.replicas)
    for each in world.replicas:
        each.signed_in._renewed = -10.0
        assert await each.token() not in (None, f"Bearer {stale.access}")
    assert world.refreshes == 1


async def test_refresh_token_that_has_outlived_a_renewal_needs_no_store(world):
    world.standin.rotates = False
    await world.renewed_late()
    first, second = world.replicas[:2]
    await first.token()
    await second.token()
    for each in (first, second):
        stored = each.store.read(each.key)
        each.store.write(each.key, replace(stored, expires=0.0, version=stored.version + 1))
        each.way.is_there = False

    alone = {await first.token(), await second.token()}
    assert (len(alone), world.refreshes) == (2, 3)
    first.way.is_there = second.way.is_there = True
    await until_up(first, second)
    # Each tells the store.
    await first.token()
    await second.token()
    (shared,) = {await first.token(), await second.token()}
    assert shared in alone
    assert world.refreshes == 3


async def test_refresh_token_that_was_replaced_once_needs_the_store(world):
    world.standin.rotates = False
    await world.renewed_late()
    first = world.replicas[0]
    await first.token()
    world.standin.rotates = True
    for is_there in (True, False):
        first.way.is_there = is_there
        stored = first.store.read(first.key)
        first.store.write(first.key, replace(stored, expires=0.0, version=stored.version + 1))
        if is_there:
            await first.token()
    with pytest.raises(NoAnswer, match="share does not answer"):
        await first.token()
    assert world.refreshes == 2


async def test_valid_token_is_used_while_the_store_is_away(world):
    grant = await world.sign_in(world.replicas[0])
    world.replicas[0].way.is_there = False

    assert await world.replicas[0].token() == f"Bearer {grant.access}"


async def test_tokens_that_the_store_did_not_take_are_offered_again_before_the_lease_ends(world):
    await world.renewed_late()
    first, second = world.replicas[:2]

    async def cut(asked, _reply):
        if asked.target == "/token":
            first.way.is_there = False
        return False

    world.standin.before = cut
    mine = await first.token()
    first.way.is_there, world.standin.before = True, None
    with anyio.fail_after(LONGEST):
        theirs = await second.token()

    assert mine == theirs
    assert world.refreshes == 1


async def test_sign_out_at_one_replica_ends_it_at_all(world):
    await world.sign_in(world.replicas[0])
    for each in world.replicas:
        await each.signed_in.look_up()
    gone = world.replicas[2]
    async with gone.store.alone(gone.key):
        await gone.store.replace(gone.key, None)

    assert await gone.store.known(gone.key) is None
    for each in world.replicas:
        assert await each.token() is None
        assert each.signed_in.current() is None


async def test_renewal_that_had_begun_does_not_bring_back_what_was_ended(world):
    await world.renewed_late()
    slow, ending = world.replicas[:2]
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def wait(request, _reply):
        if request.target == "/token":
            asked.set()
            await go_on.wait()
        return False

    async def end():
        async with ending.store.alone(ending.key):
            await ending.store.replace(ending.key, None)

    async def renew():
        with suppress(NoAnswer):
            await slow.token()

    world.standin.before = wait
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(renew)
        await asked.wait()
        tasks.start_soon(end)
        await anyio.sleep(0.3)
        go_on.set()

    for each in (slow, ending):
        assert await each.token() is None


async def test_next_sign_in_takes_the_place_of_the_one_before_at_all_replicas(world):
    await world.sign_in(world.replicas[0])
    old = world.replicas[0].store.read(world.replicas[0].key)
    # Its clock is far ahead.
    ahead = replace(old, version=old.version + 10**12)
    world.replicas[0].store.write(world.replicas[0].key, ahead)
    await world.replicas[0].signed_in.look_up()
    new = await world.sign_in(world.replicas[1])

    for each in world.replicas[:2]:
        assert await each.token() == f"Bearer {new.access}"


async def test_older_or_foreign_value_in_the_store_changes_nothing(world):
    grant = await world.sign_in(world.replicas[0])
    first = world.replicas[0]
    (name,) = [key for key in world.memory.values if b"sign-in" in key]
    old = dict(world.memory.values[name])
    newer = replace(grant, access="newer", version=grant.version + 5)
    first.store.write(first.key, newer)
    await first.signed_in.look_up()
    world.memory.values[name] = {**old, b"version": b"9" * 15}
    assert await first.token() == "Bearer newer"
    other = GrantKey("key:else", first.config.name, first.config.url or "")
    world.memory.values[name] = {
        b"version": b"9" * 15,
        b"value": first.shared._keys.seal("sign-in", "key:else", name, grant.to_bytes()),
    }
    assert await first.token() == "Bearer newer"
    assert await first.store.known(other) is None


@pytest.mark.parametrize("at", [0, 1, 12, 40, -17, -1])
async def test_sealed_sign_in_that_was_changed_in_the_store_is_as_if_it_were_not_there(world, at):
    grant = await world.sign_in(world.replicas[0])
    (name,) = [key for key in world.memory.values if b"sign-in" in key]
    sealed = bytearray(world.memory.values[name][b"value"])
    sealed[at] ^= 1
    world.memory.values[name][b"value"] = bytes(sealed)

    assert await world.replicas[1].token() is None
    assert await world.replicas[0].token() == f"Bearer {grant.access}"


async def test_store_that_lost_everything_is_filled_again_by_who_is_at_work(world):
    await world.renewed_late()
    working, resting = world.replicas[:2]
    token = await working.token()
    world.memory.values.clear()

    assert [await working.token(), await resting.token()] == [token, token]
    assert world.refreshes == 1


async def test_store_that_loses_its_leases_during_a_renewal_does_not_let_another_replica_renew(world):
    await world.renewed_late()
    first, second = world.replicas[:2]
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def wait(request, _reply):
        if request.target == "/token":
            asked.set()
            await go_on.wait()
        return False

    async def restart_store():
        await asked.wait()
        for each in world.replicas:
            each.way.is_there = False
        await until_missed(*world.replicas)
        world.memory.values.clear()
        for each in world.replicas:
            each.way.is_there = True
        await until_up(*world.replicas)

    tokens = list[str | None]()

    async def use(replica):
        tokens.append(await replica.token())

    world.standin.before = wait
    with anyio.fail_after(LONGEST):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(use, first)
            await restart_store()
            tasks.start_soon(use, second)
            await until_waiting(second)
            go_on.set()

    assert len(set(tokens)) == 1
    assert world.refreshes == 1


async def test_tokens_that_a_long_outage_kept_from_the_store_are_not_renewed_by_another_replica(world):
    await world.renewed_late()
    first, second = world.replicas[:2]

    async def cut(asked, _reply):
        if asked.target == "/token":
            for each in world.replicas:
                each.way.is_there = False
        return False

    world.standin.before = cut
    mine = await first.token()
    world.memory.values = {key: value for key, value in world.memory.values.items() if b"lease" not in key}
    await until_missed(second)
    second.way.is_there, world.standin.before = True, None
    await until_up(second)
    with anyio.fail_after(LONGEST):
        async with anyio.create_task_group() as tasks:

            async def use():
                assert await second.token() == mine

            tasks.start_soon(use)
            await until_waiting(second)
            first.way.is_there = True

    assert world.refreshes == 1


async def test_lease_outlives_a_renewal():
    assert grants._LEASE > 10.0


async def test_other_replicas_are_asked_for_a_newer_one_no_more_than_once_a_second(world, monkeypatch):
    monkeypatch.setattr(token_renewal, "_LOOK", 3600.0)
    await world.sign_in(world.replicas[0])
    replica, asked = world.replicas[1], list[GrantKey]()
    await replica.signed_in.refused(401, f'Bearer resource_metadata="{replica.config.url}"', {})
    newest = replica.store.newest

    async def note(key: GrantKey, mine: Grant | None) -> Grant | None:
        asked.append(key)
        return await newest(key, mine)

    monkeypatch.setattr(replica.store, "newest", note)
    replica.signed_in._looked = replica.signed_in._asked = -7200.0
    sent = [await replica.signed_in.headers() for _ in range(3)]

    assert sent[0] == sent[1] == sent[2]
    assert "authorization" in sent[0]
    assert len(asked) == 1
