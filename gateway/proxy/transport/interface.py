"""A connection to one MCP server, regardless of what carries it: raw requests out, raw answers and pushes in.

The Protocol that `proxy/transport/stdio/transport.py` and `proxy/transport/http/transport.py` implement, and the
exceptions for a request that gets no result. It knows no MCP methods beyond what the transports need.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from gateway.http1.faults import LinkLost, NoAnswer
from gateway.proxy.caller import Exchange
from gateway.proxy.results import WrittenIds

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
