"""Where one answer is made: an engine, and what happens to the answer when the engine is lost.

Turns questions to an engine into its answers, or those of a replacement. The stay here is for the only engine that
there is, and changes nothing; `pool.py` has one that moves between several.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Protocol, TypeVar

from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineBusy, EngineError, EngineRefused, EngineUnavailable, MapDiffers

# How often answers may be moved from engine to engine, as pure state machines.
#
# An answer may itself be the reason why its engines are lost, and must not bring all of them down. And more requests do
# not help a pool that loses more answers than it completes. Moves of answers that only waited for a slot do not count.

_MOVES: Final = 16
"""Most moves of one answer in all."""
_IN_VAIN: Final = 3
"""Most moves of one answer without an id in between."""
_BUDGET: Final = 128.0
"""Moves of one pool before any answer has ended."""
_BACK: Final = 0.5
"""Moves that the end of an answer adds to the budget."""


class MovesOfAnswer:
    """The moves of one answer."""

    def __init__(self) -> None:
        """Start without a move."""
        self.made = 0
        self._in_vain = 0

    def may_move(self) -> bool:
        """Whether the answer may move once more; counts the move if so."""
        if self.made >= _MOVES or self._in_vain >= _IN_VAIN:
            return False
        self.made += 1
        self._in_vain += 1
        return True

    def went_on(self) -> None:
        """Note that an engine has generated an id."""
        self._in_vain = 0


class RetryBudget:
    """The moves that one pool may make: each costs one, and the end of each answer gives half a move back."""

    def __init__(self) -> None:
        """Start with a full budget."""
        self._left = _BUDGET

    def take(self) -> bool:
        """Pay for a move. Returns whether the budget allowed it."""
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def answered(self) -> None:
        """Note that an answer is over, however it ended."""
        self._left = min(self._left + _BACK, _BUDGET)


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
