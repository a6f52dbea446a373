"""Waits until what a server asks at the start of a client's own session, or of a borrowed one, is answered.

A server that guards folders asks for the client's roots when it is initialized. A client that connects to it directly
sends its first call much later. We open the session for that call, so it would overtake the answer and be refused.
It does not know who answers.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final, Protocol

import anyio

from gateway.proxy.transport.interface import LinkLost, NoAnswer, PeerError

MOST: Final = 5.0
"""Seconds to wait, at most: the client may never answer, or the server never the ping."""
_ROOTS: Final = "roots"
_QUIET: Final = 2
"""Pings in succession without a question after which no more is expected."""
_USE: Final = 0.1
"""Seconds that a server gets to use an answer: some look at the folders first, and answer pings meanwhile."""


class Questions:
    """The questions of a server, outside of any call, that are not answered yet."""

    def __init__(self) -> None:
        self.asked = 0
        """How many there were."""
        self.new_answers = 0
        """How many were answered otherwise than the one before."""
        self._last: tuple[str, object] | None = None
        self._open = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def one(self) -> Generator[None]:
        """Count a question as open while the context lasts."""
        self.asked += 1
        self._open += 1
        self._none.clear()
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._none.set()

    def note(self, method: str, answer: object) -> None:
        """Note the answer to one."""
        if (method, answer) != self._last:
            self.new_answers += 1
            self._last = method, answer

    async def all_answered(self) -> None:
        """Wait until none is open."""
        await self._none.wait()


class Asking(Protocol):
    """A session, as far as is needed here."""

    questions: Questions

    async def ping(self) -> None:
        """Send a ping and wait for its answer. Raises as `Transport.request` does."""
        ...


async def until_answered(session: Asking, announced: frozenset[str]) -> None:
    """Wait until the server has had its say and its questions are answered. `announced`: the client's capabilities."""
    if _ROOTS not in announced:
        return
    with anyio.move_on_after(MOST), suppress(PeerError, NoAnswer, LinkLost):
        known_answers, quiet = session.questions.new_answers, 0
        # Servers take messages in their order: what `initialized` makes one ask comes about when it answers a ping, and
        # surely before it answers the next; an answer of the client's is taken before the ping after that is.
        while quiet < _QUIET:
            known = session.questions.asked
            with suppress(PeerError):
                await session.ping()
            await session.questions.all_answered()
            quiet = quiet + 1 if known == session.questions.asked else 0
        if known_answers != session.questions.new_answers:
            await anyio.sleep(_USE)
