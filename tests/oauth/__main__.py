"""`python -m tests.oauth`: sign-ins at a real authorization server, to real MCP servers, and attacks on them.

Prints one line for each statement, and ends with 1 if one does not hold. The authorization server is oidc-provider, the
MCP servers are fastmcp's (`make oauth-install`). The short form, with a stand-in, is
tests/gateway/proxy/transport/over_http/test_sign_in.py; the attack table is in docs/upstream-auth.md. The second part,
with Keycloak, is exchange.py; the third, with two gateways that share a Redis, replicas.py. `python -m tests.oauth
sign-in`, `exchange` or `replicas`: only that part.
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

import anyio

from bench.processes import free_port
from gateway.config.gateway_config import SignInConfig, UpstreamConfig
from gateway.proxy.transport.http.client import open_http_client
from gateway.proxy.transport.oauth.code_flow import Client
from gateway.proxy.transport.oauth.discovery import fetcher_for
from gateway.proxy.transport.oauth.grants import OPERATOR, GrantKey, GrantStore
from gateway.proxy.transport.oauth.sign_in import begin_sign_in, finish_sign_in
from gateway.proxy.transport.transport_interface import NoAnswer
from tests.oauth import exchange, keycloak, replicas
from tests.oauth.browser import agree
from tests.oauth.ports import listening
from tests.oauth.user import User

Made = TypeVar("Made")
TOOLS = Path(__file__).parents[2] / ".tools" / "oauth"
REDIRECT = "http://127.0.0.1:7777/callback"
LIFE = 5.0
"""Seconds that an access token lives."""
STATEMENT = 900.0


@dataclass
class World:
    """The servers, and a gateway's folder."""

    folder: Path
    issuer: str
    first: str
    second: str
    log: Path
    port: int
    """Where the gateway serves; its server `own` is the second one, at which each user signs in."""

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "XDG_STATE_HOME": str(self.folder / "state"), "DISPLAY": ""}

    @property
    def refreshes(self) -> int:
        return self.log.read_text().count("refreshed")

    def upstream(self, **auth: str) -> UpstreamConfig:
        return UpstreamConfig("first", url=self.first, auth=SignInConfig(issuer=self.issuer, **auth))

    async def key(self, name: str) -> str:
        """A new key of the gateway."""
        _, said = await self.gateway("keys", "add", name)
        return next(word for word in said.split() if word.startswith("codec_"))

    async def gateway(self, *words: str) -> tuple[int, str]:
        process = await self.start(*words)
        out, err = await process.communicate()
        return process.returncode or 0, (out + err).decode()

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "gateway", *words, "--config", str(self.folder / "gateway.toml")]
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, env=self.environ)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """The gateway, serving."""
        process = await self.start("serve", "--port", str(self.port), "--admin-port", "0", "--engine", "none")
        try:
            await listening(self.port)
            yield
        finally:
            process.terminate()
            await process.communicate()

    async def login(self, server: str) -> tuple[int, str]:
        process = await self.start("login", server)
        assert process.stdout is not None
        assert process.stdin is not None
        address = (await process.stdout.readline()).decode().strip()
        end = await agree(address, parse_qs(urlsplit(address).query)["redirect_uri"][0])
        # Somebody else's guess first: it must change nothing.
        process.stdin.write(f"{end.partition('?')[0]}?code=mine&state=guess\n{end}\n".encode())
        out, err = await process.communicate()
        return process.returncode or 0, (out + err).decode()


async def first_call_says_what_to_type(world: World) -> bool:
    code, said = await world.gateway("call", "first__echo", "text=hi")
    return code == 4 and "codec-gateway login first" in said.replace(".venv/bin/", "")


async def operator_signs_in(world: World) -> bool:
    code, said = await world.login("first")
    return code == 0 and f"Signed in to first at {world.issuer}" in said and "belongs to no sign-in" in said


async def call_is_answered(world: World) -> bool:
    return await world.gateway("call", "first__echo", "text=hi") == (0, "hi\n")


async def expired_token_is_renewed_once_by_four_processes(world: World) -> bool:
    before = world.refreshes
    for wanted in (before + 1, before + 2):
        await anyio.sleep(LIFE + 1)
        answers = await asyncio.gather(*(world.gateway("call", "first__echo", "text=hi") for _ in range(4)))
        # They start within the life of a token, or one of them renews it once more; a refresh token that is used
        # twice would end them all.
        if any(answer != (0, "hi\n") for answer in answers) or world.refreshes < wanted:
            return False
    return True


async def doctor_reaches_it(world: World) -> bool:
    _, said = await world.gateway("doctor", "--json")
    servers = {each["name"]: each for each in json.loads(said)["servers"]}
    return bool(servers["first"]["reached"]) and "codec-gateway login second" in str(servers["second"])


async def token_of_one_server_is_refused_by_another(world: World) -> bool:
    store = GrantStore(world.folder / "state" / "codec-gateway" / "sign-ins")
    grant = store.read(GrantKey(OPERATOR, "first", world.first))
    assert grant is not None
    store.write(GrantKey(OPERATOR, "second", world.second), replace(grant, refresh=None))
    code, said = await world.gateway("call", "second__echo", "text=hi")
    store.delete(GrantKey(OPERATOR, "second", world.second))
    return code == 4 and "refuses the token" in said


