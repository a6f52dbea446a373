"""What our protocol takes from uvicorn's, which promises none of it. Another version may have it otherwise."""

import ast
import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from httptools import HttpRequestParser
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from gateway.serve.http import client_connection
from gateway.serve.http.client_connection import HttpProtocol

pytestmark = pytest.mark.anyio

ATTRIBUTES = {
    "client": tuple,
    "cycle": RequestResponseCycle,
    "flow": FlowControl,
    "headers": list,
    "loop": asyncio.AbstractEventLoop,
    "parser": HttpRequestParser,
    "pipeline": deque,
    "server_state": ServerState,
    "transport": asyncio.Transport,
    "url": bytes,
}
OF_A_CYCLE = {
    "body": bytearray,
    "disconnected": bool,
    "message_event": asyncio.Event,
    "response_complete": bool,
    "response_started": bool,
    "waiting_for_100_continue": bool,
}
CALLED = {"_start_asgi_task": ["cycle", "app"]}
OVERRIDDEN = {
    "__init__": ["config", "server_state", "app_state", "_loop"],
    "connection_lost": ["exc"],
    "connection_made": ["transport"],
    "data_received": ["data"],
    "on_body": ["body"],
    "on_headers_complete": [],
    "on_message_begin": [],
    "on_message_complete": [],
    "on_response_complete": [],
}
REQUESTS = b"GET /1 HTTP/1.1\r\nhost: a\r\n\r\nGET /2 HTTP/1.1\r\nhost: a\r\n\r\n"


class Unplugged(asyncio.Transport):
    """Carries nothing."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def pause_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def close(self) -> None: ...


async def idle(_scope: object, _receive: object, _send: object) -> None:
    await asyncio.Event().wait()


@pytest.fixture
async def theirs() -> AsyncIterator[HttpToolsProtocol]:
    """uvicorn's own protocol, with one request that is answered and one that waits."""
    protocol = HttpToolsProtocol(
        uvicorn.Config(idle, interface="asgi3", proxy_headers=False, log_config=None), ServerState(), {}
    )
    protocol.connection_made(Unplugged())
    protocol.data_received(REQUESTS)
    yield protocol
    for task in protocol.tasks:
        task.cancel()


def used_of(name: str) -> set[str]:
    """The attributes that our protocol uses of an object."""
    nodes = ast.walk(ast.parse(inspect.getsource(client_connection)))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == name}


def shapes(thing: object, expected: dict[str, type]) -> dict[str, type]:
    """The expected type of each attribute that has it, else its own."""
    found = {name: getattr(thing, name) for name in expected}
    return {name: kind if isinstance(found[name], kind) else type(found[name]) for name, kind in expected.items()}


async def test_what_we_use_is_named_here(theirs: HttpToolsProtocol) -> None:
    assert used_of("self") & {*dir(theirs)} == ATTRIBUTES.keys() | CALLED.keys() | OVERRIDDEN.keys() & used_of("self")
    assert used_of("self.cycle") | used_of("running") == OF_A_CYCLE.keys()
    assert used_of("self.flow") == {"pause_reading", "read_paused", "resume_reading"}


async def test_what_we_name_is_there_in_the_shape_that_is_used(theirs: HttpToolsProtocol) -> None:
    cycle, app = theirs.pipeline[-1]

    assert shapes(theirs, ATTRIBUTES) == ATTRIBUTES
    assert shapes(theirs.cycle, OF_A_CYCLE) == OF_A_CYCLE
    assert (cycle, app) == (theirs.cycle, idle)
    assert theirs.flow.read_paused is True
    assert theirs.server_state.total_requests == 0
    for name, parameters in (CALLED | OVERRIDDEN).items():
        assert [*inspect.signature(getattr(theirs, name)).parameters] == parameters


def test_what_we_override_is_there_and_no_more_is() -> None:
    ours = {name for name, value in vars(HttpProtocol).items() if inspect.isfunction(value)}

    assert ours & {*dir(HttpToolsProtocol)} == OVERRIDDEN.keys()
