"""Waiting for an engine that may turn out to be lost in the meantime: one that hangs reports nothing itself.

Turns a wait for a running engine into one that ends when the engine's route closes. Used where another engine can take
over; otherwise a caller waits until the engine's own time limit.
"""

from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

import anyio

from gateway.errors import EngineUnavailable

T = TypeVar("T")


class Life:
    """One start of an engine, until it is lost."""

    def __init__(self) -> None:
        """Start as alive."""
        self.over = False
        self._waiting: set[anyio.CancelScope] = set()

    def end(self) -> None:
        """Record that the engine is lost, and end all waits for it."""
        self.over = True
        for scope in self._waiting:
            scope.cancel()

    async def wait(self, answer: Awaitable[T]) -> T:
        """Wait for an answer of the engine. Raises `EngineUnavailable` when the engine is lost before that."""
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            if self.over:
                scope.cancel()
            try:
                return await answer
            finally:
                self._waiting.discard(scope)
        raise EngineUnavailable("the engine was lost before it answered; try again")

    def each(self, events: AsyncIterator[T]) -> AsyncIterator[T]:
        """The same events, each waited for like `wait`. The consumer is not interrupted while it handles an event."""
        return _Each(self, events)


class _Each(AsyncIterator[T]):
    def __init__(self, life: Life, events: AsyncIterator[T]) -> None:
        self._life = life
        self._events = events

    async def __anext__(self) -> T:
        return await self._life.wait(anext(self._events))
