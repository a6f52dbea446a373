"""What a request gets that comes while the gateway stops: 503, and when to ask again.

Each API has its own shape of an error: a client of MCP reads JSON-RPC alone.
"""

from typing import Final

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from gateway.serve.http.anthropic import REQUEST_ID, anthropic_error, speaks_anthropic
from gateway.serve.http.request_id import new_request_id
from gateway.serve.mcp.http import Rejected, send_rejection

_STOPPING: Final = "the gateway is stopping; ask again"


async def stopping(scope: Scope, receive: Receive, send: Send) -> None:
    """An ASGI application that refuses."""
    if scope["path"].startswith("/mcp"):
        headers = [(b"retry-after", b"2"), (b"connection", b"close")]
        await send_rejection(send, Rejected(503, _STOPPING, headers=headers))
        return
    headers = {"retry-after": "2", "connection": "close"}
    if speaks_anthropic(scope):
        named = new_request_id()
        status, body = anthropic_error(503, _STOPPING, named)
        headers[REQUEST_ID] = named
    else:
        status, body = 503, {"error": {"message": _STOPPING, "type": "server_error"}}
    await JSONResponse(body, status, headers)(scope, receive, send)
