"""A client and a server of the mcp SDK, each of either era and over either wire, with the gateway between them."""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp.types as t
import pytest
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from gateway.config.gateway_config import GatewayConfig, UpstreamConfig
from gateway.observe.metrics import Metrics
from gateway.proxy.proxy import Proxy
from gateway.serve.mcp import McpEndpoint

SCRIPT = Path(__file__).parents[3] / "proxy" / "servers" / "talks.py"
MODES = {"handshake": "legacy", "modern": "2026-07-28"}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Person:
    """Who sits at the client: what they are asked, what they hear, how they answer."""

    questions: list[str] = field(default_factory=list)
    logs: list[tuple[str, object]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    answer: t.ElicitResult = field(default_factory=lambda: t.ElicitResult(action="accept", content={"name": "Ada"}))

    async def fill_in(self, _: object, params: Any) -> t.ElicitResult:
        self.questions.append(params.message)
        return self.answer

    async def generate(self, _: object, params: Any) -> t.CreateMessageResult:
        self.questions.append(params.messages[0].content.text)
        return t.CreateMessageResult(role="assistant", content=t.TextContent(type="text", text="Four."), model="tiny")

    async def show_roots(self, _: object) -> t.ListRootsResult:
        self.questions.append("roots")
        return t.ListRootsResult(roots=[t.Root(uri="file:///home")])

    async def log(self, params: Any) -> None:
        self.logs.append((params.level, params.data))

    async def hear(self, message: Any) -> None:
        if not isinstance(message, Exception):
            self.notices.append(message.method)


@dataclass
class Meeting:
    """The three of them."""

    client_era: str
    server_era: str
    client: Client
    person: Person
    proxy: Proxy
    _notes: Path

    def noted(self, line: str) -> int:
        """How often the server wrote this down."""
        return self._notes.read_text().splitlines().count(line) if self._notes.exists() else 0

    async def say(self, tool: str, **more: Any) -> str:
        with anyio.fail_after(30):
            result = await self.client.call_tool(f"talks__{tool}", {}, **more)
        return result.content[0].text

    async def soon(self, condition: Callable[[], object]) -> None:
        with anyio.fail_after(20):
            while not condition():  # noqa: ASYNC110
                await anyio.sleep(0.01)


@pytest.fixture(scope="session")
def talks_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The server over HTTP, and where it writes what it notes; shared by all."""
    notes = tmp_path_factory.mktemp("talks") / "notes"
    environment = {**os.environ, "NOTES": str(notes)}
    with subprocess.Popen([sys.executable, str(SCRIPT)], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp", notes
        process.kill()


@asynccontextmanager
async def over_http(proxy: Proxy, config: GatewayConfig) -> AsyncGenerator[Callable[[], Any]]:
    """Runs the gateway; gives what connects to it."""
    endpoint = McpEndpoint(proxy, config, tokens=None, maps={})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings = uvicorn.Config(
            endpoint, lifespan="off", log_level="critical", ws="none", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(settings)
        async with proxy, endpoint.running(), anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            async with httpx2.AsyncClient(timeout=30) as http:
                url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
                yield lambda: streamable_http_client(url, http_client=http)
            server.should_exit = True


@asynccontextmanager
async def over_pipes(proxy: Proxy, config: GatewayConfig) -> AsyncGenerator[Callable[[], Any]]:
    """As `over_http`, for one client."""
    source, to_us = os.pipe()
    from_us, sink = os.pipe()
    endpoint = McpEndpoint(proxy, config, tokens=None, maps={})
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(endpoint.serve_descriptors, source, sink, proxy)
            yield lambda: piped(to_us, from_us)
    finally:
        for descriptor in (source, sink, from_us):
            os.close(descriptor)


@asynccontextmanager
async def piped(to_us: int, from_us: int) -> AsyncGenerator[tuple[Any, Any]]:
    """A transport of the SDK's on two descriptors: a message a line."""
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](100)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](100)

    async def listen() -> None:
        kept = b""
        while True:
            await anyio.wait_readable(from_us)
            *lines, kept = (kept + os.read(from_us, 1 << 16)).split(b"\n")
            for line in lines:
                await incoming.send(SessionMessage(t.jsonrpc_message_adapter.validate_json(line)))

    async def talk() -> None:
        async for message in outgoing:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            os.write(to_us, line.encode() + b"\n")

    async with incoming, read, write, outgoing, anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        tasks.start_soon(talk)
        yield read, write
        tasks.cancel_scope.cancel()
        os.close(to_us)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((client, server, front), id=f"{client} client over {front}, {server} server")
        for client in MODES
        for server in MODES
        for front in ("http", "pipes")
    ],
)
async def meeting(
    request: pytest.FixtureRequest,
    anyio_backend: str,
    talks_url: tuple[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[Meeting]:
    """A client over HTTP meets a server on pipes, one on pipes a server over HTTP."""
    client_era, server_era, front = request.param
    notes = tmp_path_factory.mktemp("notes") / "notes"
    if front == "http":
        where: dict[str, Any] = {
            "command": sys.executable,
            "args": (str(SCRIPT), "stdio"),
            "env": {"NOTES": str(notes)},
        }
    else:
        where, notes = {"url": talks_url[0]}, talks_url[1]
    config = GatewayConfig(upstreams=(UpstreamConfig(name="talks", protocol=server_era, **where),), prefix="always")
    person = Person()
    run = over_http if front == "http" else over_pipes
    async with AsyncExitStack() as stack:
        proxy = Proxy(config, Metrics())
        connect = await stack.enter_async_context(run(proxy, config))

        client = Client(
            connect(),
            mode=MODES[client_era],
            cache=None,
            log_level="info",
            elicitation_callback=person.fill_in,
            sampling_callback=person.generate,
            list_roots_callback=person.show_roots,
            logging_callback=person.log,
            message_handler=person.hear,
        )
        yield Meeting(client_era, server_era, await stack.enter_async_context(client), person, proxy, notes)
