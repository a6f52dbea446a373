"""Notices a model that makes the same calls again although their results stay the same, as small models do.

The model is told so beside the result; if it makes them once more, it has to answer in words. Calls whose results
change, such as those that wait for something, are never touched. Pure.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gateway.agent.calls.runner import FinishedCall
from gateway.proxy.result_tokens import IdPiece
from leaf_sdk.vocab import TokenMap

_SEEN: Final = "\n[You have made this call {count} times with the same result."
NOTE: Final = f"{_SEEN} Another one will not help: answer with what you have.]"
END_NOTE: Final = f"{_SEEN} No more calls can be made: answer in words, now.]"


class Repeats:
    """Counts the turns of one answer that made the same calls with the same results, one after another."""

    def __init__(self, most: int) -> None:
        """`most`: how many such turns there may be before the model is told; 0: it never is."""
        self._most = most
        self._last: list[tuple[str, str, object]] = []
        self._count = 0

    @property
    def are_over(self) -> bool:
        """Whether the model was told and went on, so that it must answer in words."""
        return 0 < self._most < self._count

    def noted(self, outcomes: Sequence[FinishedCall], token_map: TokenMap) -> list[FinishedCall]:
        """Return the outcomes of the next turn, with a note beside the last if they are those of the turn before."""
        turn = [(one.finished.name, _canonical(one.finished.arguments), _result(one)) for one in outcomes]
        self._count = self._count + 1 if turn == self._last else 1
        self._last = turn
        if not self._most or self._count < self._most:
            return [*outcomes]
        note = (END_NOTE if self.are_over else NOTE).format(count=self._count)
        return [*outcomes[:-1], _with_note(outcomes[-1], tuple(token_map.encode(note)))]


def _with_note(outcome: FinishedCall, ids: tuple[int, ...]) -> FinishedCall:
    finished = replace(outcome.finished, shim_ids=outcome.finished.shim_ids + len(ids))
    return replace(outcome, pieces=(*outcome.pieces, IdPiece(ids, "shim")), finished=finished)


def _result(outcome: FinishedCall) -> object:
    """What tells a result from others: of a kept one the model sees more once it can read on."""
    return outcome.ids if outcome.kept is None else outcome.kept.result.handle


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
