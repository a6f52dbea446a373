"""A real mcp server over Streamable HTTP that says and asks things: prints its port, then serves.

`json`: answers are JSON where they can be. `store`: event streams can be resumed, and are closed in mid-call. `sse`: it
speaks only the transport before Streamable HTTP, at /sse.
"""

import socket
import sys

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.types import JSONRPCMessage
from pydantic import BaseModel


class Kept(EventStore):
    """Every event, for ever; a test is short."""

    def __init__(self) -> None:
        self.events: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self.events.append((stream_id, message))
        return str(len(self.events) - 1)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        stream = self.events[int(last_event_id)][0]
        for number in range(int(last_event_id) + 1, len(self.events)):
            which, message = self.events[number]
            if which == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


class Answer(BaseModel):
    name: str


server = MCPServer("pushes")


@server.tool(structured_output=False)
async def count(ctx: Context, to: int) -> str:
    """Report progress."""
    for number in range(to):
        await ctx.report_progress(number, to)
    return "counted"


@server.tool(structured_output=False)
async def ask(ctx: Context) -> str:
    """Ask the person."""
    answer = await ctx.elicit("who?", Answer)
    return answer.model_dump_json()


@server.tool(structured_output=False)
async def change(ctx: Context) -> str:
    """Say on the session's own stream that the tools changed."""
    await ctx.session.send_tool_list_changed()
    return "changed"


@server.tool(structured_output=False)
async def part(ctx: Context) -> str:
    """Close the stream in mid-call; the answer is to be fetched."""
    await ctx.report_progress(1, 2)
    await ctx.close_sse_stream()
    await ctx.report_progress(2, 2)
    return "fetched"


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
sys.stdout.write(f"{listener.getsockname()[1]}\n")
sys.stdout.flush()
stored = {"event_store": Kept(), "retry_interval": 10} if "store" in sys.argv else {}
app = server.sse_app() if "sse" in sys.argv else server.streamable_http_app(json_response="json" in sys.argv, **stored)
uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none")).run(sockets=[listener])
