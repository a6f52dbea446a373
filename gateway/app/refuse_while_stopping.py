"""The answer to a request that arrives while the gateway is stopping: 503, and when to ask again.

Each API has its own form of error: an MCP client reads only JSON-RPC.
"""

from starlette.types import Receive, Scope, Send

from gateway.serve.http.errors import SOON, error_response
from gateway.serve.mcp.http import RETRY_AFTER, STOPPING, Rejected, send_rejection


async def stopping(scope: Scope, receive: Receive, send: Send) -> None:
    """An ASGI application that refuses every request."""
    if scope["path"].startswith(("/mcp", "/sse")):
        headers = (*RETRY_AFTER, (b"connection", b"close"))
        await send_rejection(send, Rejected(503, STOPPING, headers=headers))
        return
    refusal = error_response(503, STOPPING, code="stopping", headers={**SOON, "connection": "close"})
    await refusal(scope, receive, send)
