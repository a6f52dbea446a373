"""The one place where the proxy touches the MCP SDK: streams, messages, the dispatcher, the HTTP client transport.

Turns SDK objects into three small things of ours: `MessageStreams`, `Conversation` (raw requests out, dicts back) and
`RemoteError`. The parts that the SDK calls provisional, or that are not exported at the top of a package, are imported
here and nowhere else in `proxy`; `tests/gateway/proxy/test_sdk.py` names them, so that a new SDK minor that moves one
fails there first. It knows no MCP method and no upstream. `stdio.py` and `link.py` stand above.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import CallOptions, DispatchContext
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp.types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    jsonrpc_message_adapter,
)
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from gateway.config.address import is_loopback
from gateway.proxy.bodies import BoundedBody
from gateway.rpc.lines import LongLine
from gateway.rpc.mending import mend_line

HANDSHAKE_VERSIONS: Final[tuple[str, ...]] = tuple(HANDSHAKE_PROTOCOL_VERSIONS)
NEWEST_HANDSHAKE: Final[str] = LATEST_HANDSHAKE_VERSION
_SESSION_HEADER: Final = "mcp-session-id"
_VERSION_HEADER: Final = "mcp-protocol-version"
_CONNECT_TIMEOUT: Final = 10.0
_GOODBYE_TIMEOUT: Final = 2.0
_COURTESIES: Final = 16
"""How many cancellations may wait for a peer to read them; more tell a deaf peer nothing new."""

Incoming = SessionMessage | Exception
MessageStreams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]
OnNotification = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class StreamPair:
    """Both ends of a transport's streams: `outer` for the dispatcher, the other two for the transport."""

    outer: MessageStreams
    incoming: MemoryObjectSendStream[Incoming]
    outgoing: MemoryObjectReceiveStream[SessionMessage]

    def close(self) -> None:
        """Close all four ends; whoever waits on one is woken."""
        for stream in (*self.outer, self.incoming, self.outgoing):
            stream.close()


def make_streams() -> StreamPair:
    """Unbuffered streams: a message is read from the wire only when the one before it has been taken."""
    incoming, reader = anyio.create_memory_object_stream[Incoming](0)
    writer, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    return StreamPair((reader, writer), incoming, outgoing)