async def code_is_bound_to_its_verifier(world: World) -> bool:
    async with open_http_client() as client:
        config = world.upstream()
        mine, theirs = [await begin_sign_in(config, client, REDIRECT) for _ in range(2)]
        theirs = replace(theirs, client=mine.client)
        code = mine.read_redirect(await agree(mine.address(), REDIRECT))
        return await refused("invalid_grant", finish_sign_in(theirs, fetcher_for(config, client), code))


async def code_can_not_be_used_twice(world: World) -> bool:
    async with open_http_client() as client:
        config = world.upstream()
        flow = await begin_sign_in(config, client, REDIRECT)
        code = flow.read_redirect(await agree(flow.address(), REDIRECT))
        await finish_sign_in(flow, fetcher_for(config, client), code)
        return await refused("invalid_grant", finish_sign_in(flow, fetcher_for(config, client), code))


async def code_of_another_client_is_refused(world: World) -> bool:
    async with open_http_client() as client:
        config = world.upstream()
        mine, theirs = [await begin_sign_in(config, client, REDIRECT) for _ in range(2)]
        code = mine.read_redirect(await agree(mine.address(), REDIRECT))
        stolen = replace(mine, client=theirs.client)
        return await refused("invalid_grant", finish_sign_in(stolen, fetcher_for(config, client), code))


async def redirect_address_can_not_be_changed(world: World) -> bool:
    async with open_http_client() as client:
        flow = await begin_sign_in(world.upstream(), client, REDIRECT)
        for stolen in (
            "http://localhost:7777/callback",
            "http://127.0.0.1:7777/other",
            "https://evil.example/callback",
        ):
            try:
                await agree(replace(flow, redirect_uri=stolen).address(), stolen)
            except RuntimeError:
                continue
            return False
        return True


async def answer_of_another_issuer_is_refused(world: World) -> bool:
    async with open_http_client() as client:
        flow = await begin_sign_in(world.upstream(), client, REDIRECT)
        end = await agree(flow.address(), REDIRECT)
        mixed = replace(flow, server=replace(flow.server, issuer="https://honest.example"))
        try:
            mixed.read_redirect(end)
        except NoAnswer as error:
            return "another authorization server" in str(error)
        return False


async def client_metadata_document_is_the_client(world: World) -> bool:
    async with open_http_client() as client:
        config = world.upstream(client_metadata_url=DOCUMENT["client_id"])
        flow = await begin_sign_in(config, client, REDIRECT)
        code = flow.read_redirect(await agree(flow.address(), REDIRECT))
        grant = await finish_sign_in(flow, fetcher_for(config, client), code)
        return grant.client == Client(DOCUMENT["client_id"]) and grant.access is not None


async def users_are_themselves_in_a_thousand_interleaved_calls(world: World) -> bool:
    people = {"ann": await world.key("ann"), "bob": await world.key("bob")}
    async with world.running(), AsyncExitStack() as stack:
        users = {name: await stack.enter_async_context(User.open(world.port, key)) for name, key in people.items()}
        before = [await user.call("own__who") for user in users.values()]
        for name, user in users.items():
            address = await user.begin("own")
            end = await agree(address, user.callback, person=name)
            others = [await other.show(end) for other in users.values() if other is not user]
            if any(status != 400 for status in others) or await user.show(end) != 200 or await user.show(end) != 400:
                return False
        refreshed, room = world.refreshes, anyio.CapacityLimiter(20)

        async def ask(name: str) -> tuple[str, str]:
            async with room:
                return name, await users[name].call("own__who")

        answers = await asyncio.gather(*(ask(name) for _ in range(500) for name in people))
        await anyio.sleep(LIFE + 1)
        answers += await asyncio.gather(*(ask(name) for _ in range(5) for name in people))
        _, said = await world.gateway("logout", "own", "--principal", "ann")
        await anyio.sleep(2)
        after = [await user.call("own__who") for user in users.values()]
    asked = all(f"{user.callback.rpartition('/')[0]}?server=own" in each for each in before)
    ended = "ended and forgotten" in said and "needs you to sign in" in after[0] and after[1] == "bob"
    wrong, renewals = [each for each in answers if each[0] != each[1]], world.refreshes - refreshed
    sys.stdout.write(f"  {len(answers)} calls, {renewals} renewals, wrong: {wrong[:5]}; after sign-out: {after}\n")
    return asked and not wrong and renewals >= 2 and ended


async def client_of_the_sdk_opens_the_page_and_goes_on(world: World) -> bool:
    seen = []
    async with world.running():
        for mode, name in (("legacy", "cleo"), ("2026-07-28", "dora")):
            async with User.open(world.port, await world.key(name)) as user:
                page = f"{user.callback.rpartition('/')[0]}?server=own"
                seen.append(await user.call_by_sdk("own__who", mode, name) == ([page], name))
    return all(seen)


