"""What all transports do alike: write a request or refuse it, cancel it, refuse an answer over the bound."""

from collections.abc import Mapping
from typing import Any, Final

from gateway.protocol.messages import encode_request
from gateway.proxy.params import why_unwritable
from gateway.proxy.transport.interface import Unfit

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
