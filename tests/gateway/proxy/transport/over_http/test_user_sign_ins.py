"""Sign-ins of users that have begun: who can finish them, until when, and how many one owner may begin."""

import os
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.config.gateway_config import SignInConfig, UpstreamConfig
from gateway.proxy.transport.oauth.code_flow import Client, CodeFlow, NotOurs
from gateway.proxy.transport.oauth.discovery import AuthorizationServer
from gateway.proxy.transport.oauth.grants import REGISTRATION, Grant, GrantKey, GrantStore
from gateway.proxy.transport.oauth.token_endpoint import Refused
from gateway.proxy.transport.oauth.user_sign_ins import (
    LIFE,
    Begun,
    PendingSignIns,
    UserSignIns,
    keep_sign_in,
    state_of,
)
from gateway.proxy.transport.transport_interface import NoAnswer
from tests.standins.redis_in_memory import Memory
from tests.standins.shared import SECRET, Direct, shared_in_memory

from .standin_authorization import StandInAuthorization, standin_authorization

pytestmark = pytest.mark.anyio
BACK = "https://gate.example/signin/back"
SERVER = AuthorizationServer("https://as.example", "https://as.example/t", scopes=("a", "b"))
KEY = GrantKey("key:ann", "web", "https://tools.example/mcp")


def begun(owner: str = KEY.owner, redirect: str = BACK) -> Begun:
    return Begun(replace(KEY, owner=owner), CodeFlow(SERVER, Client("me"), redirect, "https://tools.example", "a"))


def cookies_of(one: Begun) -> dict[str, str]:
    return {one.cookie: one.value}


@pytest.fixture
def store(tmp_path: Path) -> GrantStore:
    store = GrantStore(tmp_path / "sign-ins")
    store.digest("x")
    return store


class Clock:
    """The time that a test sets, and at which files are written."""

    now = 10_000.0

    def __call__(self, *_: object) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(PendingSignIns, "_now", clock)
    return clock


def waiting(store: GrantStore) -> list[Path]:
    return sorted(store.folder.glob("begun-*"))


class TestPending:
    async def test_sign_in_is_finished_once_and_by_any_process_of_the_machine(self, store):
        one = begun()
        await PendingSignIns(store).keep(one)
        pending = PendingSignIns(GrantStore(store.folder))
        taken = [await pending.take(one.flow.state, cookies_of(one)) for _ in range(2)]

        assert taken == [one, None]
        assert waiting(store) == []

    async def test_only_the_browser_that_began_it_can_finish_it(self, store):
        one, other = begun(), begun()
        pending = PendingSignIns(store)
        await pending.keep(one)
        for cookies in ({}, cookies_of(other), {one.cookie: other.value}, {one.cookie: "\udcff"}):
            assert await pending.take(one.flow.state, cookies) is None
        assert await pending.take(other.flow.state, cookies_of(one)) is None

        assert await pending.take(one.flow.state, cookies_of(one)) == one

    def test_cookie_is_of_this_host_alone_where_that_can_be(self):
        secure, plain = begun(), begun(redirect="http://127.0.0.1:8600/signin/back")

        assert secure.cookie.startswith("__Host-codec-sign-in-")
        assert plain.cookie.startswith("codec-sign-in-")
        assert len(plain.cookie) == len("codec-sign-in-") + 16
        assert secure.secret not in repr(secure)
        assert begun().value.partition(".")[2] == secure.value.partition(".")[2] != begun("key:bob").value[-32:]

    @pytest.mark.parametrize(("seconds", "in_time"), [(LIFE, True), (LIFE + 1, False)])
    async def test_person_has_a_quarter_of_an_hour(self, store, clock, seconds, in_time):
        one = begun()
        pending = PendingSignIns(store)
        await pending.keep(one)
        clock.now += seconds

        assert await pending.take(one.flow.state, cookies_of(one)) == (one if in_time else None)
        assert LIFE == 15 * 60

    async def test_one_owner_may_have_begun_eight_and_one_more_ends_the_oldest(self, store, clock):
        pending, other = PendingSignIns(store), begun("key:bob")
        await pending.keep(other)
        all_of_one = [begun() for _ in range(10)]
        for one in all_of_one:
            await pending.keep(one)
            clock.now += 1
            for path in waiting(store):
                if path.stat().st_mtime > 10_000_000:
                    os.utime(path, (clock.now, clock.now))

        left = [await pending.take(one.flow.state, cookies_of(one)) for one in all_of_one]
        assert [one is not None for one in left] == [False] * 2 + [True] * 8
        assert await pending.take(other.flow.state, cookies_of(other)) == other

    @pytest.mark.parametrize(("seconds", "stays"), [(LIFE, True), (LIFE + 1, False)])
    async def test_those_that_nobody_finished_in_time_are_swept_away_by_the_next(self, store, clock, seconds, stays):
        pending, old = PendingSignIns(store), begun("key:bob")
        await pending.keep(old)
        (path,) = waiting(store)
        os.utime(path, (clock.now, clock.now))
        clock.now += seconds
        await pending.keep(begun())

        assert path.exists() is stays
        assert len(waiting(store)) == 1 + stays

    async def test_file_that_holds_something_else_belongs_to_no_sign_in(self, store):
        one = begun()
        pending = PendingSignIns(store)
        await pending.keep(one)
        (path,) = waiting(store)
        path.write_bytes(b"what")

        assert await pending.take(one.flow.state, cookies_of(one)) is None


