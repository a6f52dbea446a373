"""Whatever broke an upstream, as a short explanation for a person.

Turns exceptions of the operating system, the transports and the HTTP client into words that can follow "server 'x' is
not available:". A server's own words are untrusted: secrets of its configuration are masked in them, and they are
escaped and cut. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from gateway.config.masking import mask_text
from gateway.config.model import UpstreamConfig
from gateway.errors import GatewayError
from gateway.observe.escape import escape_text
from gateway.proxy.transport.interface import LinkLost, NoAnswer, PeerError, names_session

_LENGTH: Final = 300
_OF_SESSION: Final = (-32600, -32000, -32001, -32002, -32005)
"""Codes that servers use for a session that they don't know."""


def describe_ending(config: UpstreamConfig) -> str:
    """What happened if a connection has ended without an error."""
    return "its connection ended" if config.command is None else "its process ended"


def describe_failure(failure: Exception, config: UpstreamConfig) -> str:
    """Why the upstream is not available, or a request broke off."""
    error = _first_leaf(failure)
    if isinstance(error, FileNotFoundError) and config.command is not None:
        return f"its command {config.command!r} does not exist or is not on PATH: install it, or give its whole path"
    if isinstance(error, TimeoutError):
        return _clean(str(error), config) or "it did not answer in time"
    if isinstance(error, LinkLost) and not str(error):
        return describe_ending(config)
    if isinstance(error, PeerError | NoAnswer | LinkLost | GatewayError):
        return _clean(str(error), config)
    return _clean(f"{type(error).__name__}: {error}", config)


def may_be_of_session(error: Mapping[str, Any]) -> bool:
    """Whether a JSON-RPC error may mean that the server has forgotten the session; it may as well be a tool's own."""
    return error.get("code") in _OF_SESSION or names_session(str(error.get("message", "")))


def _clean(words: str, config: UpstreamConfig) -> str:
    # Masked before it is cut, because half a secret would not be found.
    return escape_text(mask_text(words, config.secrets), _LENGTH)


def _first_leaf(error: BaseException) -> BaseException:
    """The first leaf of nested exception groups, into which task groups wrap the error that began it all."""
    if isinstance(error, BaseExceptionGroup):
        return _first_leaf(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return error
