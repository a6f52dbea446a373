"""How often answers may be moved from engine to engine, as pure state machines.

One answer may be what its engines are lost of: it must not take them all. And a pool that loses more than it answers is
not helped by asking it more. A move of an answer that only waited for its turn is none of these.
"""

from typing import Final

_MOVES: Final = 16
"""Of one answer in all."""
_IN_VAIN: Final = 3
"""Of one answer, without an id in between."""
_BUDGET: Final = 128.0
_BACK: Final = 0.5
"""Moves that an answer gives back."""


class MovesOfAnswer:
    """The moves of one answer."""

    def __init__(self) -> None:
        """None yet."""
        self.made = 0
        self._in_vain = 0

    def may_move(self) -> bool:
        """Count one more; False: it has had its share."""
        if self.made >= _MOVES or self._in_vain >= _IN_VAIN:
            return False
        self.made += 1
        self._in_vain += 1
        return True

    def went_on(self) -> None:
        """An engine has given an id."""
        self._in_vain = 0


class RetryBudget:
    """The moves of one pool: each costs one, and each answer that is over gives half of one back."""

    def __init__(self) -> None:
        """It is full."""
        self._left = _BUDGET

    def take(self) -> bool:
        """Pay for a move; False: there is nothing left."""
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def answered(self) -> None:
        """An answer is over, however it ended."""
        self._left = min(self._left + _BACK, _BUDGET)