class Replicas:
    """Two replicas, each with a folder of its own, and one store."""

    def __init__(self, stores: list[GrantStore], ways: list[Direct]) -> None:
        self.stores, self.ways = stores, ways
        self.pending = [PendingSignIns(store) for store in stores]


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncGenerator[Replicas]:
    memory = Memory()
    ways = [Direct(memory), Direct(memory)]
    async with shared_in_memory(ways[0], SECRET) as one, shared_in_memory(ways[1], SECRET) as two:
        stores = [GrantStore(tmp_path / str(number), shared) for number, shared in enumerate((one, two))]
        for each in stores:
            each.digest("x")
        yield Replicas(stores, ways)


class TestSharedPending:
    @pytest.mark.parametrize("redirect", [BACK, "http://127.0.0.1:8600/signin/back"])
    async def test_sign_in_that_began_at_one_replica_is_finished_once_at_another(self, replicas, redirect):
        one = begun(redirect=redirect)
        await replicas.pending[0].keep(one)
        without = await replicas.pending[1].take(one.flow.state, {})
        wrong = await replicas.pending[1].take(one.flow.state, {one.cookie: f"x{one.value}"})
        taken = [await replicas.pending[number].take(one.flow.state, cookies_of(one)) for number in (1, 0, 1)]

        assert (without, wrong) == (None, None)
        assert taken == [one, None, None]
        assert waiting(replicas.stores[0]) == []

    async def test_owner_may_have_begun_many_in_the_store(self, replicas):
        many = [begun() for _ in range(20)]
        for one in many:
            await replicas.pending[0].keep(one)
        taken = [await replicas.pending[1].take(one.flow.state, cookies_of(one)) for one in many]

        assert taken == many

    async def test_sign_in_that_the_store_does_not_take_is_kept_on_the_machine(self, replicas):
        one = begun()
        replicas.ways[0].is_there = False
        await replicas.pending[0].keep(one)
        replicas.ways[0].is_there = True

        assert await replicas.pending[0].take(one.flow.state, cookies_of(one)) == one

    async def test_store_that_is_away_is_asked_again_later(self, replicas):
        one = begun()
        await replicas.pending[0].keep(one)
        replicas.ways[1].is_there = False
        with pytest.raises(NoAnswer, match="does not answer: reload this page in a moment"):
            await replicas.pending[1].take(one.flow.state, cookies_of(one))
        assert await replicas.pending[1].take(one.flow.state, {}) is None
        replicas.ways[1].is_there = True

        assert await replicas.pending[0].take(one.flow.state, cookies_of(one)) == one

    async def test_sign_in_that_got_into_both_is_finished_once(self, replicas):
        one = begun()
        await replicas.pending[0].keep(one)
        await PendingSignIns(GrantStore(replicas.stores[0].folder)).keep(one)
        taken = [await replicas.pending[number].take(one.flow.state, cookies_of(one)) for number in (0, 1, 0)]

        assert taken == [one, None, None]


@pytest.mark.parametrize(
    ("query", "state"),
    [
        ("state=s&code=c", "s"),
        ("code=c", ""),
        ("state=a&state=b", ""),
        ("", ""),
        ("state=s&" + "&".join("a=1" for _ in range(63)), "s"),
        ("state=s&" + "&".join("a=1" for _ in range(64)), ""),
    ],
)
def test_state_is_read_where_there_is_exactly_one(query, state):
    assert state_of(query) == state


@pytest.fixture
async def standin() -> AsyncGenerator[StandInAuthorization]:
    async with standin_authorization() as made:
        yield made


def upstream(standin: StandInAuthorization, **more: Any) -> UpstreamConfig:
    return UpstreamConfig("web", url=standin.url, auth=SignInConfig(redirect_url=BACK, per_user=True, **more))


def query_of(address: str) -> str:
    return address.partition("?")[2]


