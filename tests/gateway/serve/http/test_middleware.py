"""The span of a request that generates: which requests have one, and how each ends in it."""

from asyncio import CancelledError
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.serve.http.middleware import TracedRequests, note_failure
from tests.cases import each_of

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"
LOST = RuntimeError("the engine is gone")


class Tracing:
    """What is written to the spans of requests."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    @contextmanager
    def request_span(self, name: str, headers: Mapping[str, str], attributes: dict[str, str]) -> Generator["Tracing"]:
        self.spans.append((name, dict(headers), attributes))
        yield self
        self.spans.append("over")

    def write_headers(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        return [*headers, (b"traceparent", b"ours")]

    def set(self, attributes: dict[str, object]) -> None:
        self.spans.append(attributes)

    def failed(self, error: BaseException) -> None:
        self.spans.append(error)

    def erred(self, kind: str) -> None:
        self.spans.append(kind)


class App:
    """An application that answers with a status, fails, or both."""

    def __init__(self, status: int = 0, error: BaseException | None = None) -> None:
        self.status, self.error = status, error
        self.headers: list[tuple[bytes, bytes]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers = scope["headers"]
        if self.status:
            await send({"type": "http.response.start", "status": self.status})
            await send({"type": "http.response.body", "body": b"x"})
        if self.error is not None:
            note_failure(scope, self.error)


async def traced(app: App, *, kind: str = "http", method: str = "POST", path: str = CHAT) -> tuple[list[Any], int]:
    """What the span got, and how many messages the client."""
    tracing, sent = Tracing(), list[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    layer = TracedRequests(app, tracing, [CHAT])  # pyright: ignore[reportArgumentType]
    scope = {"type": kind, "method": method, "path": path, "scheme": "http", "headers": [(b"host", b"here")]}
    await layer(scope, None, send)  # pyright: ignore[reportArgumentType]
    return tracing.spans, len(sent)


async def test_span_says_what_was_asked_and_the_app_is_given_its_place_in_the_trace() -> None:
    app = App(200)
    spans, sent = await traced(app)

    attributes = {"http.request.method": "POST", "http.route": CHAT, "url.path": CHAT, "url.scheme": "http"}
    assert spans == [
        (f"POST {CHAT}", {"host": "here"}, attributes),
        {"http.response.status_code": 200},
        "over",
    ]
    assert sent == 2
    assert app.headers == [(b"host", b"here"), (b"traceparent", b"ours")]


@pytest.mark.parametrize("other", [{"kind": "lifespan"}, {"method": "GET"}, {"path": "/mcp"}])
async def test_other_requests_have_no_span(other: dict[str, str]) -> None:
    app = App(200, LOST)

    assert await traced(app, **other) == ([], 2)
    assert app.headers == [(b"host", b"here")]


@each_of(
    ("status", "error", "told"),
    [
        (399, None, []),
        (499, None, []),
        (500, None, ["500"]),
        (503, None, ["503"]),
        (200, LOST, [LOST]),
        (399, LOST, [LOST]),
        (400, LOST, []),
        (499, LOST, []),
        (500, LOST, [LOST]),
    ],
)
async def test_answer_that_failed_is_an_error_of_the_span_and_a_refused_request_is_none(
    status: int, error: BaseException | None, told: list[Any]
) -> None:
    spans, _ = await traced(App(status, error))

    assert spans[1:] == [{"http.response.status_code": status}, *told, "over"]


async def test_client_that_left_is_an_error_of_the_span_whatever_was_sent() -> None:
    left = CancelledError()

    assert (await traced(App(0, left)))[0][1:] == [left, "over"]
    assert (await traced(App(400, left)))[0][1:] == [{"http.response.status_code": 400}, left, "over"]
