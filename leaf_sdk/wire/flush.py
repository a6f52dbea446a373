"""When frames leave: a policy, and the pure object that keeps it. Frames and times in, frames to send at once out.

Every flush of a compressed stream costs bytes, so ids wait for each other, are put into one frame, and leave together:
when the oldest has waited as long as the policy allows, or when enough have gathered. The first ids of a stream never
wait, and neither does a frame that says more than ids; nor do ids behind a pause as long as they could wait, since by
all that is known nothing would come in time to go with them: a slow engine's stream is not held back. Knows no clock,
no encoding and no compression: the caller says what time it is, writes what it gets back and flushes once after it.
"""

import math
from dataclasses import dataclass
from typing import Final

from .frame import Frame, merge


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """How long ids may wait for each other. Whichever bound is reached first counts."""

    max_delay: float = 0.040
    """Seconds that an id may wait; infinity where only the count decides."""
    max_ids: int = 1024
    """How many ids leave together at most; 1 where none may wait."""


INTERACTIVE: Final = FlushPolicy()
"""For a person who reads along."""
BATCH: Final = FlushPolicy(max_delay=math.inf, max_ids=2**16)
"""For a program that wants the whole answer: the first ids at once, the rest with the end of the stream."""
AT_ONCE: Final = FlushPolicy(max_delay=0.0, max_ids=1)
"""Every frame as it comes."""


class FlushGate:
    """Holds the frames of one stream back as long as its policy allows."""

    def __init__(self, policy: FlushPolicy = INTERACTIVE) -> None:
        self._policy = policy
        self._waiting: list[int] = []
        self._since = 0.0
        self._came = 0.0
        self._begun = False

    @property
    def deadline(self) -> float | None:
        """When the ids that wait must leave, on the clock that `feed` is told; None where none wait or none must."""
        if not self._waiting or self._policy.max_delay == math.inf:
            return None
        return self._since + self._policy.max_delay

    def feed(self, frame: Frame, now: float) -> list[Frame]:
        """Take a frame at a time in seconds, and give the frames that must leave at once: none, one or two."""
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
        """Give the ids that wait, as one frame, if they must leave by now."""
        deadline = self.deadline
        due = deadline is not None and now >= deadline
        return self.close() if due or len(self._waiting) >= self._policy.max_ids else []

    def close(self) -> list[Frame]:
        """Give the ids that wait, as one frame, whatever the time."""
        if not self._waiting:
            return []
        frame = Frame(tuple(self._waiting))
        self._waiting = []
        return [frame]
