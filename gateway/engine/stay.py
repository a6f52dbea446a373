"""Where one answer is made: an engine, and what becomes of the answer when that is lost.

Turns questions to the engine into answers of it, or of another in its place. Here is the stay with the only engine that
there is, which changes nothing; with several, `pool.py` has one that moves.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

from gateway.engine.readiness import ReadyEngine
from gateway.errors import EngineBusy, EngineError, EngineRefused, EngineUnavailable, MapDiffers

T = TypeVar("T")


class Route(Protocol):
    """One engine, over all its starts (`EngineRoute`)."""

    def ready(self) -> ReadyEngine:
        """The running engine. Raises `EngineError` while there is none."""
        ...

    def report_loss(self) -> None:
        """A request found that the engine is gone."""
        ...


class Stay:
    """Where one answer is made: the only engine that there is."""

    may_move = False
    """Whether another engine may go on."""

    def __init__(self, ready: ReadyEngine, route: Route | None = None) -> None:
        """`route`: is told when the engine fails."""
        self.ready = ready
        """The engine that it has now."""
        self._route = route

    async def wait(self, answer: Awaitable[T]) -> T:
        """Wait for what the engine does. Where another may go on, `EngineUnavailable` when it is lost meanwhile."""
        return await answer

    async def turn(self, place: Awaitable[T]) -> T:
        """Wait until the engine has room for it. An engine that is lost meanwhile was not lost over this answer."""
        return await place

    def each(self, events: AsyncIterator[T]) -> AsyncIterator[T]:
        """The events of the engine. Each is waited for as `wait` does."""
        return events

    async def ask(self, question: Callable[[ReadyEngine], Awaitable[T]]) -> T:
        """Ask the engine something that any other can be asked as well. Raises `EngineError` when none answers."""
        while True:
            try:
                return await self.wait(question(self.ready))
            except EngineError as error:
                self.lost(error)
                if not is_loss(error):
                    raise
                self.move(error)

    def answered(self) -> None:
        """The engine has given an id."""

    def lost(self, error: EngineError) -> None:
        """The engine has failed; its route finds out whether it is gone."""
        if self._route is not None and isinstance(error, EngineUnavailable) and not isinstance(error, EngineBusy):
            self._route.report_loss()

    def move(self, error: EngineError) -> None:
        """Leave a lost engine for another. Raises `error` if there is none, or too much has moved already."""
        raise error


def is_loss(error: EngineError) -> bool:
    """Whether another engine may do better: this one is down, was exchanged, or answers nonsense."""
    return isinstance(error, EngineUnavailable | MapDiffers) or (
        isinstance(error, EngineRefused) and error.status >= 500 and error.status != 501
    )
