"""Bolt-on tools on a socket: standard input and output, TCP, or a unix socket.

What `codec-leaf serve` calls. Over TCP, MCP is served at `/mcp` beside the tools' own path; beyond this machine a token
is required. A unix socket is for its owner alone.
"""

import ipaddress
import os
import socket
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import anyio
import uvicorn
from mcp.server.stdio import stdio_server

from leaf_sdk.errors import BoltOnError
from leaf_sdk.leaf.bolt_on import CodecTool

from .bolt_on import CallApp
from .mcp_server import build_mcp_server


def _say_nothing() -> None:
    """Do nothing: nobody asked to be told."""


def serve_stdio(tools: Sequence[CodecTool]) -> None:
    """Speak MCP on standard input and output until the input closes."""
    anyio.run(_over_stdio, tools)


def serve_http(
    tools: Sequence[CodecTool],
    host: str = "127.0.0.1",
    port: int = 8300,
    *,
    token: str | None = None,
    on_listening: Callable[[], None] = _say_nothing,
) -> None:
    """Serve `POST /codec/tool/v1/call` and MCP at `/mcp` until interrupted.

    Args:
        on_listening: called when callers can connect and signals are handled; never if the server does not start.

    Raises:
        BoltOnError: an address beyond this machine without a token, or one that is in use or not this machine's.
    """
    if token is None and not _is_loopback(host):
        raise BoltOnError(f"host {host!r} can be reached from other machines; give a token, or listen on 127.0.0.1")
    with _bound_tcp_socket(host, port) as listener:
        config = uvicorn.Config(cast("Any", http_app(tools, host=host, token=token)), log_level="warning")
        _run(config, listener, on_listening)


def serve_unix(
    tools: Sequence[CodecTool], path: str | Path, *, on_listening: Callable[[], None] = _say_nothing
) -> None:
    """Serve `POST /codec/tool/v1/call` on a unix socket, open to this user alone, until interrupted.

    Args:
        on_listening: see `serve_http`.

    Raises:
        BoltOnError: something other than a socket is at the path, or a server answers there.
    """
    with bound_unix_socket(Path(path)) as listener:
        try:
            config = uvicorn.Config(
                cast("Any", CallApp(tools)), fd=listener.fileno(), lifespan="off", log_level="warning"
            )
            _run(config, listener, on_listening)
        finally:
            Path(path).unlink(missing_ok=True)


def http_app(tools: Sequence[CodecTool], *, host: str = "127.0.0.1", token: str | None = None) -> CallApp:
    """Return the ASGI app that serves calls and MCP."""
    mcp_app = build_mcp_server(tools).streamable_http_app(host=host)
    return CallApp(tools, token=token, rest=cast("Any", mcp_app))


def bound_unix_socket(path: Path) -> socket.socket:
    """Bind a unix socket that only its owner may open; a dead one at the path is removed first.

    Raises:
        BoltOnError: something other than a socket is at the path, or a server answers there.
    """
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise BoltOnError(f"{str(path)!r} is not a socket; remove it, or choose another path")
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise BoltOnError(f"a server already answers at {str(path)!r}; stop it, or choose another path")
        path.unlink()
    except FileNotFoundError:
        pass
    listener = socket.socket(socket.AF_UNIX)
    # Not by changing permissions after binding: in between, anybody could connect.
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise BoltOnError(f"socket {str(path)!r} can't be created: {error}") from error
    finally:
        os.umask(before)
    return listener


def _bound_tcp_socket(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise BoltOnError(
            f"can't listen on {host}:{port} ({error.strerror or error}); stop what listens there, "
            "or choose another address"
        ) from error


class _Server(uvicorn.Server):
    """Announces that it listens when callers can connect and a signal ends it cleanly, not before."""

    def __init__(self, config: uvicorn.Config, on_listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_listening()


def _run(config: uvicorn.Config, listener: socket.socket, on_listening: Callable[[], None]) -> None:
    # As uvicorn.run itself does: the server has drained by then.
    with suppress(KeyboardInterrupt):
        _Server(config, on_listening).run(sockets=[listener])


async def _over_stdio(tools: Sequence[CodecTool]) -> None:
    server = build_mcp_server(tools)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
