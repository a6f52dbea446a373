"""What a request gets that comes while the gateway stops: 503, and when to ask again.

Each API has its own shape of an error: a client of MCP reads JSON-RPC alone.
"""

from starlette.types import Receive, Scope, Send

from gateway.serve.http.errors import SOON, error_response
from gateway.serve.mcp.http import AGAIN, STOPPING, Rejected, send_rejection


async def stopping(scope: Scope, receive: Receive, send: Send) -> None:
    """An ASGI application that refuses."""
    if scope["path"].startswith("/mcp"):
        headers = (*AGAIN, (b"connection", b"close"))
        await send_rejection(send, Rejected(503, STOPPING, headers=headers))
        return
    refusal = error_response(503, STOPPING, code="stopping", headers={**SOON, "connection": "close"})
    await refusal(scope, receive, send)
