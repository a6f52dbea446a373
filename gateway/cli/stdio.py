"""`codec-gateway stdio`: the gateway as an MCP server on standard input and output, for desktop clients.

Turns flags into a configuration, runs the proxy and the MCP endpoint until the client closes standard input, and tells
by the exit code how it ended. Standard output belongs to the protocol; the gateway's own messages go to standard error.
It decides nothing: `proxy` and `serve/mcp` do. `app.py` turns errors into a line and an exit code.
"""

import os
import signal
from pathlib import Path
from typing import Annotated

import anyio
import typer

from gateway.app.mcp_services import open_mcp_services
from gateway.cli.exit_codes import INTERRUPTED, OK
from gateway.cli.until_signal import cancel_on_signal
from gateway.config.gateway_config import GatewayConfig
from gateway.config.load import load_config
from gateway.config.programs import refuse_nesting
from gateway.config.show import secrets_of
from gateway.engine.start.maps import MapSet, resolve_maps
from gateway.observe.logs import configure_logging, get_logger
from gateway.proxy.upstream.server_lists import ListCache


def stdio(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="mcpServers JSON (Claude Desktop, Cursor, VS Code) or TOML.")
    ] = None,
    token_map: Annotated[
        str | None, typer.Option("--map", help="Token map: a path, or auto (from the model); unset: text only.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve MCP servers as one, on standard input and output, for a desktop client."""
    configure_logging(level=log_level)
    refuse_nesting(os.environ)
    # Here ids are for the client, not for an engine: there are none unless a map was asked for.
    settings = load_config(config, {"tokens.map": token_map or "none"})
    configure_logging(level=log_level, secrets=secrets_of(settings))
    maps = resolve_maps(settings)
    raise typer.Exit(anyio.run(_run, settings, maps, backend_options={"use_uvloop": True}))


async def _run(settings: GatewayConfig, maps: MapSet) -> int:
    """Serve until standard input closes or a signal arrives; returns the exit code."""
    for warning in settings.warnings:
        get_logger("gateway.cli").warning(warning)
    caught: list[signal.Signals] = []
    with anyio.CancelScope() as scope:
        cancel_on_signal(scope, caught)
        await _serve(settings, maps)
    return INTERRUPTED if signal.SIGINT in caught else OK


async def _serve(settings: GatewayConfig, maps: MapSet) -> None:
    session_map = None if maps.session is None else maps.session.map_id
    async with open_mcp_services(settings, maps, shared=settings.shared, list_cache=ListCache()) as services:
        # The servers start once the client has said what servers may ask of it.
        await services.mcp_endpoint(session_map).serve_stdio(services.proxy, services.proxy.stop)
