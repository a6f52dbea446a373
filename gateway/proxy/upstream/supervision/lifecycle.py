"""The lifecycle of one upstream as a pure state machine, and what broke it in words for a person."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

from gateway.config.gateway_config import UpstreamConfig
from gateway.errors import GatewayError
from gateway.escape import escape_text, mask_text
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, PeerError, names_session

# Pauses double with every failure in a row and have jitter, so that ten servers that died together do not come back
# together. Only an answer ends the row, so that a server that keeps dying before it is of any use is restarted slowly,
# however long it stays up. The caller passes in the random number.

State = Literal["idle", "starting", "up", "restarting"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next start; both bounds in seconds."""

    first: float
    longest: float

    def pause(self, failures: int, roll: float) -> float:
        """Seconds to wait after `failures` in a row (1 or more); `roll` is in [0, 1).

        Half of the doubled pause is fixed, the other half random ("equal jitter"): never zero, never over `longest`.
        """
        # The exponent is capped because 2.0 ** 1024 overflows, and a server can stay dead for a very long time.
        full = min(self.longest, self.first * 2.0 ** min(failures - 1, 64))
        return full * (0.5 + roll / 2)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The state of an upstream. Every step returns a new value."""

    state: State = "starting"
    failures: int = 0
    """Failures in a row; the next pause grows with them."""
    restarts: int = 0
    """Starts after the first one."""
    last_error: str | None = None
    """Why it went down the last time; kept after it is up again, for a person who asks what happened."""

    def came_up(self) -> "Lifecycle":
        """The server answered and listed its tools."""
        return replace(self, state="up")

    def answered(self) -> "Lifecycle":
        """The server answered a request: the next failure is the first in a row."""
        return replace(self, failures=0)

    def went_down(self, cause: str) -> "Lifecycle":
        """The server died, or failed to come up."""
        return replace(self, state="restarting", failures=self.failures + 1, last_error=cause)

    def fell_asleep(self) -> "Lifecycle":
        """The server is not running, because nobody needs it."""
        return replace(self, state="idle", failures=0)

    def woke(self) -> "Lifecycle":
        """Somebody needs the server: it is being started."""
        return replace(self, state="starting")

    def started_again(self) -> "Lifecycle":
        """The pause is over, and the server is being started again."""
        return replace(self, restarts=self.restarts + 1)


# A server's own words are untrusted: secrets of its configuration are masked in them, and they are escaped and cut.

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