async def sign_out_ends_the_grant(world: World) -> bool:
    store = GrantStore(world.folder / "state" / "codec-gateway" / "sign-ins")
    key = GrantKey(OPERATOR, "first", world.first)
    grant = store.read(key)
    assert grant is not None
    code, said = await world.gateway("logout", "first")
    store.write(key, replace(grant, expires=0.0))
    _, after = await world.gateway("call", "first__echo", "text=hi")
    return code == 0 and "ended and forgotten" in said and "has ended" in after and "login first" in after


STATEMENTS: tuple[Callable[[World], Awaitable[bool]], ...] = (
    first_call_says_what_to_type,
    operator_signs_in,
    call_is_answered,
    expired_token_is_renewed_once_by_four_processes,
    doctor_reaches_it,
    token_of_one_server_is_refused_by_another,
    code_is_bound_to_its_verifier,
    code_can_not_be_used_twice,
    code_of_another_client_is_refused,
    redirect_address_can_not_be_changed,
    answer_of_another_issuer_is_refused,
    client_metadata_document_is_the_client,
    users_are_themselves_in_a_thousand_interleaved_calls,
    client_of_the_sdk_opens_the_page_and_goes_on,
    sign_out_ends_the_grant,
)
DOCUMENT = {
    "client_id": "https://gateway.example/client.json",
    "client_name": "codec-gateway",
    "redirect_uris": [REDIRECT],
    "token_endpoint_auth_method": "none",
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "application_type": "native",
}


async def refused(words: str, asking: Awaitable[object]) -> bool:
    """Whether this fails with these words."""
    try:
        await asking
    except NoAnswer as error:
        return words in str(error)
    return False


@asynccontextmanager
async def world(folder: Path) -> AsyncGenerator[World]:
    """Start one authorization server, and two MCP servers that trust it."""
    *ports, own = [free_port() for _ in range(4)]
    issuer, first, second = (f"http://127.0.0.1:{port}" for port in ports)
    log = folder / "authorization_server.log"
    script = shutil.copy(Path(__file__).with_name("authorization_server.mjs"), TOOLS / "node")
    environ = {**os.environ, "CLIENT_DOCUMENT": json.dumps(DOCUMENT)}
    python, server = str(TOOLS / "venv" / "bin" / "python"), str(Path(__file__).with_name("protected_server.py"))
    commands = [["node", str(script), str(ports[0]), f"{first}/mcp", f"{second}/mcp"]]
    commands += [[python, server, str(port), issuer] for port in ports[1:]]
    with log.open("wb") as output:
        processes = [
            await asyncio.create_subprocess_exec(*each, stdout=output, stderr=output, env=environ) for each in commands
        ]
    try:
        try:
            for port in ports:
                await listening(port)
        except TimeoutError:
            raise RuntimeError(f"a server did not start:\n{log.read_text()}") from None
        settings = "".join(
            f'[upstreams.{name}]\nurl = "{url}/mcp"\nauth = {{ issuer = "{issuer}" }}\n'
            for name, url in (("first", first), ("second", second))
        )
        callback = f"http://127.0.0.1:{own}/sign-in/callback"
        settings += f'[upstreams.own]\nurl = "{second}/mcp"\n'
        settings += f'auth = {{ issuer = "{issuer}", per_user = true, redirect_url = "{callback}" }}\n'
        (folder / "gateway.toml").write_text(settings)
        yield World(folder, issuer, f"{first}/mcp", f"{second}/mcp", log, own)
    finally:
        for process in processes:
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(process.wait() for process in processes))


async def check(parts: Collection[str]) -> int:
    """Try every statement; return how many do not hold."""
    bad = 0
    if "sign-in" in parts:
        bad += await try_all(world, STATEMENTS)
    if "exchange" in parts and keycloak.is_there():
        bad += await try_all(exchange.world, exchange.STATEMENTS)
    elif "exchange" in parts:
        print("--  exchanges of tokens were not tried: Keycloak is not there (it needs Java; make oauth-install)")
    if "replicas" in parts and replicas.is_there():
        bad += await try_all(world, replicas.STATEMENTS)
    elif "replicas" in parts:
        print("--  replicas were not tried: redis-server is not there (make shared-install)")
    return bad


async def try_all(
    make: Callable[[Path], AbstractAsyncContextManager[Made]],
    statements: Iterable[Callable[[Made], Awaitable[bool]]],
) -> int:
    bad = 0
    with tempfile.TemporaryDirectory(prefix="oauth-") as folder:
        async with make(Path(folder)) as made:
            for statement in statements:
                try:
                    with anyio.fail_after(STATEMENT):
                        holds = await statement(made)
                except (NoAnswer, RuntimeError, TimeoutError, KeyError) as error:
                    print(f"  {error!r}")
                    holds = False
                bad += not holds
                print(f"{'ok ' if holds else 'NOT'} {statement.__name__.replace('_', ' ')}", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(bool(asyncio.run(check(sys.argv[1:] or ["sign-in", "exchange", "replicas"]))))
