"""A connection to one MCP server, regardless of what carries it: raw requests out, raw answers and pushes in.

The Protocol that `proxy/transport/stdio/stdio_transport.py` and `proxy/transport/http/http_transport.py` implement, and
the exceptions for a request that gets no result. It knows no MCP methods beyond what the transports need.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol

from pydantic import TypeAdapter

from gateway.http1.faults import LinkLost, NoAnswer
from gateway.protocol.messages import encode_request
from gateway.proxy.caller import Exchange
from gateway.proxy.results import WrittenIds

# Whether the params of a request can be written as JSON.
#
# Turns params from a client or a model into None, or into words that say what is wrong with them. Checked in the
# caller's own task: the tasks that write to an upstream are shared by all its calls, and a message that broke one of
# them would fail the other calls too. Pure; it knows no upstream.

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


__all__ = ["LinkLost", "MaybeForgotten", "NoAnswer", "PeerError", "SessionForgotten", "Transport", "Unfit"]


class PeerError(Exception):
    """The server answered with a JSON-RPC error; `error` is its object, as it came."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message", "")))
        self.error = error


class Unfit(NoAnswer):
    """The request or its answer can't be carried: it is too long, or not JSON. The server itself works."""


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


# What all transports do alike: write a request or refuse it, cancel it, refuse an answer over the bound.

CANCELLED: Final = "notifications/cancelled"
NEVER_CANCELLED: Final = frozenset({"initialize", "ping", "server/discover"})
"""Requests that may be sent before a server can handle cancellation (MCP, "Cancellation": not `initialize`)."""


def encode_or_refuse(number: int, method: str, params: Mapping[str, Any]) -> bytes:
    """Return the request as JSON.

    Raises:
        Unfit: it can't be written as JSON, so it was not sent.
    """
    try:
        return encode_request(number, method, params)
    except ValueError as error:
        raise Unfit(f"the request was not sent: {why_unwritable(params) or error}") from None


def too_long(bound: int) -> str:
    """The error text for an answer over the bound."""
    return f"its answer of more than {bound} bytes is over the limit (limits.result_bytes)"
