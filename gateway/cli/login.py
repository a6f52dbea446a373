"""`codec-gateway login`: sign in to a remote MCP server, once, for every caller of this gateway.

Prints the address for the browser, and takes the answer from the browser or from a pasted line. It decides nothing:
`gateway.proxy.transport.oauth` speaks with the servers and keeps the tokens.
"""

import asyncio
import os
import sys
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import anyio
import typer

from gateway.app.mcp_services import open_sign_ins
from gateway.cli.terminal import plain_console, say
from gateway.cli.until_signal import run_until_signal
from gateway.config.gateway_config import GatewayConfig, UpstreamConfig
from gateway.config.load import load_config
from gateway.config.show import secrets_of
from gateway.errors import ConfigError, UpstreamUnavailable
from gateway.http1.connection import LinkLost, NoAnswer
from gateway.observe.logs import configure_logging
from gateway.proxy.transport.http.client import open_http_client
from gateway.proxy.transport.oauth.discovery import fetcher_for
from gateway.proxy.transport.oauth.grants import OPERATOR, Grant, GrantKey, GrantStore
from gateway.proxy.transport.oauth.sign_in import Redirects, begin_sign_in, open_redirects
from gateway.proxy.transport.oauth.user_sign_ins import keep_sign_in

_SIGN_IN_TIME: Final = 900.0
"""Seconds that a person has to sign in."""
_LINE: Final = 16 * 1024


def login(
    name: Annotated[str, typer.Argument(help="The server's name in the configuration.", show_default=False)],
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The configuration of `serve` (default: codec-gateway.toml here)."),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Whether to open a browser, if this machine has one.")
    ] = True,
) -> None:
    """Sign in to a remote MCP server that asks for it. A running gateway uses the sign-in at once, for every caller.

    Where no browser can reach this machine, open the printed address elsewhere, and paste the one at which you end.

    Exit code 0: signed in; 3: no such server; 4: the server or its authorization server refused, or did not answer.
    """
    settings = load_config(config)
    upstream = upstream_named(settings, name)
    configure_logging(level="error", secrets=secrets_of(settings))
    try:
        grant = run_until_signal(_sign_in, settings, upstream, browser)
    except (NoAnswer, LinkLost) as error:
        raise UpstreamUnavailable(f"can't sign in to {name!r}: {error}", server=name) from None
    console = plain_console(stderr=True)
    say(
        console, f"Signed in to {name} at {grant.issuer}; granted: {grant.scope or 'what the server gives by default'}."
    )
    if grant.refresh is None:
        say(console, "It gave no refresh token: you will have to sign in again when this sign-in expires.")


def upstream_named(settings: GatewayConfig, name: str) -> UpstreamConfig:
    """The server of that name, if people can sign in to it. Raises `ConfigError`."""
    upstream = next((each for each in settings.upstreams if each.name == name), None)
    if upstream is None:
        known = ", ".join(each.name for each in settings.upstreams) or "none"
        raise ConfigError(f"no server is called {name!r}: the servers are {known}")
    if upstream.url is None:
        raise ConfigError(f"server {name!r} has no `url`: only servers over HTTP ask for a sign-in")
    if upstream.oauth is not None:
        raise ConfigError(f"server {name!r} has credentials of its own (`oauth`): it needs no sign-in")
    if any(header.lower() == "authorization" for header in upstream.headers):
        raise ConfigError(f"server {name!r} has an Authorization header under `headers`: remove it to sign in instead")
    return upstream


async def _sign_in(settings: GatewayConfig, upstream: UpstreamConfig, browser: bool) -> Grant:
    async with open_sign_ins(settings) as store:
        return await _sign_in_at(store, upstream, browser)


async def _sign_in_at(store: GrantStore, upstream: UpstreamConfig, browser: bool) -> Grant:
    key = GrantKey(OPERATOR, upstream.name, upstream.url or "")
    known = store.read(key)
    # Where each user signs in for itself, the address is the running gateway's.
    configured = None if upstream.auth is None or upstream.has_user_pages else upstream.auth.redirect_url
    async with (
        open_http_client() as client,
        open_redirects(configured, None if known is None else known.client.redirect_uri) as redirects,
    ):
        flow = await begin_sign_in(upstream, client, redirects.uri, known)
        redirects.expect(flow.read_redirect)
        _show(flow.address(), flow.server.issuer, browser=browser)
        _listen_to_terminal(redirects)
        try:
            with anyio.fail_after(_SIGN_IN_TIME):
                code = await redirects.code()
        except TimeoutError:
            raise NoAnswer(f"nobody signed in within {_SIGN_IN_TIME / 60:g} minutes") from None
        return await keep_sign_in(store, key, flow, fetcher_for(upstream, client), code)


def _show(address: str, issuer: str, *, browser: bool) -> None:
    console = plain_console(stderr=True)
    say(console, f"Sign in at {issuer}: open this address in a browser.")
    typer.echo(address)
    say(console, "Waiting. If your browser ends at a page that does not load, paste its address here.")
    if browser and (sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        # Not waited for: some browsers stay in the foreground.
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _listen_to_terminal(redirects: Redirects) -> None:
    """Take pasted addresses, line by line, in a thread: a read can't be cancelled."""
    loop = asyncio.get_running_loop()

    def take(line: str) -> None:
        if line and not redirects.take(line):
            say(plain_console(stderr=True), "That address belongs to no sign-in that is under way here; paste another.")

    def pass_on(line: str) -> None:
        loop.call_soon_threadsafe(take, line)

    threading.Thread(target=_read_lines, args=(pass_on,), daemon=True).start()


def _read_lines(take: Callable[[str], object]) -> None:
    pending = b""
    # Not `sys.stdin`, whose lock would be held when Python ends.
    while data := os.read(0, _LINE):
        *lines, pending = (pending + data).split(b"\n")
        pending = pending[-_LINE:]
        try:
            for line in lines:
                take(line.decode("utf-8", "replace").strip())
        except RuntimeError:
            return
