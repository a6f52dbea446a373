"""A circuit breaker: when to stop asking a server that does not answer, as a pure state machine.

Turns the outcomes of calls into whether the next may be made. After a set number of failures in a row it opens: calls
are refused at once. After a pause one call may try (half open); its outcome closes the breaker or opens it again. Every
call gets an admission, and its outcome counts only while that is current: calls from before the breaker opened neither
lengthen the pause nor decide for the one that tries. It has no clock: every call passes the time.
"""

from typing import Literal, NewType

BreakerState = Literal["closed", "open", "half_open"]
Admission = NewType("Admission", int)
"""The permission for a call, to be passed with its outcome. All calls that a closed breaker lets through share one. The
outcome of a call that was made without one counts for nothing."""


class Breaker:
    """The breaker of one server."""

    def __init__(self, failures: int, pause: float) -> None:
        """`failures` in a row open it for `pause` seconds; 0: it never opens."""
        self._max_failures = failures
        self._pause = pause
        self.failures = 0
        """In a row."""
        self._opened: float | None = None
        """The time at which it opened; None: it is closed."""
        self._current = Admission(0)
        """The admission whose outcomes count."""
        self._probing = False
        """Whether the current admission is that of the one call that tries."""

    def state(self, now: float) -> BreakerState:
        """The state at a time."""
        if self._opened is None:
            return "closed"
        return "half_open" if now - self._opened >= self._pause else "open"

    def admit(self, now: float) -> Admission | None:
        """Admit a call; None: it must not be made now. Who is admitted must report an outcome, `inconclusive` at
        least."""
        if self._opened is None:
            return self._current
        if self._probing or self._opened + self._pause > now:
            return None
        self._probing = True
        return self._current

    def wait(self, now: float) -> float:
        """Seconds until a call that was refused may try again; a whole pause while another one tries."""
        left = 0.0 if self._opened is None else self._opened + self._pause - now
        return left if left > 0 else self._pause

    def succeeded(self, admission: Admission | None) -> None:
        """Record that a call was answered, even if by an error: the server is there."""
        if admission == self._current:
            # The one that tried is now one of those that a closed breaker let through.
            self.failures, self._opened, self._probing = 0, None, False

    def failed(self, admission: Admission | None, now: float) -> None:
        """Record that a call got no answer."""
        if admission != self._current:
            return
        self.failures += 1
        if self._probing or (self._max_failures and self.failures >= self._max_failures):
            self._opened = now
            self._end_admission()

    def inconclusive(self, admission: Admission | None) -> None:
        """Record that a call ended, whatever became of it: if it was to try and has no outcome, the next one may."""
        if self._probing and admission == self._current:
            self._end_admission()

    def reset(self) -> None:
        """Close it: another server has taken the place of the one that failed."""
        self.failures, self._opened = 0, None
        self._end_admission()

    def _end_admission(self) -> None:
        self._current = Admission(self._current + 1)
        self._probing = False
