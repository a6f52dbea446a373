"""`codec-gateway engine`: the packaged llama.cpp server on its own, for a gateway in another container.

Reads the engine's settings as `serve` does, and runs `gateway.engine.embedded.engine_process` until a signal or until
the server ends. It decides nothing about generations: the gateway with its address does (`serve --engine URL`).
"""

import os
import signal
from pathlib import Path
from typing import Annotated

import anyio
import typer

from gateway.cli.model import need_model
from gateway.config import EngineConfig
from gateway.config.address import is_loopback
from gateway.config.load import load_config
from gateway.engine.embedded.engine_process import EmbeddedServer, Listening, embedded_server
from gateway.errors import EngineUnavailable
from gateway.observe.logs import configure_logging, get_logger

log = get_logger("engine")
KEY_VARIABLE = "CODEC_ENGINE_KEY"


def engine(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", help="The configuration whose table `engine` is used (default: codec-gateway.toml here)."
        ),
    ] = None,
    model: Annotated[Path | None, typer.Option(help="GGUF file of the model (default: the packaged SmolLM2).")] = None,
    chat_template_file: Annotated[
        str | None,
        typer.Option(help="Chat template: a file (Jinja), or chatml.", show_default="the model's own"),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the llama.cpp server.")] = 8080,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the packaged llama.cpp server on its own. A gateway elsewhere uses it with `serve --engine http://HOST:8080`.

    If CODEC_ENGINE_KEY is set, every client must send it (the gateway's `engine.api_key`).

    Example: codec-gateway engine --model model.gguf
    """
    flags: dict[str, object] = {"engine": "embedded"}
    if model is not None:
        flags["engine.model"] = model
    if chat_template_file is not None:
        flags["engine.chat_template"] = chat_template_file
    settings = load_config(config, flags).engine
    need_model(settings)
    key = os.environ.get(KEY_VARIABLE) or None
    configure_logging(level=log_level, secrets=[key] if key else [])
    if key is None and not is_loopback(host):
        log.warning(
            "anybody who can reach this port can generate: set CODEC_ENGINE_KEY, or let only the gateway reach it"
        )
    failure = anyio.run(_run, settings, Listening(host, port, key))
    if failure is not None:
        raise failure


async def _run(settings: EngineConfig, listening: Listening) -> EngineUnavailable | None:
    async with embedded_server(settings, listening) as server:
        log.info("engine ready", url=server.url, context=settings.context, slots=settings.slots)
        why = await _ended(server)
    return None if why is None else EngineUnavailable(why)


async def _ended(server: EmbeddedServer) -> str | None:
    """Wait for a signal (None) or for the server's own end (why it ended)."""
    why: str | None = None
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                nonlocal why
                why = await server.ended()
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            await anext(signals)
            tasks.cancel_scope.cancel()
    return why
