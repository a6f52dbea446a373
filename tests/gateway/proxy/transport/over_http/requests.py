"""A call and a greeting over an open transport, and the head of an answer."""

from typing import Any

import anyio

from gateway.proxy.transport.transport_interface import (
    Transport,
)

from .raw_server import Asked, Reply

HANDSHAKE = "2025-11-25"


MODERN = "2026-07-28"


async def call(transport: Transport, *args: Any, **arguments: Any) -> dict[str, Any]:
    with anyio.fail_after(20):
        return await transport.request("tools/call", {"name": "x", "arguments": arguments}, *args)


async def shake(transport: Transport) -> None:
    transport.use_version(HANDSHAKE)
    with anyio.fail_after(20):
        await transport.request("initialize", {})


async def friendly(asked: Asked, reply: Reply) -> None:
    """Gives a session, offers no stream of its own, and says `{}` to every request."""
    if asked.method == "GET":
        await reply.whole(405)
    elif asked.method == "DELETE" or "id" not in asked.message or "method" not in asked.message:
        await reply.whole(202)
    elif asked.message["method"] == "initialize":
        await reply.result(asked, {}, mcp_session_id="s-1")
    else:
        await reply.result(asked, {})
