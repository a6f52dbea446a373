"""`codec-gateway serve`: the gateway as a server."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import anyio
import typer

from gateway.app.process import run_gateway
from gateway.cli.model import need_model
from gateway.config.engines import copies
from gateway.config.load import load_config
from gateway.config.model import GatewayConfig
from gateway.config.nesting import refuse_nesting
from gateway.config.show import secrets_of
from gateway.engine.maps import has_no_model
from gateway.observe.logs import configure_logging, get_logger
from gateway.serve.auth.token import ensure_token

log = get_logger("serve")


def serve(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="mcpServers JSON (Claude Desktop, Cursor, VS Code) or TOML.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="embedded, none, or the URL of a llama.cpp server.", show_default="none")
    ] = None,
    engines: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Embedded engines to start, which share the work.", show_default="1"),
    ] = None,
    model: Annotated[Path | None, typer.Option(help="GGUF file of the model (the packaged SmolLM2 if unset).")] = None,
    token_map: Annotated[
        str | None,
        typer.Option("--map", help="Token map: a path, auto (from the model), or none.", show_default="auto"),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Where to listen; beyond loopback a token is required.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port of /v1 and /mcp.", show_default="8600")] = None,
    admin_port: Annotated[int | None, typer.Option(help="Port of /metrics and /healthz.", show_default="8601")] = None,
    keys: Annotated[
        Path | None, typer.Option(help="File of the API keys.", show_default="keys.toml beside the configuration")
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve MCP servers and a model: /v1/chat/completions, /v1/models, /mcp, and /metrics on the admin port."""
    configure_logging(level=log_level)
    refuse_nesting(os.environ)
    flags: dict[str, object] = {
        "engine": engine,
        "engine.model": model,
        "tokens.map": token_map,
        "serve.host": host,
        "serve.port": port,
        "serve.admin_port": admin_port,
        "serve.keys": keys,
    }
    given = {name: value for name, value in flags.items() if value is not None}

    def read() -> GatewayConfig:
        settings = load_config(config, given)
        if engines is not None:
            settings = copies(settings, engines)
        settings = replace(settings, serve=replace(settings.serve, token=ensure_token(settings)))
        if token_map is None and has_no_model(settings):
            settings = replace(settings, tokens=replace(settings.tokens, map=None))
        return settings

    settings = read()
    for each in settings.members.values():
        need_model(each)
    configure_logging(level=log_level, secrets=secrets_of(settings))
    for warning in settings.warnings:
        log.warning(warning)
    if settings.tokens.map is None and token_map is None:
        log.info("serving text only: there is no engine and no model to read a token map from")
    anyio.run(run_gateway, settings, read, backend_options={"use_uvloop": True})
