"""When frames are sent: a policy, and the pure object that applies it. Frames and times in, frames to send at once out.

Every flush of a compressed stream costs bytes, so ids wait for each other and are sent together in one frame: when the
oldest has waited as long as the policy allows, or when there are enough. The first ids of a stream never wait, nor does
a frame that holds more than ids. Nor do ids that follow a pause as long as they might wait: after such a pause, nothing
more is expected in time, so a slow engine's stream is not held back. Knows no clock, no encoding and no compression:
the caller passes the time, writes what is returned and flushes once after it.
"""

import math
from dataclasses import dataclass
from typing import Final

from .frame import Frame, merge


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """How long ids may wait for each other. Whichever bound is reached first applies."""

    max_delay: float = 0.040
    """Seconds that an id may wait; infinity if only the count decides."""
    max_ids: int = 1024
    """How many ids may wait before all are sent; 1 if none may wait."""


INTERACTIVE: Final = FlushPolicy()
"""For a person who reads along."""
BATCH: Final = FlushPolicy(max_delay=math.inf, max_ids=2**16)
"""For a program that wants the whole answer: the first ids at once, the rest with the end of the stream."""
AT_ONCE: Final = FlushPolicy(max_delay=0.0, max_ids=1)
"""Every frame as it comes."""


class FlushGate:
    """Holds back the frames of one stream as long as its policy allows."""

    def __init__(self, policy: FlushPolicy = INTERACTIVE) -> None:
        self._policy = policy
        self._waiting: list[int] = []
        self._since = 0.0
        self._came = 0.0
        self._begun = False

    @property
    def deadline(self) -> float | None:
        """When the waiting ids must be sent, on the clock of `feed`; None if none wait or only the count decides."""
        if not self._waiting or self._policy.max_delay == math.inf:
            return None
        return self._since + self._policy.max_delay

    def feed(self, frame: Frame, now: float) -> list[Frame]:
        """Take a frame that came at `now`, in seconds, and return the frames to send at once: none, one or two."""
        if self._begun and frame.ids and frame.is_plain:
            paused, self._came = now - self._came, now
            if not self._waiting:
                self._since = now
            self._waiting += frame.ids
            return self.close() if paused >= self._policy.max_delay else self.tick(now)
        if frame.ids:
            self._begun, self._came = True, now
        earlier = self.close()
        if not earlier:
            return [frame]
        merged = merge(earlier[0], frame)
        return [*earlier, frame] if merged is None else [merged]

    def tick(self, now: float) -> list[Frame]:
        """Return the waiting ids as one frame, if they must be sent by now."""
        deadline = self.deadline
        due = deadline is not None and now >= deadline
        return self.close() if due or len(self._waiting) >= self._policy.max_ids else []

    def close(self) -> list[Frame]:
        """Return the waiting ids as one frame, whatever the time."""
        if not self._waiting:
            return []
        frame = Frame(tuple(self._waiting))
        self._waiting = []
        return [frame]
