"""A connection to one MCP server, regardless of what carries it: raw requests out, raw answers and pushes in.

The Protocol that `proxy/transport/stdio/stdio_transport.py` and `proxy/transport/http/http_transport.py` implement, the
exceptions for a request that gets no result, and what all transports do alike with what a server asks and logs. It
knows no MCP methods beyond what the transports need.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from time import monotonic
from typing import Any, Final, Protocol

from pydantic import TypeAdapter
from structlog.typing import FilteringBoundLogger

from gateway.errors import RpcError
from gateway.escape import escape_text
from gateway.http1.connection import LinkLost, NoAnswer
from gateway.protocol.lines import LineSplitter, LongLine
from gateway.protocol.messages import (
    INTERNAL_ERROR,
    Request,
    RequestId,
    encode_failure,
    encode_request,
    encode_response,
)
from gateway.proxy.caller import Exchange
from gateway.proxy.results import WrittenIds

# Params are checked in the caller's own task: the tasks that write to an upstream are shared by all its calls, and a
# message that broke one of them would fail the other calls too.

_WRITER: Final = TypeAdapter(dict[str, Any])


def why_unwritable(params: Mapping[str, Any]) -> str | None:
    """Why the params can't be written as JSON, as a clause to follow a name or a colon; None: they can.

    The same writer writes the message later, in which the params are nested deeper. The wrapping makes up for that:
    without it, the deepest value that passes here would fail there.
    """
    try:
        _WRITER.dump_json({"params": {"params": params}})
    except ValueError as error:
        if "surrogates not allowed" in str(error):
            return "its arguments contain half a surrogate pair (U+D800 to U+DFFF): send whole characters only"
        return "its arguments are nested too deeply for JSON (more than about 250 levels): nest them less deeply"
    return None


__all__ = [
    "LinkLost",
    "MaybeForgotten",
    "NoAnswer",
    "PeerError",
    "SessionForgotten",
    "SignInReplaced",
    "Transport",
    "Unfit",
]


class PeerError(Exception):
    """The server answered with a JSON-RPC error; `error` is its object, as it came."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message", "")))
        self.error = error


class Unfit(NoAnswer):
    """The request or its answer can't be carried: it is too long, or not JSON. The server itself works."""


class SignInReplaced(NoAnswer):
    """The owner of the connection's sign-in has signed in again or signed out: the server did not begin the request."""

    def __init__(self) -> None:
        super().__init__("the sign-in has ended, or another has taken its place: call again")


class SessionForgotten(LinkLost):
    """The server has forgotten our session (HTTP 404): it did not act on the request; only a new handshake helps."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause, sent=False)


class MaybeForgotten(NoAnswer):
    """The server refused a request with words that may mean that it has forgotten our session.

    It may have acted on the request: the words may be the tool's own.
    """


def names_session(words: str) -> bool:
    """Whether a server's words are about the session and not about the request.

    The protocol's status for this is 404. Servers answer with other statuses too, as text or as a JSON-RPC error, with
    a request's id or without.
    """
    said = words.lower()
    return "session" in said or "initializ" in said or "initialis" in said


class Pending(Exchange, Protocol):
    """A request in flight: takes what the server pushes meanwhile, and is told of an answer that comes too late."""

    def given_up(self) -> None:
        """Nobody waits for it any more, but the server may still work on it."""
        ...

    def answered(self) -> None:
        """The server answered after the request was given up."""
        ...


class Transport(Protocol):
    """One connection. Opened by an async context manager; leaving it ends the process or the HTTP session."""

    @property
    def closed(self) -> asyncio.Event:
        """Set when the connection is over; waiting requests have failed by then, or fail soon after."""
        ...

    @property
    def first_number(self) -> int:
        """Progress tokens must be above this number: other workers of this gateway may share the server, and use other
        ranges."""
        ...

    @property
    def unread(self) -> str:
        """What it wrote before its first answer and nobody could read, as words that can follow a semicolon; empty:
        nothing."""
        ...

    def use_version(self, version: str) -> None:
        """Use this protocol version from now on: it decides HTTP's headers and how a request is cancelled."""
        ...

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        exchange: Pending | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        written: WrittenIds | None = None,
    ) -> dict[str, Any]:
        """Return the server's raw result. Cancelling the caller tells the server, without waiting for it.

        Args:
            exchange: takes what the server pushes in the course of this request, if the transport can tell.
            headers: additional HTTP headers for this request; stdio ignores them.
            written: the ids that the model wrote; only bolt-ons take them.

        Raises:
            PeerError: the server answered with an error.
            NoAnswer: this request gets no answer.
            LinkLost: the connection is over. `SessionForgotten` if the server says that it has forgotten our session.
        """
        ...

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send the server a notification. Raises nothing if the server is gone."""
        ...


CANCELLED: Final = "notifications/cancelled"
NEVER_CANCELLED: Final = frozenset({"initialize", "ping", "server/discover"})
"""Requests that may be sent before a server can handle cancellation (MCP, "Cancellation": not `initialize`)."""


def encode_or_refuse(number: int, method: str, params: Mapping[str, Any]) -> bytes:
    """Return the request as JSON. Raises `Unfit`: it can't be written as JSON, so it was not sent."""
    try:
        return encode_request(number, method, params)
    except ValueError as error:
        raise Unfit(f"the request was not sent: {why_unwritable(params) or error}") from None


