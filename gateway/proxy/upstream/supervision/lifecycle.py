"""The lifecycle of one upstream as a pure state machine: idle, starting, up, restarting.

Turns "it came up", "it answered" and "it went down, because of this" into the next state and the length of the next
pause. It has no clock, no randomness and no process: `supervisor.py` passes in the random number. Pauses double with
every failure in a row and have jitter, so that ten servers that died together do not come back together. Only an answer
ends the row, so that a server that keeps dying before it is of any use is restarted slowly, however long it stays up.
"""

from dataclasses import dataclass, replace
from typing import Literal

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
