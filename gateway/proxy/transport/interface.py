"""A connection to one MCP server, whatever it runs over: raw requests out, raw answers back, pushes in.

The Protocol that `proxy/transport/stdio/transport.py` and `proxy/transport/http/transport.py` implement, and the four
ways in which a request gets no result. It knows no MCP method beyond what the transports need.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from gateway.http1.faults import LinkLost, NoAnswer
from gateway.proxy.caller import Exchange
from gateway.proxy.results import WrittenIds

__all__ = ["LinkLost", "NoAnswer", "PeerError", "SessionForgotten", "Transport", "Unfit"]


class PeerError(Exception):
    """The server answered with a JSON-RPC error; `error` is its object, as it came."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message", "")))
        self.error = error


class Unfit(NoAnswer):
    """What was to be asked, or what was answered, can't be carried: too long, or no JSON. The server itself is well."""


class SessionForgotten(LinkLost):
    """The server does not know our session any more (HTTP 404): it did not act, and only a new handshake helps."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause, sent=False)


class Pending(Exchange, Protocol):
    """What a request has to do with what is pushed meanwhile, and with an answer that comes too late."""

    def given_up(self) -> None:
        """Nobody waits for it any more, and the server, which had it, need not have stopped."""
        ...

    def answered(self) -> None:
        """The server answered it after that."""
        ...


class Transport(Protocol):
    """One connection. Made by an async context manager; leaving that ends the process or the HTTP session."""

    @property
    def closed(self) -> asyncio.Event:
        """Set when the connection is over; every waiting request has failed by then."""
        ...

    @property
    def correlates(self) -> bool:
        """Whether what the server pushes while it works on a request comes tied to that request (HTTP)."""
        ...

    @property
    def first_number(self) -> int:
        """What tokens of progress are to be above: other workers of this gateway, which share the server, count theirs
        elsewhere."""
        ...

    def speak(self, version: str) -> None:
        """From now on, this protocol version: it decides HTTP's headers and how a request is cancelled."""
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
        """The server's raw result. Cancelling the caller tells the server, without waiting for it.

        Args:
            exchange: who hears what the server pushes in the course of this request, where the transport can tell.
            headers: more HTTP headers for this request; stdio ignores them.
            written: the ids that the model wrote; only bolt-ons take them.

        Raises:
            PeerError: the server answered with an error.
            NoAnswer: this request gets no answer.
            LinkLost: the connection is over. `SessionForgotten` where the server says that it forgot us.
        """
        ...

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell the server something; one that is gone does not hear it, and nothing is raised."""
        ...
