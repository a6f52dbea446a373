"""The last calls of tools, as figures: whose, how each ended and how long it took, and no word of any.

Keeps as many as a person looks at, for who runs the gateway. No IO.
"""

from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
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
        self._kept: deque[LastCall] = deque(maxlen=KEPT)

    def note(self, server: str, tool: str, principal: str, ended: str, seconds: float) -> None:
        """A call is over."""
        self._kept.append(LastCall(datetime.now(UTC), server, tool, principal, ended, seconds))

    def of(self, server: str, tool: str | None = None) -> list[LastCall]:
        """Those of a server, or of one tool of it, the latest first."""
        return [each for each in reversed(self._kept) if each.server == server and tool in (None, each.tool)]
