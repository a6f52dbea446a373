"""How many calls of clients run at one process at a time, whichever worker they come from. Pure."""

from gateway.proxy.transport.stdio.host_protocol import SHIFT


class Turns:
    """At most `most` calls at a time; the others wait in order. Each worker bounds how many of its own calls wait."""

    def __init__(self, most: int) -> None:
        """Start with no calls."""
        self._most = most
        self._running = 0
        self._waiting: dict[int, bytes] = {}

    def take(self, number: int, line: bytes) -> bool:
        """Whether a request may be sent now; otherwise `end` returns it later."""
        if self._running < self._most:
            self._running += 1
            return True
        self._waiting[number] = line
        return False

    def withdraw(self, number: int) -> bool:
        """Drop a request. Returns whether it was waiting."""
        return self._waiting.pop(number, None) is not None

    def end(self) -> tuple[int, bytes] | None:
        """Note that a running request has ended. Returns the next one, which counts as running from now on."""
        if not self._waiting:
            self._running -= 1
            return None
        number = next(iter(self._waiting))
        return number, self._waiting.pop(number)

    def withdraw_all(self, number: int) -> None:
        """Drop all waiting requests of a connection."""
        for each in [each for each in self._waiting if each >> SHIFT == number]:
            del self._waiting[each]
