"""What replicas share through a store, as the packages above see it.

Whoever asks goes on without an answer: None says that the store is away, slow or at fault, which nobody is told but who
runs the gateway. Apart from what does it: a gateway without a store loads nothing of that.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

Limit = Literal["rate", "tries"]
"""What is limited: a principal's requests a minute, an address's wrong guesses."""


@dataclass(frozen=True, slots=True)
class SharedStatus:
    """How the store stands."""

    up: bool
    reason: str | None
    """Why not."""
    replicas: int
    """How many use it, as it was last told: 1 at least."""


class Shared(Protocol):
    """One store, asked by all replicas."""

    @property
    def status(self) -> SharedStatus:
        """How it stands."""
        ...

    async def take(self, limit: Limit, who: str, size: float, a_second: float) -> float | None:
        """Take a token of the bucket that all replicas have for somebody: 0, or the seconds until there is one.

        `size`: tokens of a full bucket; `a_second`: how many come back.
        """
        ...

    async def wait(self, limit: Limit, who: str, size: float, a_second: float) -> float | None:
        """The same, and take nothing."""
        ...
