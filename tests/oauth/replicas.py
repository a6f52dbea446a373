"""Two gateways that share a store, in front of the real authorization server: sign-ins at one are those of the other.

Needs `redis-server` (`make shared-install`). The short form, with a store in memory, is
tests/gateway/proxy/transport/over_http/test_shared_sign_in.py.
"""

import asyncio
import secrets
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, Self

import anyio

from bench.processes import free_port
from gateway.app.mcp_services import replicas_of
from gateway.config.replicas import ReplicasConfig, SharedConfig
from gateway.observe.metrics import Metrics
from gateway.proxy.transport.oauth.grants import GrantKey
from gateway.serve.auth.api_keys import KeyFile
from gateway.shared.shared_store import store_of
from tests.oauth.browser import agree
from tests.oauth.ports import listening
from tests.oauth.user import User

LIFE = 5.0
"""Seconds that an access token lives."""
LEASE = 15.0
"""Seconds that a replica's lease lives when it dies."""


class World(Protocol):
    """See `tests/oauth/__main__.py`."""

    folder: Path
    port: int
    issuer: str
    second: str

    @property
    def refreshes(self) -> int: ...
    async def key(self, name: str) -> str: ...
    async def gateway(self, *words: str) -> tuple[int, str]: ...
    def running(self) -> "AsyncExitStack": ...


def is_there() -> bool:
    return shutil.which("redis-server") is not None


