"""`/mcp` in frames: an ASGI layer in front of the MCP endpoint, for clients that ask for msgpack or protobuf.

Turns a framed request into the JSON that the endpoint reads, and the endpoint's JSON or events into one complete frame
for each message. Anything but JSON passes as it is, with its own content type. Requests of other clients pass
untouched. Every write waits for the one before, so a slow client has the same effect as with JSON. Frames have no place
for keep-alive comments and event ids, so such a stream can't be resumed.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, cast

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import RequestInvalid
from gateway.protocol.messages import INVALID_REQUEST, PARSE_ERROR
from gateway.serve.http.body import BodyOverLimit, read_body
from gateway.serve.http.headers import headers_of
from gateway.serve.http.replica_answer import replay_body
from gateway.serve.mcp.frame_messages import (
    MEDIA_TYPES,
    EventReader,
    Form,
    read_json,
    read_messages,
    sent_form,
    wanted_form,
    write_frame,
)
from gateway.serve.mcp.http import send_frame
from leaf_sdk.vocab import TokenMap

_OURS: Final = "x-codec-"
_ACCEPT: Final = (b"accept", b"application/json, text/event-stream")
_ARGUMENTS: Final = "_codec_meta"


class FramedMcp:
    """The MCP endpoint, in frames for clients that ask for them."""

    def __init__(
        self, endpoint: ASGIApp, maps: Mapping[str, TokenMap], bound: int, decoded: Callable[[str], None]
    ) -> None:
        """`maps`: those in which arguments may come as ids, by map id. `bound`: the most bytes of a request's body.
        `decoded`: called with the map id when arguments came as ids.
        """
        self._endpoint = endpoint
        self._maps = maps
        self._bound = bound
        self._decoded = decoded

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        if scope["type"] != "http":
            return self._endpoint(scope, receive, send)
        # Whether anything in the head hints at frames: all that clients without frames pay for.
        headers, query = headers_of(scope).values, scope["query_string"]
        is_ours = _hints(headers.get("accept"), headers.get("content-type")) or (query and b"ormat=" in query)
        return (self._serve if is_ours else self._endpoint)(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Request(scope).headers
        form = wanted_form(scope["query_string"].decode("latin-1"), ", ".join(headers.getlist("accept")))
        sent = sent_form(headers.get("content-type", ""))
        try:
            if sent is not None:
                scope, receive = await self._as_json(scope, receive, sent)
        except ClientDisconnect:
            return
        except BodyOverLimit as error:
            await _refuse(send, 413, INVALID_REQUEST, error.message)
            return
        except RequestInvalid as error:
            await _refuse(send, 400, PARSE_ERROR, error.message)
            return
        except _MapRefused as error:
            await _refuse(send, 400, INVALID_REQUEST, str(error))
            return
        if form is not None:
            names = [_ACCEPT, *((name, value) for name, value in scope["headers"] if name != b"accept")]
            # The query is cleared too: a replica that this request is sent on to must not frame the answer again.
            scope = {**scope, "headers": names, "query_string": b""}
            send = _Frames(form, send).send
        await self._endpoint(scope, receive, send)

    async def _as_json(self, scope: Scope, receive: Receive, form: Form) -> tuple[Scope, Receive]:
        message = read_messages(form, await read_body(Request(scope, receive), self._bound, binary=True))
        parts: Iterable[object] = cast("list[object]", message) if isinstance(message, list) else [message]
        for part in parts:
            self._read_arguments(part)
        body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        replaced = (b"content-type", b"transfer-encoding")
        kept = [(name, value) for name, value in scope["headers"] if name not in replaced]
        scope = {**scope, "headers": [*kept, (b"content-type", b"application/json")]}
        return replay_body(scope, receive, body)

    def _read_arguments(self, message: object) -> None:
        """Replace arguments that came as ids by the JSON that the ids spell, in place."""
        fields = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
        params: object = fields.get("params")
        given: object = cast("dict[str, Any]", params).get("arguments") if isinstance(params, dict) else None
        spelled: object = cast("dict[str, Any]", given).get(_ARGUMENTS) if isinstance(given, dict) else None
        if not isinstance(spelled, dict):
            return
        ids, map_id = (cast("dict[str, Any]", spelled).get(key) for key in ("ids", "map_id"))
        bare = str(map_id).lower().removeprefix("sha256:")
        token_map = self._maps.get(f"sha256:{bare}")
        if token_map is None:
            raise _MapRefused(f"the arguments are ids of map {str(map_id)!r:.100}, which is not accepted here")
        known = isinstance(ids, list) and all(type(i) is int and token_map.has_id(i) for i in cast("list[object]", ids))
        try:
            arguments: object = json.loads(token_map.decode(cast("list[int]", ids))) if known else None
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            raise RequestInvalid("the ids of the arguments do not decode to a JSON object")
        cast("dict[str, Any]", params)["arguments"] = arguments
        self._decoded(token_map.map_id)


@lru_cache(maxsize=256)
def _hints(accept: str | None, content_type: str | None) -> bool:
    return any(_OURS in value.lower() for value in (accept, content_type) if value is not None)


class _MapRefused(Exception):
    """The arguments are ids of a map that is not held here."""


class _Frames:
    """Sends one response with its messages framed."""

    def __init__(self, form: Form, send: Send) -> None:
        self._form: Form = form
        self._send = send
        self._start: Message = {}
        self._kind = ""
        self._body = bytearray()
        self._events = EventReader()

    async def send(self, message: Message) -> None:
        """Pass on one ASGI message, framed if it holds JSON-RPC."""
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif self._kind == "application/json":
            await self._whole(message)
        elif self._kind == "text/event-stream":
            frames = b"".join(self._framed(data) for data in self._events.feed(message.get("body", b"")))
            if frames or not message.get("more_body"):
                await self._send({**message, "body": frames})
        else:
            await self._send(message)

    async def _begin(self, start: Message) -> None:
        kinds = [value for name, value in start["headers"] if name.lower() == b"content-type"]
        self._kind = kinds[0].decode("latin-1").partition(";")[0].strip() if kinds else ""
        self._start = start
        if self._kind == "text/event-stream":
            await self._send(self._typed(None))
        elif self._kind != "application/json":
            await self._send(start)

    async def _whole(self, message: Message) -> None:
        """Collect JSON until it is complete, since it may come in several pieces, then send its frame."""
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        framed = self._framed(bytes(self._body))
        await self._send(self._typed(len(framed)))
        await self._send({**message, "body": framed})

    def _framed(self, data: bytes) -> bytes:
        said = read_json(data)
        parts = cast("list[object]", said) if isinstance(said, list) else [said]
        return b"".join(write_frame(self._form, part) for part in parts)

    def _typed(self, size: int | None) -> Message:
        replaced = (b"content-type", b"content-length")
        headers = [(name, value) for name, value in self._start["headers"] if name.lower() not in replaced]
        headers.append((b"content-type", MEDIA_TYPES[self._form].encode()))
        if size is not None:
            headers.append((b"content-length", str(size).encode()))
        return {**self._start, "headers": headers}


async def _refuse(send: Send, status: int, code: int, message: str) -> None:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    await send_frame(send, status, json.dumps(error).encode())
