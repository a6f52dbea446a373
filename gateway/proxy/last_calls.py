"""The last calls of tools, as figures: whose, how each ended and how long it took, and no word of any.

Keeps as many as a person looks at, for who runs the gateway. No IO.
"""

from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Final

KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class LastCall:
    """One call that is over."""

    ended_at: datetime
    server: str
    tool: str
    """Its own name on that server."""
    principal: str
    ended: str
    """`ok`, or how it failed, in the words of the audit log."""
    seconds: float


class LastCalls:
    """Those of all servers, of which the oldest go."""

    def __init__(self) -> None:
        # Every call passes here, and few are ever looked at: what is kept is made readable when somebody asks.
        self._kept: deque[tuple[float, str, str, str, str, float]] = deque(maxlen=KEPT)

    def note(self, server: str, tool: str, principal: str, ended: str, seconds: float) -> None:
        """A call is over. About 0.2 µs."""
        self._kept.append((perf_counter(), server, tool, principal, ended, seconds))

    def of(self, server: str, tool: str | None = None) -> list[LastCall]:
        """Those of a server, or of one tool of it, the latest first."""
        now, clock = datetime.now(UTC), perf_counter()
        return [
            LastCall(now - timedelta(seconds=clock - at), of, name, principal, ended, seconds)
            for at, of, name, principal, ended, seconds in reversed(self._kept)
            if of == server and tool in (None, name)
        ]
