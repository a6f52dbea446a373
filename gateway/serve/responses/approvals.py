"""Calls of the gateway's that clients approve: the question, and what became of each that was made.

A client may send its yes again: its connection broke, or it wants another answer. The call is not made again for that;
what it said the first time is told. Bounded: what was noted first gives way. No IO.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.serve.responses.items import Item

APPROVAL: Final = "mcpr_"
"""What stands before the id of a call in the id of the question whether it may be made."""
LOST: Final = "error: this call has been made before; its result is not known any more"
_BYTES: Final = 8_000_000
_NOTE_BYTES: Final = 500
"""What a note takes beside its text."""

Sign = Callable[[str, str, str, str, str], str]


def question_id(sign: Sign, call_id: str, name: str, question: Item) -> str:
    """The id of a question whether a call may be made. `name` says where it was asked.

    It is signed: what is made is what was asked for, whatever became of the question on its way.
    """
    signed = sign(name, call_id, question["server_label"], question["name"], question["arguments"])
    return f"{APPROVAL}{name}.{signed}_{call_id}"


@dataclass(frozen=True, slots=True)
class Made:
    """A call that was approved, and has been run before the model goes on."""

    question: Item
    text: str
    is_error: bool


class Approvals:
    """The approved calls of one gateway."""

    def __init__(self, most: int = _BYTES) -> None:
        """`most`: bytes of what they said."""
        self._most = most
        self._size = 0
        self._made: OrderedDict[str, Made] = OrderedDict()
        """By the ids of their questions, which are signed for their owners."""

    def made(self, question: Item) -> Made | None:
        """What became of a call; None where it has not been made."""
        return self._made.get(question["id"])

    def begin(self, question: Item) -> None:
        """A call is about to be made. If it is never heard of again, that is all that is known."""
        self.note(Made(question, LOST, is_error=True))

    def note(self, made: Made) -> None:
        """A call is over."""
        self._drop(made.question["id"])
        self._made[made.question["id"]] = made
        self._size += _size(made)
        while self._size > self._most:
            self._drop(next(iter(self._made)))

    def _drop(self, question_id: str) -> None:
        dropped = self._made.pop(question_id, None)
        self._size -= 0 if dropped is None else _size(dropped)


def _size(made: Made) -> int:
    return _NOTE_BYTES + 4 * (len(made.text) + len(made.question["arguments"]))
