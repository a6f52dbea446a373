"""`codec-gateway login` and `logout`: a person signs in with a browser, or by pasting the address at which it ended."""

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest

from gateway.cli.exit_codes import CONFIG, OK, UNREACHABLE
from gateway.proxy.transport.oauth.code_flow import Client
from gateway.proxy.transport.oauth.grants import Grant, GrantKey, GrantStore
from gateway.serve.auth.api_keys import KeyFile
from tests.e2e.programs import loaded_programs
from tests.gateway.proxy.transport.over_http.standin_authorization import StandInAuthorization, standin_authorization

pytestmark = pytest.mark.anyio


@pytest.fixture
async def standin() -> AsyncGenerator[StandInAuthorization]:
    async with standin_authorization() as made:
        yield made


class Terminal:
    """A command that runs in a process of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.config = folder / "codec-gateway.toml"
        self.config.write_text(f'[upstreams.web]\nurl = "{url}"\n[upstreams.local]\ncommand = "true"\n')
        with self.config.open("a") as file:
            file.write(f'[upstreams.keyed]\nurl = "{url}"\nheaders = {{ authorization = "Bearer x" }}\n')
        path = f"{loaded_programs()}:{os.environ['PATH']}"
        self.environ = {**os.environ, "PATH": path, "XDG_STATE_HOME": str(folder / "state"), "DISPLAY": ""}

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            loaded_programs() / "codec-gateway",
            *(*words, "--config", str(self.config)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environ,
        )

    async def run(self, *words: str) -> tuple[int | None, str]:
        return await ended(await self.start(*words))


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    with anyio.fail_after(60):
        out, err = await process.communicate()
    return process.returncode, (out + err).decode()


async def address_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    with anyio.fail_after(60):
        return (await process.stdout.readline()).decode().strip()


@pytest.fixture
def terminal(tmp_path: Path, standin: StandInAuthorization) -> Terminal:
    return Terminal(tmp_path, standin.url)


async def test_browser_on_this_machine_ends_at_the_command_which_keeps_the_sign_in(terminal, standin, tmp_path):
    login = await terminal.start("login", "web")
    redirect = standin.approve(await address_of(login))
    async with httpx2.AsyncClient() as browser:
        root = redirect.partition("?")[0]
        guesses = [await browser.get(url) for url in (f"{root}?state=guess&code=x", root, f"{root}/other")]
        page = await browser.get(redirect)
    code, said = await ended(login)

    assert [guess.status_code for guess in guesses] == [404, 404, 404]
    assert (page.status_code, page.headers["content-type"]) == (200, "text/plain")
    assert code == OK
    assert f"Signed in to web at {standin.origin}; granted: read offline_access." in said
    (state,) = (tmp_path / "state").iterdir()
    assert (state / "sign-ins").stat().st_mode & 0o777 == 0o700
    code, said = await terminal.run("logout", "web")
    assert (code, said) == (OK, "the sign-in to web is ended and forgotten\n")
    assert standin.refresh_tokens == {}
    assert await terminal.run("logout", "web") == (OK, "nobody has signed in to web\n")


async def test_address_may_be_pasted_where_no_browser_reaches_the_machine(terminal, standin):
    login = await terminal.start("login", "web", "--no-browser")
    redirect = standin.approve(await address_of(login))
    assert login.stdin is not None
    login.stdin.write(f"http://127.0.0.1/callback?state=no\n\n  {redirect}\n".encode())
    await login.stdin.drain()
    code, said = await ended(login)

    assert code == OK
    assert said.count("belongs to no sign-in") == 1
    for secret in (*standin.valid, *standin.refresh_tokens):
        assert secret not in said


async def test_refusal_is_said_with_its_reason(terminal, standin):
    login = await terminal.start("login", "web")
    redirect = standin.approve(await address_of(login), error="access_denied", code=None)
    async with httpx2.AsyncClient() as browser:
        await browser.get(redirect)
    code, said = await ended(login)

    assert code == UNREACHABLE
    assert "can't sign in to 'web': its authorization server refused the sign-in: access_denied" in said


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("other", "no server is called 'other': the servers are web, local, keyed"),
        ("local", "has no `url`"),
        ("keyed", "has an Authorization header"),
    ],
)
async def test_server_that_can_not_be_signed_in_to_is_named(terminal, name, words):
    code, said = await terminal.run("login", name)

    assert code == CONFIG
    assert words in said


async def test_call_to_a_server_that_wants_a_sign_in_says_what_to_type(terminal, standin):
    code, said = await terminal.run("call", "web__x")
    assert code == UNREACHABLE
    assert "nobody has signed in to it: run `codec-gateway login web`" in said.replace(".venv/bin/", "")
    code, said = await terminal.run("doctor")

    assert "run `codec-gateway login web`" in said.replace(".venv/bin/", "")


async def test_sign_in_of_one_principal_is_ended_and_of_no_other(terminal, standin, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with terminal.config.open("a") as file:
        file.write('[serve]\noauth = { issuer = "https://login.example", resource = "https://gateway.example/mcp" }\n')
    assert (await terminal.run("keys", "add", "ann"))[0] == OK
    store, owners = GrantStore(), {"oauth:ann": "oauth:https://login.example ann"}
    owners["ann"] = KeyFile(tmp_path / "keys.toml").read()["ann"].owner
    grants = {name: GrantKey(owner, "web", standin.url) for name, owner in owners.items()}
    for name, where in grants.items():
        endpoints = (f"{standin.origin}/token", f"{standin.origin}/revoke")
        store.write(
            where, Grant(standin.origin, *endpoints, Client("c"), "", None, f"access-{name}", f"refresh-{name}")
        )
        standin.refresh_tokens[f"refresh-{name}"] = {}

    assert await terminal.run("logout", "web") == (OK, "nobody has signed in to web\n")
    assert (await terminal.run("logout", "web", "--principal", "bob"))[0] == CONFIG
    for name, left in (("ann", {"refresh-oauth:ann"}), ("oauth:ann", set())):
        assert await terminal.run("logout", "web", "--principal", name) == (
            OK,
            "the sign-in to web is ended and forgotten\n",
        )
        assert set(standin.refresh_tokens) == left
        assert await terminal.run("logout", "web", "--principal", name) == (OK, f"{name} has not signed in to web\n")


async def test_operator_signs_in_on_loopback_where_each_user_has_a_sign_in_of_their_own(terminal):
    with terminal.config.open("a") as file:
        file.write('[upstreams.web.auth]\nper_user = true\nredirect_url = "https://gw.example/sign-in/callback"\n')
    process = await terminal.start("login", "web")
    address = await address_of(process)
    process.kill()
    await process.wait()

    assert parse_qs(urlsplit(address).query)["redirect_uri"][0].startswith("http://127.0.0.1:")