def too_long(bound: int) -> str:
    """The error text for an answer over the bound."""
    return f"its answer of more than {bound} bytes is over the limit (limits.result_bytes)"


# A server's standard error and our warnings about it are limited to some lines a second together, and the rest is only
# counted, so that no server can fill the disk.

LINES: Final = 200
"""Lines that are logged in a second, at most."""
_SECOND: Final = 1.0
_LENGTH: Final = 4096


class ServerLog:
    """The bounded log of one server."""

    def __init__(self, log: FilteringBoundLogger, clock: Callable[[], float] = monotonic) -> None:
        """`clock` returns seconds."""
        self._log = log
        self._clock = clock
        self._splitter = LineSplitter(_LENGTH)
        self._since = clock()
        self._said = 0

    def stderr(self, data: bytes) -> None:
        """Log the lines of standard error that `data` completes."""
        for line in self._splitter.feed(data):
            self._say(line)

    def warning(self, event: str, **fields: Any) -> None:
        """Log what the server did wrong; the server's words in the fields must be escaped already."""
        if self._may():
            self._log.warning(event, **fields)

    def close(self) -> None:
        """Log what is left."""
        for line in self._splitter.close():
            self._say(line)
        self._begin_second()

    def _say(self, line: bytes | LongLine) -> None:
        data = line.head if isinstance(line, LongLine) else line
        text = data.decode("utf-8", "backslashreplace").strip()
        if text and self._may():
            self._log.info("upstream stderr", line=escape_text(text, _LENGTH))

    def _may(self) -> bool:
        if self._clock() - self._since >= _SECOND:
            self._begin_second()
        self._said += 1
        return self._said <= LINES

    def _begin_second(self) -> None:
        if self._said > LINES:
            self._log.warning(
                "upstream caused too many log lines; some were dropped", lines_left_out=self._said - LINES
            )
        self._since, self._said = self._clock(), 0


MOST: Final = 64
"""Questions of one server that may wait for answers at a time; more are refused."""
_MOST_AT_ONCE: Final = 64
"""Answers that need no client, and that the server has not read yet."""


class ServerQuestions:
    """The open questions of one server."""

    def __init__(self, send: Callable[[bytes], Coroutine[Any, Any, None]], server_log: ServerLog) -> None:
        """`send` delivers an answer to the server and raises nothing."""
        self._send = send
        self._server_log = server_log
        self._open: dict[RequestId, asyncio.Task[None]] = {}
        self._at_once: set[asyncio.Task[None]] = set()

    def take(self, request: Request, exchange: Exchange) -> None:
        """Start answering it; a `ping` is answered here. Returns at once."""
        if request.method == "ping":
            self._answer_at_once(request, encode_response(request.id, {}))
        elif request.id in self._open:
            self._answer_at_once(
                request, _encoded_error(request.id, "a request with this id is already being answered")
            )
        elif len(self._open) >= MOST:
            self._answer_at_once(
                request, _encoded_error(request.id, f"{MOST} requests are already waiting for answers; ask again later")
            )
        else:
            task = asyncio.get_running_loop().create_task(self._answer(request, exchange))
            self._open[request.id] = task
            task.add_done_callback(lambda _: self._open.pop(request.id, None))

    def refuse(self, request_id: RequestId, code: int, message: str) -> None:
        """Answer a malformed request with an error."""
        self._answer_at_once(
            Request(request_id, "", {}), encode_failure(request_id, {"code": code, "message": message})
        )

    def take_back(self, request_id: object) -> None:
        """Stop answering a request that the server has cancelled."""
        task = self._open.get(request_id) if isinstance(request_id, int | str) else None
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """Stop answering."""
        for task in (*self._open.values(), *self._at_once):
            task.cancel()

    def _answer_at_once(self, request: Request, answer: bytes) -> None:
        if len(self._at_once) >= _MOST_AT_ONCE:
            self._server_log.warning("request of upstream dropped: it does not read answers", method=_shown(request))
            return
        task = asyncio.get_running_loop().create_task(self._send(answer))
        self._at_once.add(task)
        task.add_done_callback(self._at_once.discard)

    async def _answer(self, request: Request, exchange: Exchange) -> None:
        try:
            answer = encode_response(request.id, await exchange.asked(request.method, request.params))
        except RpcError as refusal:
            answer = encode_failure(request.id, refusal.error)
        except Exception:  # noqa: BLE001 - the one boundary: a server always gets an answer, and learns nothing of ours
            self._server_log.warning("request of upstream could not be answered", method=_shown(request), exc_info=True)
            answer = _encoded_error(request.id, "the gateway failed to answer")
        await self._send(answer)


def _shown(request: Request) -> str:
    return escape_text(request.method, 100)


def _encoded_error(request_id: RequestId, message: str) -> bytes:
    return encode_failure(request_id, {"code": INTERNAL_ERROR, "message": message})
