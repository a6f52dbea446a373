"""What waits to be written to one client, bounded.

Turns notifications into frames, in order, for whoever writes them (`take`). Nothing here blocks: a client that does not
read loses the oldest progress and log messages first, then other notifications, never an answer; it is asked nothing
more. What was lost is counted. A list that changed twice while the first notice still waits has changed once. It knows
no transport.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from gateway.protocol.messages import encode_notification

COUNT: Final = 1024
"""Most frames that wait before notifications are dropped."""
SIZE: Final = 1024 * 1024
"""Most bytes that wait before notifications are dropped; what is larger by itself goes where nothing waits."""
_MINOR: Final = frozenset({"notifications/progress", "notifications/message"})


class Stream(Protocol):
    """Where frames for a client go."""

    def tell(self, method: str, params: Mapping[str, Any], key: Hashable = None) -> None:
        """A notification. One whose `key` equals that of a waiting one says nothing new."""
        ...

    def offer(self, data: bytes) -> bool:
        """A request of ours, if there is room; whether it was added."""
        ...

    def put(self, data: bytes) -> None:
        """A frame that must arrive: an answer, or what takes a request back."""
        ...


class _Item(NamedTuple):
    data: bytes
    minor: bool


def ignore() -> None:
    """Stands for a callback that is not wanted any more."""


class Outbox:
    """Frames of one stream that were not written yet."""

    __slots__ = ("_dropped", "_keys", "_size", "_waiting", "_wake")

    def __init__(self, wake: Callable[[], None], dropped: Callable[[], None]) -> None:
        """`wake` is called whenever a frame was added, `dropped` for every notification that is lost."""
        self._wake = wake
        self._dropped = dropped
        self._waiting: list[_Item] = []
        self._keys: set[Hashable] = set()
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes that wait."""
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
        """Add a frame, whatever waits."""
        self._add(_Item(data, minor=False))

    def mute(self) -> None:
        """Wake nobody any more; who does not hold on to its owner does not keep it for the garbage collector."""
        self._wake = ignore

    def frames(self) -> list[bytes]:
        """All that waits, in order."""
        return [item.data for item in self._waiting]

    def take(self) -> list[bytes]:
        """All that waits, in order; from now on it is written."""
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
        """Drop the oldest progress and log messages until there is room for so many bytes; whether there is."""
        while self._waiting and (len(self._waiting) >= COUNT or self._size + size > SIZE):
            oldest = next((index for index, item in enumerate(self._waiting) if item.minor), None)
            if oldest is None:
                return False
            self._size -= len(self._waiting.pop(oldest).data)
            self._dropped()
        return True


class HeldStream:
    """A stream that keeps what it gets until it is let go."""

    def __init__(self, stream: Stream, dropped: Callable[[], None]) -> None:
        """`stream`: where everything goes in the end."""
        self._stream = stream
        self._held: Outbox | None = Outbox(lambda: None, dropped)

    def tell(self, method: str, params: Mapping[str, Any], key: Hashable = None) -> None:
        """A notification, if there is room."""
        (self._stream if self._held is None else self._held).tell(method, params, key)

    def offer(self, data: bytes) -> bool:
        """A request of ours, if there is room."""
        return (self._stream if self._held is None else self._held).offer(data)

    def put(self, data: bytes) -> None:
        """A frame that must arrive."""
        (self._stream if self._held is None else self._held).put(data)

    def release(self) -> None:
        """From now on nothing is kept; what was goes out."""
        held, self._held = self._held, None
        for frame in held.take() if held is not None else ():
            self._stream.put(frame)
