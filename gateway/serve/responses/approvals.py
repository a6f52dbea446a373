"""Calls of the gateway's tools that clients approve: the approval request, and the result of each call that was made.

A client may send its approval again, because its connection broke or because it wants another answer. The call is not
made again then; its first result is used. Bounded: the oldest results are dropped first. No IO.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.serve.responses.items import Item

APPROVAL: Final = "mcpr_"
"""Prefix of the id of an approval request."""
LOST: Final = "error: this call has already been made, and its result is no longer known"
_BYTES: Final = 8_000_000
_NOTE_BYTES: Final = 500
"""Bytes that a result takes besides its texts."""

Sign = Callable[[str, str, str, str, str], str]


def approval_request_id(sign: Sign, call_id: str, name: str, approval_request: Item) -> str:
    """The id of a call's approval request. `name`: from `NewName`; says which replica asked.

    The id contains a signature of the call, so that exactly the call is made that was asked about, even if the client
    has changed the request.
    """
    signed = sign(
        name, call_id, approval_request["server_label"], approval_request["name"], approval_request["arguments"]
    )
    return f"{APPROVAL}{name}.{signed}_{call_id}"


@dataclass(frozen=True, slots=True)
class MadeCall:
    """An approved call that has been made, before the model continues."""

    approval_request: Item
    text: str
    is_error: bool


class ApprovedCalls:
    """The approved calls that this process has made."""

    def __init__(self, most: int = _BYTES) -> None:
        """`most`: bytes of all results together, roughly."""
        self._most = most
        self._size = 0
        self._made: OrderedDict[str, MadeCall] = OrderedDict()
        """By the ids of their approval requests, which are signed for their owners."""

    def made(self, approval_request: Item) -> MadeCall | None:
        """The result of a call; None where it has not been made."""
        return self._made.get(approval_request["id"])

    def begin(self, approval_request: Item) -> None:
        """Note that a call is about to be made. Unless its result is noted later, it counts as lost."""
        self.note(MadeCall(approval_request, LOST, is_error=True))

    def note(self, made: MadeCall) -> None:
        """Note the result of a call."""
        self._drop(made.approval_request["id"])
        self._made[made.approval_request["id"]] = made
        self._size += _size(made)
        while self._size > self._most:
            self._drop(next(iter(self._made)))

    def _drop(self, approval_request_id: str) -> None:
        dropped = self._made.pop(approval_request_id, None)
        self._size -= 0 if dropped is None else _size(dropped)


def _size(made: MadeCall) -> int:
    return _NOTE_BYTES + 4 * (len(made.text) + len(made.approval_request["arguments"]))
