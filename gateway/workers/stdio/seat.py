"""One worker's place at a server's process: the requests it has sent that are not answered yet.

Clients' requests are kept apart from the gateway's own, because what the server says unasked may be meant for a
client. A request that was given up counts until it is answered, since a server need not heed a cancellation. Pure.
"""

from typing import Final

MOST: Final = 256
"""How many requests are remembered one by one that were given up and not answered."""
OURS: Final = frozenset(
    {
        b"initialize",
        b"logging/setLevel",
        b"ping",
        b"prompts/list",
        b"resources/list",
        b"resources/subscribe",
        b"resources/templates/list",
        b"resources/unsubscribe",
        b"server/discover",
        b"subscriptions/listen",
        b"tools/list",
    }
)
"""Requests that a gateway makes for itself. What the server says meanwhile is for nobody in particular."""
NEVER_CANCELLED: Final = frozenset({b"initialize", b"ping", b"server/discover"})
SIGNS_OF_LIFE: Final = frozenset({b"initialize", b"ping", b"server/discover", b"tools/list"})
"""Requests that a healthy server answers at once."""


class Seat:
    """One connection of a worker."""

    __slots__ = ("calls", "forgot", "given_up", "level", "number", "ours", "silent_since")

    def __init__(self, number: int) -> None:
        """Start with no requests."""
        self.number = number
        self.calls: dict[int, None] = {}
        """Clients' requests that are running at the server."""
        self.given_up: dict[int, None] = {}
        """Clients' requests that nobody waits for any more."""
        self.ours: dict[int, bytes] = {}
        """Requests of the gateway itself, and their methods."""
        self.forgot = False
        """Whether more were given up than are remembered."""
        self.level: str | None = None
        """The log level that it asked for; None: it has asked for none."""
        self.silent_since: float | None = None
        """When it asked for a sign of life; None: it has never asked, or has had an answer since."""

    @property
    def has_callers(self) -> bool:
        """Whether what the server says unasked may be meant for a client of this worker."""
        return bool(self.calls or self.given_up or self.forgot)

    def ask(self, number: int, method: bytes, now: float) -> None:
        """Note a request that the gateway itself sends."""
        self.ours[number] = method
        if method in SIGNS_OF_LIFE:
            self.silent_since = now

    def want_level(self, level: str) -> None:
        """Note that the worker wants log messages from this level on."""
        self.level = level

    def give_up(self, number: int) -> bool:
        """Note that nobody waits for a request any more. Returns whether the server has to be told."""
        if number in self.calls:
            del self.calls[number]
            self.forgot = remember(self.given_up, number) or self.forgot
            return True
        return self.ours.pop(number, None) is not None

    def settle(self, number: int) -> bool:
        """Note the answer to a request. Returns whether the request had been sent."""
        self.silent_since = None
        if number in self.calls:
            del self.calls[number]
            return True
        if number in self.ours:
            del self.ours[number]
            return True
        return self.given_up.pop(number, 0) is None


def remember(numbers: dict[int, None], number: int) -> bool:
    """Add a number. Returns whether the oldest had to be forgotten for it."""
    numbers[number] = None
    if len(numbers) <= MOST:
        return False
    del numbers[next(iter(numbers))]
    return True
