"""How an API writes its answers: the shape of a reply, and what all answers share: stream events, errors, headers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from pydantic_core import to_json
from starlette.responses import JSONResponse, Response

from gateway.agent.events import AgentEvent
from gateway.serve.http.errors import SOON

Chunk = dict[str, Any]

_STREAM_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_AGAIN: Final = frozenset({503, 529})
"""Statuses that ask the client to try again later (529 is Anthropic's)."""
_json: Final = partial(to_json, inf_nan_mode="null")
"""An engine's vectors may hold numbers that JSON does not have."""


class Reply(Protocol):
    """An answer in the JSON shape of an API."""

    def begin(self) -> list[Chunk]:
        """Chunks that a stream begins with, before those of the first event."""
        ...

    def feed(self, event: AgentEvent) -> list[Chunk]:
        """Chunks for one event."""
        ...

    def completion(self) -> Chunk:
        """The whole answer."""
        ...

    def fail(self, error: Exception) -> list[Chunk]:
        """Chunks that end a stream after an error, and say why."""
        ...


@dataclass(frozen=True, slots=True)
class ApiForm:
    """How an API writes what all its answers share: the events of its streams, and its errors."""

    refuse: Callable[[Exception], tuple[int, Chunk]]
    """Returns the status and the body of an HTTP error."""
    names_events: bool = False
    """Whether each event of a stream also has an `event:` line with its chunk's `type`."""
    last: bytes = b""
    """Bytes that end a stream, after all chunks."""
    ping: Chunk | None = None
    """Event that a silent stream sends to show that it is alive; None where the API has none."""
    write: Callable[[Chunk], bytes] = _json
    """Returns the JSON of a whole answer."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of every answer."""

    def refused(self, error: Exception) -> JSONResponse:
        """The HTTP response for an error that occurred before anything was sent."""
        status, body = self.refuse(error)
        headers = {**self.headers, **SOON} if status in _AGAIN else self.headers
        return JSONResponse(body, status, headers)

    def whole(self, chunk: Chunk, status: int = 200) -> Response:
        """A whole answer."""
        return Response(self.write(chunk), status, headers=dict(self.headers), media_type="application/json")

    @property
    def stream_headers(self) -> list[tuple[bytes, bytes]]:
        """The response headers of a stream."""
        return [*_STREAM_HEADERS, *((name.encode(), value.encode()) for name, value in self.headers.items())]

    def events(self, chunks: Iterable[Chunk]) -> bytes:
        """Chunks as server-sent events."""
        return b"".join([self._event(chunk) for chunk in chunks])

    def _event(self, chunk: Chunk) -> bytes:
        data = b"data: " + to_json(chunk) + b"\n\n"
        return b"event: " + str(chunk["type"]).encode() + b"\n" + data if self.names_events else data
