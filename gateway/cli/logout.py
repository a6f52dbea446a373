"""`codec-gateway logout`: forget a sign-in, and have the authorization server end it.

Prints what happened. It decides nothing: `gateway.proxy.transport.oauth` keeps the tokens and revokes them.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import anyio
import typer

from gateway.app.mcp_services import open_sign_ins
from gateway.cli.login import upstream_named
from gateway.config.gateway_config import GatewayConfig, UpstreamConfig
from gateway.config.load import load_config
from gateway.errors import ConfigError
from gateway.escape import escape_text
from gateway.http1.connection import LinkLost, NoAnswer
from gateway.proxy.transport.http.client import open_http_client
from gateway.proxy.transport.oauth.discovery import fetcher_for
from gateway.proxy.transport.oauth.grants import OPERATOR, REGISTRATION, GrantKey, GrantStore
from gateway.proxy.transport.oauth.sign_in import revoke


def logout(
    name: Annotated[str, typer.Argument(help="The server's name in the configuration.", show_default=False)],
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The configuration of `serve` (default: codec-gateway.toml here)."),
    ] = None,
    principal: Annotated[
        str | None,
        typer.Option(
            help="End the sign-in of this caller, where each has its own (`auth.per_user`): the name of a key, or "
            "`oauth:` and the subject of access tokens.",
            show_default="the one of codec-gateway login",
        ),
    ] = None,
) -> None:
    """Forget the sign-in to a remote MCP server, and have its authorization server end it where it can."""
    settings = load_config(config)
    upstream = upstream_named(settings, name)
    owner, absent = OPERATOR, "nobody has"
    if principal is not None:
        owner, absent = _owner_of(settings, principal), f"{principal} has not"
    typer.echo(anyio.run(_sign_out, settings, upstream, owner, absent))


def _owner_of(settings: GatewayConfig, principal: str) -> str:
    """Whose sign-ins a caller of this name uses. Raises `ConfigError` if there is no such caller."""
    from gateway.serve.auth.identity import SUBJECT_PREFIX, owner_of_subject

    if principal.startswith(SUBJECT_PREFIX):
        if settings.serve.oauth is None:
            raise ConfigError(f"{principal!r} uses access tokens, but `serve.oauth` is not configured")
        return owner_of_subject(settings.serve.oauth.issuer, principal.removeprefix(SUBJECT_PREFIX))
    from gateway.serve.auth.api_keys import KeyFile

    keys = {} if settings.serve.keys is None else KeyFile(settings.serve.keys).read()
    if principal not in keys:
        raise ConfigError(f"there is no key {principal!r}: `codec-gateway keys list` shows those that there are")
    return keys[principal].owner


async def _sign_out(settings: GatewayConfig, upstream: UpstreamConfig, owner: str, absent: str) -> str:
    async with open_sign_ins(settings) as store:
        return await _sign_out_at(store, upstream, owner, absent)


async def _sign_out_at(store: GrantStore, upstream: UpstreamConfig, owner: str, absent: str) -> str:
    key = GrantKey(owner, upstream.name, upstream.url or "")
    shared = replace(key, owner=REGISTRATION)
    if owner == OPERATOR and store.state(shared) is not None:
        # The next user's sign-in registers the gateway anew: an authorization server may have forgotten the client.
        store.delete(shared)
    if store.state(key) is None and await store.known(key) is None:
        return f"{absent} signed in to {upstream.name}"
    async with store.alone(key), open_http_client() as client:
        grant = await store.known(key)
        is_told = await store.replace(key, None)
        if not is_told:
            return (
                f"the sign-in to {upstream.name} is forgotten here, but the store that replicas share does not answer"
            )
        if grant is None:
            return f"the sign-in to {upstream.name} could not be read, and is forgotten"
        try:
            ended = await revoke(grant, fetcher_for(upstream, client))
        except (NoAnswer, LinkLost) as error:
            return f"the sign-in to {upstream.name} is forgotten, but not ended: {escape_text(str(error), 300)}"
    how = "ended and forgotten" if ended else "forgotten; its authorization server ends it when it expires"
    return f"the sign-in to {upstream.name} is {how}"
