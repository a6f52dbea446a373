"""When to stop asking a server that does not answer, as a pure state machine.

Turns "this call failed" and "this one did not" into whether the next may try. After so many failures in a row it opens:
calls are refused at once. After a pause one call may try (half open); its outcome closes the breaker or opens it again.
It has no clock: every step brings the time.
"""

from typing import Literal

State = Literal["closed", "open", "half_open"]


class Breaker:
    """One server's breaker."""

    def __init__(self, failures: int, pause: float) -> None:
        """`failures` in a row open it (0: nothing does) for `pause` seconds."""
        self._most = failures
        self._pause = pause
        self.failures = 0
        """In a row."""
        self.opened: float | None = None
        """Since when it lets nobody through, but for a trial; None: it is closed."""
        self._probing = False

    def state(self, now: float) -> State:
        """Where it stands."""
        if self.opened is None:
            return "closed"
        return "half_open" if now - self.opened >= self._pause else "open"

    def admit(self, now: float) -> float | None:
        """None: the call may go. Otherwise the seconds until one may try again."""
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
        """A call was answered, even if by an error: the server is there."""
        self.failures = 0
        self.opened = None
        self._probing = False

    def failed(self, now: float) -> None:
        """A call got no answer."""
        self.failures += 1
        if self._probing or (self._most and self.failures >= self._most):
            self.opened = now
        self._probing = False

    def left(self) -> None:
        """A call ended without a verdict: its caller went away, or the server was not there to be asked."""
        self._probing = False
