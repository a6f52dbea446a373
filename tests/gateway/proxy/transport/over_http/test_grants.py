"""What is kept of a sign-in, and on whose disk: what a renewal changes, and which files count as missing."""

import os
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from gateway.errors import ConfigError
from gateway.proxy.transport.oauth import grants
from gateway.proxy.transport.oauth.code_flow import Client
from gateway.proxy.transport.oauth.grants import (
    OPERATOR,
    REGISTRATION,
    Grant,
    GrantKey,
    GrantStore,
    forgotten,
    read_grant,
    sign_in_folder,
)
from gateway.proxy.transport.oauth.token_endpoint import Tokens
from gateway.proxy.transport.transport_interface import NoAnswer
from gateway.shared.store_interface import packed
from tests.standins.redis_in_memory import Memory
from tests.standins.shared import SECRET, Direct, shared_in_memory

KEY = GrantKey(OPERATOR, "web", "https://tools.example/mcp")
CLIENT = Client("me", "s", "client_secret_post", "http://127.0.0.1:7/back")
GRANT = Grant(
    *("https://as.example", "https://as.example/t", "https://as.example/r", CLIENT, "https://tools.example", "a b"),
    access="access",
    refresh="refresh",
    expires=2000.0,
    sign_in="one",
    version=7,
)


class TestGrant:
    def test_renewal_replaces_the_tokens_and_keeps_what_is_not_issued_anew(self):
        whole = GRANT.renewed(Tokens("new", 60.0, "next", "a"), 3.0)
        bare = GRANT.renewed(Tokens("new", None), 3.0)

        assert whole == replace(
            GRANT, access="new", refresh="next", expires=63.0, scope="a", version=3000, reusable=False
        )
        assert bare == replace(GRANT, access="new", expires=None, version=3000, reusable=True)

    def test_version_grows_even_where_the_clock_goes_back(self):
        assert GRANT.renewed(Tokens("new", None), 0.001).version == 8
        assert GRANT.after(None).version == 7
        assert GRANT.after(replace(GRANT, version=9)).version == 10
        assert forgotten(1.5).version == 1500

    def test_end_leaves_the_client_for_the_next_sign_in_unless_it_is_not_known_any_more(self):
        ended = replace(GRANT, access=None, refresh=None, expires=None, version=8)

        assert GRANT.ended(client_too=False) == ended
        assert GRANT.ended(client_too=True) == replace(ended, client=replace(CLIENT, redirect_uri=""))

    def test_grant_comes_back_from_its_bytes_and_nothing_else_does(self):
        assert read_grant(GRANT.to_bytes()) == GRANT
        for other in (b"", b"x", packed([2, "a", "b", None, ["me"], "", None]), packed([1]), packed(1)):
            assert read_grant(other) is None

    def test_tokens_are_not_shown(self):
        assert "refresh" not in repr(GRANT).replace("refresh=", "")
        assert "access" not in repr(GRANT)


@pytest.fixture
def store(tmp_path: Path) -> GrantStore:
    return GrantStore(tmp_path / "sign-ins")


