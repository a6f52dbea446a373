"""Each way in which clients spell a path of /v1 comes to one; other paths stay as they are."""

import sys

import pytest
from starlette.types import Receive, Scope, Send

from gateway.serve.http.middleware import SpelledPaths, path_as_served
from tests.cases import each_of

CHAT = "/v1/chat/completions"


@each_of(
    ("path", "served"),
    [
        ("//v1/chat/completions", CHAT),
        ("/v1//chat/completions", CHAT),
        ("/v1/chat/completions/", CHAT),
        ("/v1/v1/chat/completions", CHAT),
        ("/v1//v1//chat/completions//", CHAT),
        ("/chat/completions", CHAT),
        ("//chat/completions", CHAT),
        ("/responses", "/v1/responses"),
        ("/responses/resp_1/input_items", "/v1/responses/resp_1/input_items"),
        ("/messages/count_tokens", "/v1/messages/count_tokens"),
        ("/v1/v1/messages", "/v1/messages"),
        ("/models", "/v1/models"),
        ("/models/", "/v1/models"),
        ("/v1/models/org/name", "/v1/models/org/name"),
        ("//mcp", "/mcp"),
        ("/mcp/", "/mcp/"),
        ("/", "/"),
        ("//", "/"),
        ("/v1", "/v1"),
        ("/completions", "/completions"),
        ("/modelsx", "/modelsx"),
        ("/tokenize", "/tokenize"),
        ("/codec/schema", "/codec/schema"),
    ],
)
def test_path_as_served(path: str, served: str) -> None:
    assert path_as_served(path) == served
    assert path_as_served(served) == served


def test_repeated_root_is_taken_off_at_once() -> None:
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    path = "/v1" * 20_000 + "/models"
    sys.setprofile(count)
    try:
        served = path_as_served(path)
    finally:
        sys.setprofile(None)

    assert served == "/v1/models"
    assert steps < 50


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("kind", "path", "served"),
    [
        ("http", "/chat/completions", CHAT),
        ("http", CHAT, CHAT),
        ("websocket", "/chat/completions", "/chat/completions"),
    ],
)
async def test_app_is_asked_for_the_path_that_is_meant(kind: str, path: str, served: str) -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    asked = {"type": kind, "path": path, "raw_path": path.encode()}
    await SpelledPaths(app)(asked, None, None)  # pyright: ignore[reportArgumentType]

    assert seen == [{"type": kind, "path": served, "raw_path": served.encode()}]
    assert asked["path"] == path


@pytest.mark.anyio
async def test_start_and_stop_of_the_app_have_no_path() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    await SpelledPaths(app)({"type": "lifespan"}, None, None)  # pyright: ignore[reportArgumentType]

    assert seen == [{"type": "lifespan"}]
