"""`codec-gateway serve`: the gateway as a server."""

import os
from pathlib import Path
from typing import Annotated

import anyio
import typer

from gateway.app.options import ServeOptions
from gateway.app.process import run_gateway
from gateway.cli.model import need_model
from gateway.config.programs import refuse_nesting
from gateway.config.show import secrets_of
from gateway.observe.logs import configure_logging, get_logger

log = get_logger("serve")


def serve(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="mcpServers JSON (Claude Desktop, Cursor, VS Code) or TOML.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="embedded, none, or the URL of a llama.cpp or vLLM server.", show_default="none; embedded with --model"
        ),
    ] = None,
    exclusive: Annotated[
        bool,
        typer.Option(
            "--exclusive",
            help="Only this gateway generates with the llama-server at that URL, so it chooses the slots.",
        ),
    ] = False,
    engines: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Number of embedded engines to start; they share the work.", show_default="1"),
    ] = None,
    model: Annotated[Path | None, typer.Option(help="GGUF file of the model (default: the packaged SmolLM2).")] = None,
    chat_template_file: Annotated[
        str | None,
        typer.Option(help="Chat template: a file (Jinja), or chatml.", show_default="the model's own"),
    ] = None,
    token_map: Annotated[
        str | None,
        typer.Option("--map", help="Token map: a path, auto (from the model), or none.", show_default="auto"),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on; beyond loopback a token is required.", show_default="127.0.0.1"),
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port of /v1 and /mcp.", show_default="8600")] = None,
    admin_port: Annotated[int | None, typer.Option(help="Port of /metrics and /healthz.", show_default="8601")] = None,
    keys: Annotated[
        Path | None, typer.Option(help="File with the API keys.", show_default="keys.toml beside the configuration")
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(help="Processes that serve on these ports: a number, or auto: one per core.", show_default="1"),
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve MCP servers and a model: /v1/chat/completions, /v1/models, /mcp, and /metrics on the admin port."""
    configure_logging(level=log_level)
    refuse_nesting(os.environ)
    flags: dict[str, object] = {
        "engine": engine,
        "engine.exclusive": exclusive or None,
        "engine.model": model,
        "engine.chat_template": chat_template_file,
        "tokens.map": token_map,
        "serve.host": host,
        "serve.port": port,
        "serve.admin_port": admin_port,
        "serve.workers": workers,
        "serve.keys": keys,
    }
    options = ServeOptions(
        config, {name: value for name, value in flags.items() if value is not None}, engines, log_level
    )
    settings = options.read()
    for each in settings.members.values():
        need_model(each)
    configure_logging(level=log_level, secrets=secrets_of(settings))
    for warning in settings.warnings:
        log.warning(warning)
    if settings.tokens.map is None and not options.names_map:
        log.info("serving text only: there is neither an engine nor a model to read a token map from")
    if settings.serve.workers == 1:
        anyio.run(run_gateway, settings, options.read, backend_options={"use_uvloop": True})
        return
    # A single process needs none of this.
    from gateway.workers.parent import run_workers

    anyio.run(run_workers, settings, options, backend_options={"use_uvloop": True})