class TestSigningIn:
    async def test_user_signs_in_at_an_address_that_only_their_browser_can_come_back_from(self, store, standin):
        config = upstream(standin)
        sign_ins = UserSignIns(store)
        beginning = await sign_ins.begin(config, "key:ann")
        query = query_of(standin.approve(beginning.address))
        cookies = {beginning.cookie: beginning.secret}
        with pytest.raises(NotOurs):
            await sign_ins.finish(query, {}, [config])
        finished = await sign_ins.finish(query, cookies, [config])
        with pytest.raises(NotOurs):
            await sign_ins.finish(query, cookies, [config])
        kept = store.read(GrantKey("key:ann", "web", standin.url))

        assert finished == ("web", "key:ann")
        assert kept is not None
        assert kept.access in standin.valid
        assert beginning.secret not in repr(beginning)

    @pytest.mark.parametrize(
        "changes", [{"name": "other"}, {"url": "https://moved.example"}, {"auth": SignInConfig()}, None]
    )
    async def test_server_that_is_gone_or_is_another_one_now_is_not_signed_in_to(self, store, standin, changes):
        config = upstream(standin)
        sign_ins = UserSignIns(store)
        beginning = await sign_ins.begin(config, "key:ann")
        query = query_of(standin.approve(beginning.address))
        now = [] if changes is None else [replace(config, **changes)]
        with pytest.raises(NotOurs):
            await sign_ins.finish(query, {beginning.cookie: beginning.secret}, now)

        assert standin.forms == []

    async def test_gateway_registers_once_for_all_users_of_a_server(self, store, standin):
        config = upstream(standin)
        for owner in ("key:ann", "key:bob", "key:ann"):
            beginning = await UserSignIns(store).begin(config, owner)
            query = query_of(standin.approve(beginning.address))
            await UserSignIns(store).finish(query, {beginning.cookie: beginning.secret}, [config])

        assert len(standin.targets("/register")) == 1
        registered = store.read(GrantKey(REGISTRATION, "web", standin.url))
        assert registered is not None
        assert (registered.client.id, registered.access) == ("client-0", None)

    async def test_client_that_another_user_had_to_register_anew_is_used_by_those_before(self, store, standin):
        config = upstream(standin)
        key = GrantKey("key:ann", "web", standin.url)
        await UserSignIns(store).begin(config, "key:bob")
        registered = store.read(replace(key, owner=REGISTRATION))
        assert registered is not None
        old = replace(registered, client=replace(registered.client, id="old"), missing="write")
        store.write(key, old)
        renewed = await UserSignIns(store).begin(config, "key:ann")
        store.write(key, replace(old, issuer="https://old.example"))
        elsewhere = await UserSignIns(store).begin(config, "key:ann")

        assert "client_id=client-0&" in renewed.address
        assert "write" in renewed.address
        assert "client_id=client-1&" in elsewhere.address
        assert len(standin.targets("/register")) == 2

    async def test_client_of_the_settings_is_kept_by_nobody(self, store, standin):
        config = upstream(standin, client_id="mine", issuer=standin.origin)
        await UserSignIns(store).begin(config, "key:ann")

        assert store.read(GrantKey(REGISTRATION, "web", standin.url)) is None


class Fetcher:
    """A token endpoint with one answer."""

    def __init__(self, status: int, document: dict[str, Any]) -> None:
        self._answer = status, document

    async def post_form(self, *_: object) -> Any:
        return self._answer


GRANT = Grant(
    "https://as.example", "https://as.example/t", None, Client("me", redirect_uri=BACK), "", None, access="old"
)


@pytest.mark.parametrize(("error", "is_forgotten"), [("invalid_client", True), ("invalid_grant", False)])
async def test_client_that_the_authorization_server_has_forgotten_is_registered_anew_next_time(
    store, error, is_forgotten
):
    shared = replace(KEY, owner=REGISTRATION)
    for key in (KEY, shared):
        store.write(key, GRANT)
    with pytest.raises(Refused):
        await keep_sign_in(store, KEY, begun().flow, Fetcher(400, {"error": error}), "c")  # type: ignore[arg-type]
    mine = store.read(KEY)

    assert mine is not None
    assert (mine.access, mine.client.redirect_uri) == ("old", "" if is_forgotten else BACK)
    assert (store.read(shared) is None) is is_forgotten


async def test_tokens_take_the_place_of_those_of_the_last_sign_in(store):
    store.write(KEY, replace(GRANT, version=10**15, sign_in="first"))
    fetcher: Any = Fetcher(200, {"access_token": "new", "expires_in": 60})
    made = await keep_sign_in(store, KEY, begun().flow, fetcher, "c")
    kept = store.read(KEY)

    assert kept is not None
    assert (kept.access, kept.version) == ("new", 10**15 + 1)
    assert kept.sign_in == made.sign_in not in ("", "first")
