"""Waiting for an engine that may be found to be lost meanwhile: one that hangs says nothing itself.

Turns what a running engine is asked into what is given up when its route closes. Used where another engine can go on;
where there is none, whoever waits hopes until the engine's own time limit.
"""

from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

import anyio

from gateway.errors import EngineUnavailable

T = TypeVar("T")


class Life:
    """One start of an engine, until it is lost."""

    def __init__(self) -> None:
        """It lives."""
        self.over = False
        self._waiting: set[anyio.CancelScope] = set()

    def end(self) -> None:
        """It is lost: whoever waits for it is told."""
        self.over = True
        for scope in self._waiting:
            scope.cancel()

    async def wait(self, answer: Awaitable[T]) -> T:
        """Wait for an answer of it. Raises `EngineUnavailable` when it is lost before that comes."""
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            if self.over:
                scope.cancel()
            try:
                return await answer
            finally:
                self._waiting.discard(scope)
        raise EngineUnavailable("the engine was lost while it was waited for; ask again")

    def each(self, events: AsyncIterator[T]) -> AsyncIterator[T]:
        """What comes of it, each waited for so: nobody is interrupted who has got something and works with it."""
        return _Each(self, events)


class _Each(AsyncIterator[T]):
    def __init__(self, life: Life, events: AsyncIterator[T]) -> None:
        self._life = life
        self._events = events

    async def __anext__(self) -> T:
        return await self._life.wait(anext(self._events))
