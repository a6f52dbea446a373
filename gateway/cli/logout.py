"""`codec-gateway logout`: forget a sign-in, and have the authorization server end it.

Prints what happened. It decides nothing: `gateway.proxy.transport.oauth` keeps the tokens and revokes them.
"""

from pathlib import Path
from typing import Annotated

import anyio
import typer

from gateway.cli.login import upstream_named
from gateway.config.load import load_config
from gateway.config.model import UpstreamConfig
from gateway.http1.faults import LinkLost, NoAnswer
from gateway.observe.escape import escape_text
from gateway.proxy.transport.http.client import open_http_client
from gateway.proxy.transport.oauth.documents import fetcher_for
from gateway.proxy.transport.oauth.grant_store import OPERATOR, GrantKey, GrantStore
from gateway.proxy.transport.oauth.sign_in import revoke


def logout(
    name: Annotated[str, typer.Argument(help="The server's name in the configuration.", show_default=False)],
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The configuration of `serve` (default: codec-gateway.toml here)."),
    ] = None,
) -> None:
    """Forget the sign-in to a remote MCP server, and have its authorization server end it where it can."""
    typer.echo(anyio.run(_sign_out, upstream_named(load_config(config), name)))


async def _sign_out(upstream: UpstreamConfig) -> str:
    store, key = GrantStore(), GrantKey(OPERATOR, upstream.name, upstream.url or "")
    if store.state(key) is None:
        return f"nobody has signed in to {upstream.name}"
    async with store.alone(key), open_http_client() as client:
        grant = store.read(key)
        store.delete(key)
        if grant is None:
            return f"the sign-in to {upstream.name} could not be read, and is forgotten"
        try:
            ended = await revoke(grant, fetcher_for(upstream, client))
        except (NoAnswer, LinkLost) as error:
            return f"the sign-in to {upstream.name} is forgotten, but not ended: {escape_text(str(error), 300)}"
    how = "ended and forgotten" if ended else "forgotten; its authorization server ends it when it expires"
    return f"the sign-in to {upstream.name} is {how}"
