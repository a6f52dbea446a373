"""A real mcp server of both eras that asks its client for things and tells it others.

`stdio`: on its standard streams; otherwise over HTTP, and it prints its port. `modern-only`: of one era. It notes its
process, and what becomes of `hang`.
"""

import os
import socket
import sys
from typing import Any

import anyio
import mcp.types as t
import uvicorn
from mcp import MCPError
from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ToolsListChanged

URI = "note:1"
TOOLS = ["elicit", "sample", "roots", "both", "count", "log", "hang", "grow", "touch"]
ANY = {"type": "object"}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
MESSAGES = [t.SamplingMessage(role="user", content=t.TextContent(type="text", text="2+2?"))]
bus = InMemorySubscriptionBus()
watchers: list[Any] = []


def note(text: str) -> None:
    with open(os.environ["NOTES"], "a", encoding="utf-8") as notes:  # noqa: PTH123
        notes.write(text + "\n")


def said(text: str) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(type="text", text=text)])


async def ask_in_the_call(ctx: Any, kind: str) -> str:
    """The handshake era's way: a request in the middle of the call."""
    if kind == "elicit":
        answer = await ctx.session.elicit_form("who?", FORM, related_request_id=ctx.request_id)
        return str(answer.content["name"]) if answer.action == "accept" else answer.action
    if kind == "sample":
        made = await ctx.session.create_message(MESSAGES, max_tokens=9, related_request_id=ctx.request_id)
        return str(made.content.text)
    return ",".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


def question(kind: str) -> Any:
    if kind == "elicit":
        return t.ElicitRequest(params=t.ElicitRequestFormParams(message="who?", requested_schema=FORM))
    if kind == "sample":
        return t.CreateMessageRequest(params=t.CreateMessageRequestParams(messages=MESSAGES, max_tokens=9))
    return t.ListRootsRequest()


def read_answer(answer: Any) -> str:
    if isinstance(answer, t.ElicitResult):
        return str(answer.content["name"]) if answer.content else answer.action
    if isinstance(answer, t.ListRootsResult):
        return ",".join(str(root.uri) for root in answer.roots)
    return str(answer.content.text)


async def ask(ctx: Any, params: Any, kinds: list[str]) -> Any:
    if ctx.protocol_version != "2026-07-28":
        return said(" ".join([await ask_in_the_call(ctx, kind) for kind in kinds]))
    if not params.input_responses:
        return t.InputRequiredResult(input_requests={kind: question(kind) for kind in kinds}, request_state="mine")
    assert params.request_state == "mine"
    return said(" ".join(read_answer(params.input_responses[kind]) for kind in kinds))


async def tell(ctx: Any, name: str) -> None:
    if name == "count":
        for number in (1, 2, 3):
            await ctx.session.report_progress(number, 3)
    elif name == "log":
        for level in ("debug", "info", "error"):
            await ctx.session.send_log_message(level, f"it is {level}", related_request_id=ctx.request_id)
    elif name == "grow":
        TOOLS.append(f"grown{len(TOOLS)}")
        await ctx.session.send_tool_list_changed()
        await bus.publish(ToolsListChanged())
    elif name == "touch":
        for session in watchers:
            await session.send_resource_updated(URI)
        await bus.publish(ResourceUpdated(uri=URI))


async def call_tool(ctx: Any, params: Any) -> Any:
    if params.name == "hang":
        note("hangs")
        try:
            await anyio.sleep_forever()
        finally:
            note("cancelled")
    if params.name in {"elicit", "sample", "roots", "both"}:
        return await ask(ctx, params, ["elicit", "sample"] if params.name == "both" else [params.name])
    await tell(ctx, params.name)
    return said("done")


async def list_tools(_: Any, __: Any) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[t.Tool(name=name, input_schema=ANY) for name in TOOLS])


async def list_resources(_: Any, __: Any) -> t.ListResourcesResult:
    return t.ListResourcesResult(resources=[t.Resource(uri=URI, name="note")])


async def subscribe(ctx: Any, _: Any) -> t.EmptyResult:
    watchers.append(ctx.session)
    return t.EmptyResult()


async def set_level(_: Any, params: Any) -> t.EmptyResult:
    note(f"level {params.level}")
    return t.EmptyResult()


class Talks(Server[Any]):
    def create_initialization_options(self, *_: Any, **__: Any) -> Any:
        return super().create_initialization_options(NotificationOptions(tools_changed=True, resources_changed=True))


server = Talks(
    "talks",
    version="1",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_subscribe_resource=subscribe,
    on_set_logging_level=set_level,
    on_subscriptions_listen=ListenHandler(bus),
)


async def refuse_the_handshake(ctx: Any, call_next: Any) -> Any:
    if ctx.method == "initialize":
        raise MCPError(-32601, "no handshakes here")
    return await call_next(ctx)


if "modern-only" in sys.argv:
    server.middleware.append(refuse_the_handshake)


async def over_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


note(f"pid {os.getpid()}")
if "stdio" in sys.argv:
    anyio.run(over_stdio)
else:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="critical", ws="none")).run(
        sockets=[listener]
    )