def parse_line(data: bytes) -> SessionMessage | ValueError:
    """One line as a message, or why it is none."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(data, by_name=False))
    except ValueError as error:
        return error


def rescue_line(data: bytes) -> SessionMessage | None:
    """The message of a line that `parse_line` refused, with U+FFFD for what is no character.

    An answer that even so is no message (nested too deep) becomes an error for the request that waits for it. None:
    the line is nobody's answer.
    """
    mended = mend_line(data)
    if mended is None:
        return None
    message = parse_line(mended.text.encode())
    if isinstance(message, SessionMessage):
        return message
    return None if mended.answers is None else _broken_answer(mended.answers, "its answer is no JSON-RPC response")


def encode_message(message: SessionMessage) -> bytes:
    """One message as a line, its end included. Fields that were not set do not appear."""
    return message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def too_long_message(line: LongLine, bound: int) -> SessionMessage | ValueError:
    """What the request that this line would have answered gets instead; a ValueError where the line does not say."""
    request_id = line.answered_id()
    if request_id is None:
        return ValueError(f"a message of {line.length} bytes that names no request of ours")
    return _broken_answer(
        request_id, f"its answer of {line.length} bytes is over the limit of {bound} (limits.result_bytes)"
    )


def parse_error_message(detail: str) -> SessionMessage:
    """The answer to a line that is no message: nobody knows whose it was, so it has no id (JSON-RPC 2.0, section 5)."""
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=PARSE_ERROR, message=detail)))


@dataclass(frozen=True, slots=True)
class _Broken:
    """Marks an error that a transport made up; a peer's own error can't carry this object."""

    cause: str


def _broken_answer(request_id: int, cause: str) -> SessionMessage:
    error = ErrorData(code=INTERNAL_ERROR, message=cause, data=_Broken(cause))
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))


class RemoteError(Exception):
    """A request got no result. Exactly one of the two: the peer's own error, or (`broken`) no usable answer at all."""

    def __init__(self, message: str, *, code: int, data: object = None, broken: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.data = data
        self.broken = broken

    @property
    def is_closing(self) -> bool:
        """The connection ended before the answer came."""
        return self.broken and self.message == _CLOSED


_CLOSED: Final = "Connection closed"
# What the SDK's client transports answer in a peer's stead; it marks them only by their words.
_MADE_UP: Final = {
    (CONNECTION_CLOSED, _CLOSED),
    (CONNECTION_CLOSED, "SSE stream "),
    (INTERNAL_ERROR, "Server returned an error response"),
    (INVALID_REQUEST, "Session terminated"),
    (INVALID_REQUEST, "Unexpected content type"),
    (INVALID_REQUEST, "server answered a request with 202"),
    (INVALID_REQUEST, "Redirect"),
    (PARSE_ERROR, "Failed to parse "),
}


def _remote_error(error: MCPError) -> RemoteError:
    data: object = error.error.data
    if isinstance(data, _Broken):
        return RemoteError(data.cause, code=error.error.code, broken=True)
    message = error.error.message
    broken = any(error.error.code == code and message.startswith(words) for code, words in _MADE_UP)
    return RemoteError(message, code=error.error.code, data=data, broken=broken)


class Conversation:
    """JSON-RPC with one peer: requests and notifications out as raw dicts, notifications in; the peer may only ping.

    What a peer pushes as a request (sampling, elicitation, roots) is refused as an unknown method, because we announced
    none of those capabilities.
    """

    def __init__(self, streams: MessageStreams, on_notification: OnNotification, forgotten: anyio.Event) -> None:
        self._dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(*streams)
        self._on_notification = on_notification
        self._headers: dict[str, str] = {}
        self._courtesies = anyio.create_task_group()
        self._waiting = 0
        self._sent = 0
        self.closed = anyio.Event()
        """Set when the peer is gone; every waiting request has failed by then."""
        self.forgotten = forgotten
        """Set when the peer no longer knows our session (HTTP): only a new handshake helps."""

    def speak(self, version: str) -> None:
        """Stamp the negotiated protocol version on everything that is sent from now on (HTTP; stdio ignores it)."""
        self._headers = {_VERSION_HEADER: version}

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Read until the peer is gone."""
        try:
            async with anyio.create_task_group() as self._courtesies:
                await self._dispatcher.run(_refuse, _ignore, self._take, task_status=task_status)
                self._courtesies.cancel_scope.cancel()
        finally:
            self.closed.set()

    async def request(self, method: str, params: Mapping[str, Any], *, cancellable: bool = True) -> dict[str, Any]:
        """The peer's raw result. Cancelling the caller also tells the peer, unless `cancellable` is off.

        Raises:
            RemoteError: the peer answered with an error, or is gone.
        """
        self._sent += 1
        number = self._sent
        options: CallOptions = {"request_id": number, "headers": self._headers, "cancel_on_abandon": False}
        try:
            return await self._dispatcher.send_raw_request(method, params, options)
        except MCPError as error:
            raise _remote_error(error) from None
        except anyio.get_cancelled_exc_class():
            # Told from a task of ours: the SDK would hold up the caller for as long as a deaf peer's pipe is full.
            if cancellable and not self.closed.is_set() and self._waiting < _COURTESIES:
                self._waiting += 1
                self._courtesies.start_soon(self._tell_cancelled, number)
            raise

    async def notify(self, method: str) -> None:
        """Send a notification without params; a peer that is gone does not hear it."""
        await self._dispatcher.notify(method, None, {"headers": self._headers})

    async def _tell_cancelled(self, number: int) -> None:
        params = {"requestId": number, "reason": "nobody waits for the answer any more"}
        try:
            await self._dispatcher.notify("notifications/cancelled", params, {"headers": self._headers})
        finally:
            self._waiting -= 1

    def _take(self, method: str, params: Mapping[str, Any] | None) -> bool:
        self._on_notification(method, params or {})
        return True


async def _refuse(_: DispatchContext[TransportContext], method: str, __: Mapping[str, Any] | None) -> dict[str, Any]:
    if method == "ping":
        return {}
    raise MCPError(METHOD_NOT_FOUND, f"the gateway does not offer {method!r} to its upstreams")


async def _ignore(_: DispatchContext[TransportContext], __: str, ___: Mapping[str, Any] | None) -> None:
    """Never reached: `_take` consumes every notification in the order of the wire."""


@asynccontextmanager
async def open_http(
    url: str, headers: Mapping[str, str], *, bound: int, forgotten: anyio.Event
) -> AsyncGenerator[Any, None]:
    """Streams to a Streamable HTTP server.

    Args:
        headers: sent with every request.
        bound: longest JSON body and longest SSE event that is read, in bytes.
        forgotten: set when the server answers our session with 404 (MCP transports, "Session Management").
    """

    async def look(response: httpx2.Response) -> None:
        if response.status_code == HTTPStatus.NOT_FOUND and _SESSION_HEADER in response.request.headers:
            forgotten.set()
        if response.headers.get("content-type", "").lower().startswith("application/json"):
            response.stream = BoundedBody(cast(httpx2.AsyncByteStream, response.stream), bound)

    async def hasten(request: httpx2.Request) -> None:
        # The goodbye to a session is sent while the connection is closed, where nothing else bounds it.
        if request.method == "DELETE":
            request.extensions["timeout"] = httpx2.Timeout(_GOODBYE_TIMEOUT).as_dict()

    # No read timeout: a call's own time is the bound, and an event stream may be silent for as long as it likes. No
    # compression: it would be undone before anything of ours could count.
    timeout = httpx2.Timeout(_CONNECT_TIMEOUT, read=None)
    # A proxy of the environment stands outside: what it calls loopback is its own machine, not ours.
    outside = not is_loopback(urlsplit(url).hostname or "")
    hooks: dict[str, list[Callable[..., Any]]] = {"request": [hasten], "response": [look]}
    sent = {"accept-encoding": "identity", **headers}
    async with (
        httpx2.AsyncClient(headers=sent, timeout=timeout, event_hooks=hooks, trust_env=outside) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=bound) as streams,
    ):
        yield streams
