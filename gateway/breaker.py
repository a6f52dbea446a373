"""A circuit breaker: when to stop asking a server that does not answer, as a pure state machine.

Turns the outcomes of calls into whether the next may be made. After a set number of failures in a row it opens: calls
are refused at once. After a pause one call may try (half open); its outcome closes the breaker or opens it again. It
has no clock: every call passes the time.
"""

from typing import Literal

State = Literal["closed", "open", "half_open"]


class Breaker:
    """The breaker of one server."""

    def __init__(self, failures: int, pause: float) -> None:
        """`failures` in a row open it for `pause` seconds; 0: it never opens."""
        self._max_failures = failures
        self._pause = pause
        self.failures = 0
        """In a row."""
        self.opened: float | None = None
        """The time at which it opened; None: it is closed."""
        self._probing = False

    def state(self, now: float) -> State:
        """The state at a time."""
        if self.opened is None:
            return "closed"
        return "half_open" if now - self.opened >= self._pause else "open"

    def admit(self, now: float) -> float | None:
        """None if the call may be made; otherwise the seconds until one may try again."""
        if self.opened is None:
            return None
        left = self.opened + self._pause - now
        if left > 0:
            return left
        if self._probing:
            return self._pause
        self._probing = True
        return None

    def succeeded(self) -> None:
        """Record that a call was answered, even if by an error: the server is there."""
        self.failures = 0
        self.opened = None
        self._probing = False

    def failed(self, now: float) -> None:
        """Record that a call got no answer."""
        self.failures += 1
        if self._probing or (self._max_failures and self.failures >= self._max_failures):
            self.opened = now
        self._probing = False

    def inconclusive(self) -> None:
        """Record that a call ended without a verdict: its caller left, or the server could not be asked."""
        self._probing = False
