"""How often answers may be moved from engine to engine, as pure state machines.

An answer may itself be the reason why its engines are lost, and must not bring all of them down. And more requests do
not help a pool that loses more answers than it completes. Moves of answers that only waited for a slot do not count.
"""

from typing import Final

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
