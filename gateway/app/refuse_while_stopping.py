"""What a request gets that comes while the gateway stops: 503, and when to ask again.

Each API has its own shape of an error: a client of MCP reads JSON-RPC alone.
"""

from typing import Final

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from gateway.serve.mcp.http import Rejected, send_rejection

_STOPPING: Final = "the gateway is stopping; ask again"


async def stopping(scope: Scope, receive: Receive, send: Send) -> None:
    """An ASGI application that refuses."""
    if scope["path"].startswith("/mcp"):
        headers = [(b"retry-after", b"2"), (b"connection", b"close")]
        await send_rejection(send, Rejected(503, _STOPPING, headers=headers))
        return
    body = {"error": {"message": _STOPPING, "type": "server_error"}}
    await JSONResponse(body, 503, {"retry-after": "2", "connection": "close"})(scope, receive, send)
