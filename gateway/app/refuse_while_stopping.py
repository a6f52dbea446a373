"""What a request gets that comes while the gateway stops: 503, and when to ask again.

Each API has its own shape of an error: a client of MCP reads JSON-RPC alone.
"""

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from gateway.serve.http.anthropic import REQUEST_ID, anthropic_error, speaks_anthropic
from gateway.serve.http.request_id import new_request_id
from gateway.serve.mcp.http import AGAIN, STOPPING, Rejected, send_rejection


async def stopping(scope: Scope, receive: Receive, send: Send) -> None:
    """An ASGI application that refuses."""
    if scope["path"].startswith("/mcp"):
        headers = (*AGAIN, (b"connection", b"close"))
        await send_rejection(send, Rejected(503, STOPPING, headers=headers))
        return
    headers = {"retry-after": "2", "connection": "close"}
    if speaks_anthropic(scope):
        named = new_request_id()
        status, body = anthropic_error(503, STOPPING, named)
        headers[REQUEST_ID] = named
    else:
        status, body = 503, {"error": {"message": STOPPING, "type": "server_error"}}
    await JSONResponse(body, status, headers)(scope, receive, send)
