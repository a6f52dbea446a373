"""Where one answer is made: an engine, and what happens to the answer when the engine is lost.

Turns questions to an engine into its answers, or those of a replacement. The stay here is for the only engine that
there is, and changes nothing; `pool.py` has one that moves between several.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineBusy, EngineError, EngineRefused, EngineUnavailable, MapDiffers

T = TypeVar("T")


class Route(Protocol):
    """One engine, across all its starts (`EngineRoute`)."""

    def ready(self) -> ReadyEngine:
        """The running engine. Raises `EngineError` while there is none."""
        ...

    def report_loss(self) -> None:
        """Report that a request found the engine gone."""
        ...


class Stay:
    """Where one answer is made: the only engine that there is."""

    may_move = False
    """Whether another engine may take over."""

    def __init__(self, ready: ReadyEngine, route: Route | None = None) -> None:
        """`route`: told when the engine fails."""
        self.ready = ready
        """The engine that makes the answer now."""
        self._route = route

    async def wait(self, answer: Awaitable[T]) -> T:
        """Wait for the engine. Raises `EngineUnavailable` if it is lost in the meantime and another may take over."""
        return await answer

    async def turn(self, place: Awaitable[T]) -> T:
        """Wait for a slot of the engine. An engine that is lost in the meantime was not lost because of this answer."""
        return await place

    def each(self, events: AsyncIterator[T]) -> AsyncIterator[T]:
        """The events of the engine. Each is waited for like `wait`."""
        return events

    async def ask(self, question: Callable[[ReadyEngine], Awaitable[T]]) -> T:
        """Ask the engine something that could be asked of any other. Raises `EngineError` if none answers."""
        while True:
            try:
                return await self.wait(question(self.ready))
            except EngineError as error:
                self.lost(error)
                if not is_loss(error):
                    raise
                self.move(error)

    def answered(self) -> None:
        """Note that the engine has generated an id."""

    def lost(self, error: EngineError) -> None:
        """Note that the engine has failed; its route finds out whether it is gone."""
        if self._route is not None and isinstance(error, EngineUnavailable) and not isinstance(error, EngineBusy):
            self._route.report_loss()

    def move(self, error: EngineError) -> None:
        """Move from a lost engine to another. Raises `error` if there is none, or too much has moved already."""
        raise error


def is_loss(error: EngineError) -> bool:
    """Whether another engine may succeed: this one is down, was replaced by another server, or answers nonsense."""
    return isinstance(error, EngineUnavailable | MapDiffers) or (
        isinstance(error, EngineRefused) and error.status >= 500 and error.status != 501
    )
