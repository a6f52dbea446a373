"""What every transport does with a request: write it or refuse it, cancel it, refuse an answer over the bound."""

from collections.abc import Mapping
from typing import Any, Final

from gateway.protocol.messages import encode_request
from gateway.proxy.params import why_unwritable
from gateway.proxy.transport.interface import Unfit

CANCELLED: Final = "notifications/cancelled"
NEVER_CANCELLED: Final = frozenset({"initialize", "ping", "server/discover"})
"""Requests that a server may be asked before it knows of cancellation (MCP, "Cancellation": not `initialize`)."""


def encode_or_refuse(number: int, method: str, params: Mapping[str, Any]) -> bytes:
    """The request as JSON.

    Raises:
        Unfit: no JSON can say it, so it was not sent.
    """
    try:
        return encode_request(number, method, params)
    except ValueError as error:
        raise Unfit(f"it was not asked: {why_unwritable(params) or error}") from None


def too_long(bound: int) -> str:
    """What becomes of a request whose answer is over the bound."""
    return f"its answer of more than {bound} bytes is over the limit (limits.result_bytes)"