class TestFiles:
    def test_sign_in_is_kept_for_its_owner_server_and_address_until_it_is_deleted(self, store):
        assert store.read(KEY) is None
        store.write(KEY, GRANT)
        again = GrantStore(store.folder)

        assert again.read(KEY) == GRANT
        for other in (replace(KEY, owner="key:ann"), replace(KEY, server="w"), replace(KEY, url="x")):
            assert again.read(other) is None
        again.delete(KEY)
        again.delete(KEY)
        assert store.read(KEY) is None

    def test_folder_and_files_are_the_gateways_alone(self, store):
        store.write(KEY, GRANT)

        assert store.folder.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in store.folder.iterdir()} == {0o600}
        assert not [path for path in store.folder.iterdir() if path.name.startswith(".")]

    def test_folder_is_in_the_state_folder(self, monkeypatch, tmp_path):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

        assert GrantStore().folder == sign_in_folder() == tmp_path / "codec-gateway" / "sign-ins"

    def test_file_of_another_key_or_content_counts_as_missing(self, store):
        store.write(KEY, GRANT)
        (path,) = store.folder.glob("sign-in-*")
        path.write_bytes(b"what")
        assert store.read(KEY) is None
        store.write(KEY, GRANT)
        (store.folder / "key").write_bytes(b"k" * 32)
        assert GrantStore(store.folder).read(KEY) is None

    @pytest.mark.parametrize("mode", [0o604, 0o640, 0o601, 0o610])
    def test_key_that_others_can_read_is_refused(self, store, mode):
        store.write(KEY, GRANT)
        (store.folder / "key").chmod(mode)
        with pytest.raises(ConfigError, match=rf"key: others can read the key .*\(mode {mode:04o}\): chmod 600 it"):
            GrantStore(store.folder).read(KEY)

    @pytest.mark.parametrize("length", [0, 31, 33])
    def test_key_of_another_length_is_refused(self, store, length):
        store.folder.mkdir()
        (store.folder / "key").write_bytes(b"k" * length)
        (store.folder / "key").chmod(0o600)
        with pytest.raises(ConfigError, match="key: not a key of 32 bytes: remove it, and sign in again"):
            store.read(KEY)

    def test_key_that_another_process_has_just_made_is_used(self, store, monkeypatch):
        taken = os.urandom(32)
        monkeypatch.setattr(Path, "exists", lambda path: False)
        store.folder.mkdir()
        (store.folder / "key").write_bytes(taken)
        (store.folder / "key").chmod(0o600)
        store.write(KEY, GRANT)

        assert (store.folder / "key").read_bytes() == taken
        assert not list(store.folder.glob(".key*"))

    def test_folder_that_can_not_be_made_is_named(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(ConfigError, match=r"sign-ins/key: can't be read or made \(Not a directory\)"):
            GrantStore(tmp_path / "file" / "sign-ins").read(KEY)

    def test_state_differs_after_each_change_and_needs_no_key(self, store):
        assert store.state(KEY) is None
        assert not store.folder.exists()
        store.write(KEY, GRANT)
        first = GrantStore(store.folder).state(KEY)
        assert first == store.state(KEY)
        store.write(KEY, GRANT)

        assert store.state(KEY) not in (None, first)

    def test_client_is_forgotten_with_what_was_registered_for_all_and_the_tokens_stay(self, store):
        shared = replace(KEY, owner=REGISTRATION)
        store.write(shared, GRANT)
        store.forget_client(KEY)
        assert store.read(KEY) is None
        store.write(KEY, GRANT)
        store.forget_client(KEY)

        assert store.read(shared) is None
        assert store.read(KEY) == replace(GRANT, client=replace(CLIENT, redirect_uri=""), version=8)


async def taken_by(store: GrantStore, order: list[str], name: str) -> None:
    async with store.alone(KEY):
        order.append(name)


@pytest.mark.anyio
class TestOneMachine:
    async def test_processes_change_a_sign_in_in_turn(self, store):
        store.write(KEY, GRANT)
        order: list[str] = []
        async with anyio.create_task_group() as tasks, store.alone(KEY):
            tasks.start_soon(taken_by, GrantStore(store.folder), order, "second")
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            order.append("first")

        assert order == ["first", "second"]

    async def test_new_sign_in_is_newer_than_the_one_before_and_none_forgets_it(self, store):
        before = replace(GRANT, version=10**15)
        store.write(KEY, before)
        assert await store.replace(KEY, GRANT)
        kept = store.read(KEY)
        known = await store.known(KEY)
        assert await store.replace(KEY, None)

        assert kept == known == replace(GRANT, version=10**15 + 1)
        assert store.read(KEY) is None
        assert await store.known(KEY) is None

    async def test_machine_of_its_own_has_the_newest_and_the_lease(self, store):
        assert await store.newest(KEY, GRANT) is GRANT
        async with store.lease(KEY, lambda: None) as is_leased:
            assert is_leased


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncGenerator[dict[str, tuple[GrantStore, Direct]]]:
    """Two that share a store, and their ways to it."""
    memory = Memory()
    one, two = Direct(memory), Direct(memory)
    async with shared_in_memory(one, SECRET) as first, shared_in_memory(two, SECRET) as second:
        yield {"a": (GrantStore(tmp_path / "a", first), one), "b": (GrantStore(tmp_path / "b", second), two)}


@pytest.mark.anyio
class TestReplicas:
    async def test_newer_sign_in_is_that_of_either(self, replicas):
        (one, _), (two, _) = replicas["a"], replicas["b"]
        newer = replace(GRANT, access="newer", version=9)

        assert await one.newest(KEY, None) is None
        assert await one.newest(KEY, GRANT) is GRANT
        assert await two.newest(KEY, None) == GRANT
        assert await two.newest(KEY, newer) is newer
        assert await one.newest(KEY, GRANT) == newer
        assert await one.newest(KEY, replace(newer, access="as new")) == replace(newer, access="as new")

    async def test_sign_in_that_was_forgotten_at_one_is_forgotten_at_both(self, replicas):
        (one, _), (two, _) = replicas["a"], replicas["b"]
        await one.replace(KEY, GRANT)
        known = await two.known(KEY)
        await two.replace(KEY, None)

        assert known is not None
        assert known.access == "access"
        assert await one.known(KEY) is None
        assert one.read(KEY) is not None

    async def test_one_changes_it_at_a_time(self, replicas):
        (one, _), (two, _) = replicas["a"], replicas["b"]
        async with one.lease(KEY, lambda: GRANT) as first:
            async with two.lease(KEY, lambda: None) as second:
                pass
            async with two.lease(KEY, lambda: None) as third:
                pass
        async with two.lease(KEY, lambda: None) as fourth:
            pass

        assert (first, second, third, fourth) == (True, False, False, True)
        assert await two.newest(KEY, None) == GRANT

    @pytest.mark.parametrize(("latest", "may"), [(None, False), (GRANT, False), (replace(GRANT, reusable=True), True)])
    async def test_store_that_is_away_keeps_all_from_changing_what_could_be_spent_twice(self, replicas, latest, may):
        one, way = replicas["a"]
        way.is_there = False
        if may:
            async with one.lease(KEY, lambda: latest) as is_leased:
                assert is_leased
        else:
            with pytest.raises(NoAnswer, match="does not answer, and one of them may be renewing it"):
                async with one.lease(KEY, lambda: latest):
                    pass
        with pytest.raises(NoAnswer, match="the store that the replicas share does not answer"):
            await one.newest(KEY, GRANT)
        way.is_there = True

    async def test_sign_in_that_the_store_does_not_take_is_offered_again_later(self, replicas, monkeypatch):
        (one, way), (two, _) = replicas["a"], replicas["b"]
        sleeps: list[float] = []
        slept = anyio.sleep

        async def sleep(seconds: float) -> None:
            sleeps.append(seconds)
            if len(sleeps) == 2:
                way.is_there = True
            await slept(0.01)

        way.is_there = False
        monkeypatch.setattr(grants.anyio, "sleep", sleep)
        told = await one.replace(KEY, GRANT)
        with anyio.fail_after(60):
            while await two.known(KEY) is None:
                await slept(0.01)

        assert told is False
        assert one.read(KEY) is not None
        assert set(sleeps) == {1.0}

    async def test_sign_in_is_offered_for_a_minute_to_a_store_that_stays_away(self, tmp_path, monkeypatch):
        sleeps: list[float] = []

        async def sleep(seconds: float) -> None:
            sleeps.append(seconds)

        class Away:
            def run_in_background(self, work: Any) -> None:
                self.work = work

            async def acquire(self, *_: object) -> None:
                return None

            async def newest(self, *_: object) -> None:
                return None

        away = Away()
        await GrantStore(tmp_path, cast("Any", away)).replace(KEY, GRANT)
        monkeypatch.setattr(grants.anyio, "sleep", sleep)
        await away.work

        assert sleeps == [1.0] * 60

    async def test_change_that_is_cancelled_is_still_told_and_ends_the_lease(self, replicas):
        (one, _), (two, _) = replicas["a"], replicas["b"]
        async with anyio.create_task_group() as tasks, one.lease(KEY, lambda: GRANT):
            tasks.cancel_scope.cancel()
        async with two.lease(KEY, lambda: None) as is_leased:
            assert is_leased

        assert await two.newest(KEY, None) == GRANT

    async def test_store_keeps_a_sign_in_that_nobody_uses_for_a_month(self, tmp_path):
        kept: list[float] = []

        class Keeping:
            async def newest(self, owner: str, place: str, version: int, value: bytes, seconds: float) -> bytes:
                kept.append(seconds)
                return b""

        await GrantStore(tmp_path, cast("Any", Keeping())).newest(KEY, GRANT)

        assert kept == [30 * 24 * 3600]

    async def test_new_sign_in_waits_for_a_renewal_that_has_begun(self, replicas):
        (one, _), (two, _) = replicas["a"], replicas["b"]
        renewed = replace(GRANT, access="renewed", version=10**15)
        done: list[Any] = []

        async def sign_in() -> None:
            done.append(await two.replace(KEY, GRANT))

        async with anyio.create_task_group() as tasks, one.lease(KEY, lambda: renewed):
            tasks.start_soon(sign_in)
            await anyio.sleep(0.02)
            assert done == []
        newest = two.read(KEY)

        assert done == [True]
        assert newest == replace(GRANT, version=10**15 + 1)
