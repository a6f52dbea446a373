"""Callers' access tokens of a real Keycloak, exchanged there for those of a real MCP server, and attacks on that.

The second part of `python -m tests.oauth`. The short form, with stand-ins, is tests/gateway/proxy/test_exchange.py and
tests/gateway/proxy/transport/over_http/test_exchange.py; the attack table is in docs/upstream-auth.md.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx2

from bench.processes import free_port
from tests.oauth.keycloak import BRIEF, LIFE, SECRETS, TOOLS, Keycloak, keycloak
from tests.oauth.ports import listening
from tests.oauth.user import User


@dataclass
class World:
    """Keycloak, an MCP server, and a gateway between them."""

    folder: Path
    keycloak: Keycloak
    server: str
    port: int
    tokens: list[str] = field(default_factory=list[str])
    """All that callers came with."""

    @property
    def log(self) -> Path:
        return self.folder / "gateway.log"

    async def token(self, person: str, client: str = "agent", realm: str = "test") -> str:
        given = await self.keycloak.sign_in(person, client, realm)
        self.tokens.append(given["access_token"])
        return self.tokens[-1]

    async def status(self, url: str, token: str) -> int:
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(timeout=60) as http:
            return (await http.post(url, json=message, headers=headers)).status_code

    async def gateway(self, *words: str) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "gateway", *words, "--config", str(self.folder / "gateway.toml")]
        environ = {**os.environ, "XDG_STATE_HOME": str(self.folder / "state")}
        with self.log.open("ab") as log:
            out = asyncio.subprocess.PIPE
            return await asyncio.create_subprocess_exec(*command, stdout=out, stderr=log, env=environ)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


async def two_users_are_themselves_in_a_thousand_interleaved_calls(world: World) -> bool:
    tokens = {name: await world.token(name) for name in ("ann", "bob")}
    async with AsyncExitStack() as stack:
        users = {name: await stack.enter_async_context(User.open(world.port, each)) for name, each in tokens.items()}
        room = anyio.CapacityLimiter(20)

        async def ask(name: str) -> bool:
            async with room:
                return await users[name].call("docs__who") == name

        answers = await asyncio.gather(*(ask(name) for _ in range(500) for name in tokens))
        await anyio.sleep(LIFE + 1)
        answers += await asyncio.gather(*(ask(name) for _ in range(5) for name in tokens))
    return len(answers) == 1010 and all(answers)


async def renewed_token_goes_on_in_the_same_session(world: World) -> bool:
    given = await world.keycloak.sign_in("ann")
    world.tokens.append(given["access_token"])
    async with User.open(world.port, given["access_token"]) as ann:
        before = await ann.call("docs__session")
        await anyio.sleep(LIFE)
        renewed = (await world.keycloak.refresh(given))["access_token"]
        world.tokens.append(renewed)
        ann.renew(renewed)
        return renewed != given["access_token"] and await ann.call("docs__session") == before


async def another_sign_in_of_the_same_user_has_a_session_of_its_own(world: World) -> bool:
    sessions = set[str]()
    for _ in range(2):
        async with User.open(world.port, await world.token("ann")) as ann:
            sessions.add(await ann.call("docs__session"))
    return len(sessions) == 2


async def holder_of_a_key_is_told_why_it_has_none(world: World) -> bool:
    process = await world.gateway("keys", "add", "machine")
    out, _ = await process.communicate()
    key = next(word for word in out.decode().split() if word.startswith("codec_"))
    async with User.open(world.port, key) as machine:
        return "only callers with an access token" in await machine.call("docs__who")


async def caller_s_token_is_refused_by_the_server_and_the_server_s_by_the_gateway(world: World) -> bool:
    own = await world.token("ann")
    issued = (await world.keycloak.exchange(own, audience="docs", scope="docs"))["access_token"]
    at_server = [await world.status(world.server, each) for each in (own, issued)]
    at_gateway = [await world.status(world.url, each) for each in (own, issued)]
    return [each == 401 for each in (*at_server, *at_gateway)] == [True, False, False, True]


async def token_of_another_issuer_is_refused_by_the_gateway(world: World) -> bool:
    return await world.status(world.url, await world.token("ann", realm="other")) == 401


async def expired_token_is_refused_by_the_gateway(world: World) -> bool:
    token = await world.token("ann", "brief")
    before = await world.status(world.url, token)
    await anyio.sleep(BRIEF + 1)
    return before != 401 and await world.status(world.url, token) == 401


async def client_that_the_token_is_not_for_can_not_exchange_it(world: World) -> bool:
    async with User.open(world.port, await world.token("ann")) as ann:
        answer = await ann.call("stranger__who")
    return "access_denied" in answer and "check `exchange` of this server" in answer


async def token_without_the_server_s_audience_is_refused_there(world: World) -> bool:
    async with User.open(world.port, await world.token("ann")) as ann:
        answer = await ann.call("aimless__who")
    return "not available" in answer and "401" in answer


async def user_who_was_signed_out_gets_no_new_token(world: World) -> bool:
    given = await world.keycloak.sign_in("cleo")
    world.tokens.append(given["access_token"])
    async with (
        User.open(world.port, given["access_token"]) as cleo,
        User.open(world.port, await world.token("dora")) as dora,
    ):
        before = [await cleo.call("docs__who"), await dora.call("docs__who")]
        await world.keycloak.end(given)
        await anyio.sleep(LIFE + 1)
        after = [await cleo.call("docs__who"), await dora.call("docs__who")]
    refused = "Invalid token" in after[0] and "get a fresh one (sign in again in your client)" in after[0]
    return before == ["cleo", "dora"] and refused and after[1] == "dora"


async def silent_authorization_server_is_said_and_nothing_else_is_sent(world: World) -> bool:
    async with User.open(world.port, await world.token("eve")) as eve:
        before = await eve.call("docs__who")
        world.keycloak.process.terminate()
        await world.keycloak.process.wait()
        await anyio.sleep(LIFE + 1)
        after = await eve.call("docs__who")
    return before == "eve" and "no access token" in after


async def no_token_and_no_secret_is_in_the_logs(world: World) -> bool:
    written = world.log.read_text() + (world.folder / "audit.jsonl").read_text()
    parts = [part for token in world.tokens for part in token.split(".")[1:]]
    return "docs" in written and not any(each in written for each in (*parts, *SECRETS.values()))


STATEMENTS: tuple[Callable[[World], Awaitable[bool]], ...] = (
    two_users_are_themselves_in_a_thousand_interleaved_calls,
    renewed_token_goes_on_in_the_same_session,
    another_sign_in_of_the_same_user_has_a_session_of_its_own,
    holder_of_a_key_is_told_why_it_has_none,
    caller_s_token_is_refused_by_the_server_and_the_server_s_by_the_gateway,
    token_of_another_issuer_is_refused_by_the_gateway,
    expired_token_is_refused_by_the_gateway,
    client_that_the_token_is_not_for_can_not_exchange_it,
    token_without_the_server_s_audience_is_refused_there,
    user_who_was_signed_out_gets_no_new_token,
    silent_authorization_server_is_said_and_nothing_else_is_sent,
    no_token_and_no_secret_is_in_the_logs,
)


@asynccontextmanager
async def world(folder: Path) -> AsyncGenerator[World]:
    """Start all three."""
    at, server, own = (free_port() for _ in range(3))
    url = f"http://127.0.0.1:{server}/mcp"
    async with keycloak(at, folder / "keycloak.log") as made:
        script, python = str(Path(__file__).with_name("protected_server.py")), str(TOOLS / "venv" / "bin" / "python")
        with (folder / "server.log").open("wb") as log:
            served = await asyncio.create_subprocess_exec(
                *(python, script, str(server), made.issuer, made.keys, "docs", "docs"), stdout=log, stderr=log
            )
        (folder / "gateway.toml").write_text(_settings(made.issuer, url, own, folder))
        this = World(folder, made, url, own)
        gateway = await this.gateway("serve", "--engine", "none", "--log-level", "debug")
        try:
            await listening(server)
            await listening(own)
            yield this
        finally:
            for process in (gateway, served):
                process.terminate()
            await asyncio.gather(gateway.communicate(), served.wait())


def _settings(issuer: str, url: str, port: int, folder: Path) -> str:
    text = f"""
[serve]
port = {port}
admin_port = 0
[serve.oauth]
issuer = "{issuer}"
resource = "http://127.0.0.1:{port}/mcp"
audience = "gateway"
leeway = 0
[audit]
path = "{folder / "audit.jsonl"}"
arguments = true
"""
    for name, client, more in (
        ("docs", "gateway", 'audience = "docs"\nscope = "docs"'),
        ("stranger", "stranger", 'audience = "docs"\nscope = "docs"'),
        ("aimless", "gateway", ""),
    ):
        text += f"""
[upstreams.{name}]
url = "{url}"
# Sessions are of this era.
protocol = "handshake"
[upstreams.{name}.exchange]
client_id = "{client}"
client_secret = "{SECRETS[client]}"
issuer = "{issuer}"
{more}
"""
    return text
