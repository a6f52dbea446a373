"""The frames that wait to be written to one client, bounded.

Turns notifications into frames, in order; the writer takes them with `take`. Nothing here blocks: a client that does
not read loses the oldest progress and log messages first, then other notifications, but never an answer, and it is
asked nothing more. Losses are counted. A second notice that a list changed is left out while the first one still waits.
It knows no transport.
"""

from collections.abc import Callable, Hashable, Mapping
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol

from gateway.observe.logs import get_logger
from gateway.protocol.messages import encode_notification

COUNT: Final = 1024
"""The most frames that may wait before notifications are dropped."""
SIZE: Final = 1024 * 1024
"""The most bytes that may wait before notifications are dropped. A larger single frame fits only if nothing waits."""
_MINOR: Final = frozenset({"notifications/progress", "notifications/message"})


class Stream(Protocol):
    """Takes frames for a client."""

    def tell(self, method: str, params: Mapping[str, Any], key: Hashable = None) -> None:
        """Send a notification, if there is room. One with the same `key` as a waiting one is left out."""
        ...

    def offer(self, data: bytes) -> bool:
        """Send a request of the gateway's, if there is room. Returns whether there was."""
        ...

    def put(self, data: bytes) -> None:
        """Send a frame that must arrive: an answer, or the cancellation of a request."""
        ...


class _Item(NamedTuple):
    data: bytes
    minor: bool


def ignore() -> None:
    """Do nothing: replaces a callback that is not wanted any more."""


class Outbox:
    """The frames of one stream that have not been written yet."""

    __slots__ = ("_dropped", "_keys", "_size", "_waiting", "_wake")

    def __init__(self, wake: Callable[[], None], dropped: Callable[[], None]) -> None:
        """`wake` is called whenever a frame is added, `dropped` for every notification that is lost."""
        self._wake = wake
        self._dropped = dropped
        self._waiting: list[_Item] = []
        self._keys: set[Hashable] = set()
        self._size = 0

    @property
    def size(self) -> int:
        """How many bytes wait."""
        return self._size

    def __len__(self) -> int:
        return len(self._waiting)

    def tell(self, method: str, params: Mapping[str, Any], key: Hashable = None) -> None:
        """Add a notification, if there is room for it."""
        if key is None and method.endswith("/list_changed"):
            key = method
        if key is not None and key in self._keys:
            return
        item = _Item(encode_notification(method, params), method in _MINOR)
        if not self._make_room(len(item.data)):
            self._dropped()
            return
        if key is not None:
            self._keys.add(key)
        self._add(item)

    def offer(self, data: bytes) -> bool:
        """Add a frame, if there is room for it."""
        fits = self._make_room(len(data))
        if fits:
            self._add(_Item(data, minor=False))
        return fits

    def put(self, data: bytes) -> None:
        """Add a frame, however much waits."""
        self._add(_Item(data, minor=False))

    def mute(self) -> None:
        """Stop calling `wake`, and forget it, which breaks the reference cycle with the outbox's owner."""
        self._wake = ignore

    def frames(self) -> list[bytes]:
        """The waiting frames, in order."""
        return [item.data for item in self._waiting]

    def take(self) -> list[bytes]:
        """Remove and return the waiting frames, in order; they then count as written."""
        frames = self.frames()
        self._waiting = []
        self._keys.clear()
        self._size = 0
        return frames

    def _add(self, item: _Item) -> None:
        self._waiting.append(item)
        self._size += len(item.data)
        self._wake()

    def _make_room(self, size: int) -> bool:
        """Drop the oldest progress and log messages until there is room for `size` bytes. Returns whether there is."""
        while self._waiting and (len(self._waiting) >= COUNT or self._size + size > SIZE):
            oldest = next((index for index, item in enumerate(self._waiting) if item.minor), None)
            if oldest is None:
                return False
            self._size -= len(self._waiting.pop(oldest).data)
            self._dropped()
        return True


class HeldStream:
    """A stream that holds back what it gets until it is released."""

    def __init__(self, stream: Stream, dropped: Callable[[], None]) -> None:
        """`stream`: gets everything in the end."""
        self._stream = stream
        self._held: Outbox | None = Outbox(lambda: None, dropped)

    def tell(self, method: str, params: Mapping[str, Any], key: Hashable = None) -> None:
        """Send a notification, if there is room."""
        (self._stream if self._held is None else self._held).tell(method, params, key)

    def offer(self, data: bytes) -> bool:
        """Send a request of the gateway's, if there is room. Returns whether there was."""
        return (self._stream if self._held is None else self._held).offer(data)

    def put(self, data: bytes) -> None:
        """Send a frame that must arrive."""
        (self._stream if self._held is None else self._held).put(data)

    def release(self) -> None:
        """Pass on everything that was held back, and hold nothing back from now on."""
        held, self._held = self._held, None
        for frame in held.take() if held is not None else ():
            self._stream.put(frame)


# The losses of a minute are one line, so that a server that floods a slow client does not flood the log.

EVERY: Final = 60.0
"""The least number of seconds between two lines."""


class Losses:
    """The losses of all clients."""

    def __init__(self, count: Callable[[], None], clock: Callable[[], float] = monotonic) -> None:
        """`count` is called for each loss; `clock` gives seconds."""
        self._count = count
        self._clock = clock
        self._log = get_logger("gateway.serve.mcp")
        self._said: float | None = None
        self._unsaid = 0

    def __call__(self) -> None:
        """Count a lost notification."""
        self._count()
        self._unsaid += 1
        now = self._clock()
        if self._said is None or now - self._said >= EVERY:
            self._log.warning("a client is not reading: notifications for it are dropped", dropped=self._unsaid)
            self._said, self._unsaid = now, 0
