"""What docs/architecture.md draws: which objects are made for a server, a session, a request, a generation."""

import re
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import httpx2
import pytest

from gateway.app.process import open_app
from gateway.app.services import open_services
from gateway.config import EngineConfig, GatewayConfig, LimitsConfig, UpstreamConfig

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "reader", "version": "1"}}


def drawn() -> dict[str, list[str]]:
    """The classes of the drawing, by what they live as long as."""
    (drawing,) = re.findall(r"```text\n(a process .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    rows = re.findall(r"^\W*(an? [a-z' ]+?)  +(.+)$", drawing, re.MULTILINE)
    return {lifetime: re.findall(r"[A-Z]\w+", names) for lifetime, names in rows}


def is_own(frame: FrameType | None, thing: object) -> bool:
    """Whether a frame is that of the thing's own `__init__`, which may call that of a class that it extends."""
    return frame is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is thing


@contextmanager
def counting() -> Generator[Counter[str]]:
    """Count the objects of the gateway's classes that are made in this thread, by class."""
    made = Counter[str]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name == "__init__":
            thing = frame.f_locals.get("self")
            if type(thing).__module__.startswith("gateway.") and not is_own(frame.f_back, thing):
                made[type(thing).__name__] += 1

    sys.setprofile(note)
    try:
        yield made
    finally:
        sys.setprofile(None)


async def ask(client: httpx2.AsyncClient) -> None:
    """One request of two generations: the model has to call a tool, and answers from its result."""
    question = [{"role": "user", "content": "What time is it in Tokyo?"}]
    body = {"messages": question, "tool_choice": "required", "temperature": 0, "max_tokens": 60}
    answer = await client.post("/v1/chat/completions", json=body)
    assert len(answer.json()["codec"]["turns"]) == 2, answer.text


async def send(client: httpx2.AsyncClient, method: str, params: dict[str, Any], session: str = "") -> str:
    """A request of an MCP client; returns the id of the session that it began."""
    headers = {"accept": "application/json, text/event-stream", **({"mcp-session-id": session} if session else {})}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = await client.post("/mcp", json=body, headers=headers)
    assert "result" in answer.text, answer.text
    return answer.headers.get("mcp-session-id", "")


async def test_what_is_drawn_lives_as_long_as_the_drawing_says(tells_time: dict[str, Any]) -> None:
    command, args = tells_time["command"], tuple(tells_time["args"])
    upstreams = tuple(UpstreamConfig(name=name, command=command, args=args) for name in ("one", "two"))
    engine = EngineConfig(kind="embedded", context=2048, slots=1)
    config = GatewayConfig(upstreams=upstreams, engine=engine, limits=LimitsConfig(turns=2))
    with anyio.fail_after(240), counting() as made:
        async with (
            open_services(config) as services,
            open_app(services, config) as (app, _),
            httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1:8600") as client,
        ):
            await services.proxy.ready()
            await ask(client)
            begun = made.copy()
            await ask(client)
            answered = made.copy()
            session = await send(client, "initialize", HELLO)
            greeted = made.copy()
            await send(client, "tools/call", {"name": "one__get_time", "arguments": {"city": "Tokyo"}}, session)

    second, called = answered - begun, made - greeted
    # How many are made: in all, by the second request, by `initialize`, and by a call in the session that it began.
    expected = {
        "a process": (1, 0, 0, 0),
        "a start of the engine": (1, 0, 0, 0),
        "a server": (2, 0, 0, 0),
        "a session with it": (2, 0, 0, 0),
        "a session of a client": (1, 0, 1, 0),
        "a request": (2, 1, 0, 0),
        "a generation": (4, 2, 0, 0),
        "a call of a tool": (3, 1, 0, 1),
    }
    rows = drawn()
    found = {
        lifetime: {(made[each], second[each], (greeted - answered)[each], called[each]): each for each in names}
        for lifetime, names in rows.items()
    }

    assert {lifetime: list(counts) for lifetime, counts in found.items()} == {
        lifetime: [counts] for lifetime, counts in expected.items()
    }, found