class Store:
    """A Redis that keeps nothing when it stops."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *("redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""),
            stdout=asyncio.subprocess.DEVNULL,
        )
        await listening(self.port)

    async def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            await self._process.wait()


class Replicas:
    """The two gateways and their users."""

    def __init__(
        self, worlds: "list[World]", users: dict[str, list[User]], store: "Store", url: str, keys: Path, secret: Path
    ) -> None:
        self.worlds = worlds
        self.store = store
        self.keys = keys
        self.users = users
        self.url = url
        self.secret = secret

    @classmethod
    @asynccontextmanager
    async def open(cls, world: "World", name: str) -> AsyncGenerator[Self]:
        """Start both, in folders of this name; Ann has signed in at the first, Bob at the second."""
        folder = world.folder / name
        folder.mkdir()
        store, keys, secret = Store(free_port()), folder / "keys.json", folder / "secret"
        secret.write_text(secrets.token_hex(32))
        secret.chmod(0o600)
        url = f"redis://127.0.0.1:{store.port}/0"
        worlds = [_made(world, folder / each, url, keys, secret) for each in ("one", "two")]
        await store.start()
        try:
            async with AsyncExitStack() as stack:
                people = {name: await worlds[0].key(name) for name in ("ann", "bob")}
                for each in worlds:
                    await stack.enter_async_context(each.running())
                users = {
                    name: [await stack.enter_async_context(User.open(each.port, key)) for each in worlds]
                    for name, key in people.items()
                }
                made = cls(worlds, users, store, url, keys, secret)
                for name, at in (("ann", 0), ("bob", 1)):
                    await made.sign_in(name, at)
                yield made
        finally:
            await store.stop()

    async def sign_in(self, name: str, at: int) -> None:
        user = self.users[name][at]
        end = await agree(await user.begin("own"), user.callback, person=name)
        assert await user.show(end) == 200

    async def ask(self, times: int) -> list[tuple[str, str]]:
        """Who asked and who was answered, in calls of both people at both replicas in turns."""
        room = anyio.CapacityLimiter(8)

        async def one(name: str, user: User) -> tuple[str, str]:
            async with room:
                return name, await user.call("own__who")

        turns = [(name, user) for _ in range(times) for name, users in self.users.items() for user in users]
        return await asyncio.gather(*(one(*turn) for turn in turns))


def _made(world: "World", folder: Path, url: str, keys: Path, secret: Path) -> "World":
    port = free_port()
    folder.mkdir()
    auth = f'issuer = "{world.issuer}", per_user = true, redirect_url = "http://127.0.0.1:{port}/sign-in/callback"'
    (folder / "gateway.toml").write_text(
        # So that a store on a busy machine does not count as down.
        f'prefix = "always"\n[serve]\nkeys = "{keys}"\n[upstreams.own]\nurl = "{world.second}"\nauth = {{ {auth} }}\n'
        f'[replicas]\naddress = "127.0.0.1"\nport = {free_port()}\nkey_file = "{secret}"\n[shared]\nurl = "{url}"\n'
        "timeout = 2\n"
    )
    return replace(world, folder=folder, port=port)  # type: ignore[type-var]


async def users_are_themselves_in_a_thousand_interleaved_calls_at_two_replicas(world: "World") -> bool:
    async with Replicas.open(world, "calls") as replicas:
        answers, before = list[tuple[str, str]](), world.refreshes
        for _ in range(5):
            answers += await replicas.ask(50)
            await anyio.sleep(LIFE + 1)
        answers += await replicas.ask(1)
    wrong = [each for each in answers if each[0] != each[1]]
    sys.stdout.write(f"  {len(answers)} calls, {world.refreshes - before} renewals, wrong: {wrong[:5]}\n")
    return len(answers) > 1000 and not wrong and world.refreshes >= before + 10


async def replica_that_dies_with_the_lease_delays_calls_and_loses_no_sign_in(world: "World") -> bool:
    async with Replicas.open(world, "lease") as replicas:
        await replicas.ask(1)
        keys = replicas_of(ReplicasConfig("127.0.0.1", 1, replicas.secret)).shared_keys("store")
        owner = KeyFile(replicas.keys).read()["ann"].owner
        key = GrantKey(owner, "own", world.second)
        dead = store_of(SharedConfig(replicas.url), keys, Metrics().shared)
        async with dead.running():
            taken = None
            while not taken:
                taken = await dead.acquire(key.owner, f"{key.server} {key.url}", LEASE)
            await anyio.sleep(LIFE + 1)
            began = anyio.current_time()
            answers = await replicas.ask(2)
            took = anyio.current_time() - began
    sys.stdout.write(f"  calls waited {took:.1f} s\n")
    return all(asked == answered for asked, answered in answers) and 3.0 < took < 2 * LEASE


async def store_that_restarts_without_what_it_held_costs_no_sign_in(world: "World") -> bool:
    async with Replicas.open(world, "restart") as replicas:
        meanwhile = list[tuple[str, str]]()

        async def use() -> None:
            for _ in range(8):
                meanwhile.extend(await replicas.ask(2))
                await anyio.sleep(1)

        for seconds in (3, LIFE + 1):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(use)
                await anyio.sleep(2)
                await replicas.store.stop()
                await anyio.sleep(seconds)
                await replicas.store.start()
        await anyio.sleep(LIFE)
        answers = await replicas.ask(5)
    wrong = [each for each in answers if each[0] != each[1]]
    others = [each for each in meanwhile if each[1] in replicas.users and each[0] != each[1]]
    served = sum(asked == answered for asked, answered in meanwhile)
    sys.stdout.write(f"  {served} of {len(meanwhile)} calls meanwhile; afterwards {len(answers)}, wrong: {wrong[:5]}\n")
    return served > 0 and not wrong and not others


async def browser_may_come_back_to_another_replica_once(world: "World") -> bool:
    async with Replicas.open(world, "callback") as replicas:
        left, met = replicas.users["ann"]
        end = await agree(await left.begin("own"), left.callback, person="ann")
        elsewhere = end.replace(left.callback, met.callback, 1)
        stolen = [await bob.show(address) for bob in replicas.users["bob"] for address in (end, elsewhere)]
        shown = [await left.show(address) for address in (elsewhere, elsewhere, end)]
        # Until then, the other replica may use the sign-in before this one.
        await anyio.sleep(2)
        answers = await replicas.ask(2)
    wrong = [each for each in answers if each[0] != each[1]]
    sys.stdout.write(f"  pages: {shown}, in Bob's browser: {stolen}, wrong: {wrong[:5]}\n")
    return set(stolen) == {400} and shown == [200, 400, 400] and not wrong


STATEMENTS = (
    browser_may_come_back_to_another_replica_once,
    users_are_themselves_in_a_thousand_interleaved_calls_at_two_replicas,
    replica_that_dies_with_the_lease_delays_calls_and_loses_no_sign_in,
    store_that_restarts_without_what_it_held_costs_no_sign_in,
)
