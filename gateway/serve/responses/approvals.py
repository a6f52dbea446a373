"""Calls of the gateway's tools that clients approve: the approval request, and the result of each call that was made.

An approval request is good for one call. A client may send its approval again, because its connection broke or because
it wants another answer. The call is not made again then; its first result is used, or an error if that is no longer
known. Bounded: the oldest approval requests of a client, and the oldest results, are dropped first. No IO.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.serve.responses.items import Item

APPROVAL: Final = "mcpr_"
"""Prefix of the id of an approval request."""
LOST: Final = "error: this call has already been made, and its result is no longer known"
EXPIRED: Final = (
    "error: this call was not made now: either it has already been made and its result is no longer known, or it was "
    "asked for too long ago"
)
_OPEN: Final = 1000
"""Approval requests of one client that may be unanswered."""
_OPEN_IN_ALL: Final = 50_000
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
        self._open: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        """By owner, the ids of the approval requests whose calls have not been made."""
        self._number_open = 0

    def ask(self, owner: str, approval_request_id: str) -> None:
        """Note an approval request that is shown to its owner."""
        own = self._open.setdefault(owner, OrderedDict())
        self._open.move_to_end(owner)
        own[approval_request_id] = None
        self._number_open += 1
        if len(own) > _OPEN:
            self._close(owner, next(iter(own)))
        while self._number_open > _OPEN_IN_ALL:
            # Of whoever has asked for nothing for longest.
            oldest = next(iter(self._open))
            self._close(oldest, next(iter(self._open[oldest])))

    def is_open(self, owner: str, approval_request: Item) -> bool:
        """Whether the call may still be made once it is approved."""
        return approval_request["id"] in self._open.get(owner, ())

    def made(self, approval_request: Item) -> MadeCall | None:
        """The result of a call; None where it has not been made."""
        return self._made.get(approval_request["id"])

    def begin(self, owner: str, approval_request: Item) -> None:
        """Note that a call is about to be made. Unless its result is noted later, it counts as lost."""
        self._close(owner, approval_request["id"])
        self.note(MadeCall(approval_request, LOST, is_error=True))

    def note(self, made: MadeCall) -> None:
        """Note the result of a call."""
        self._drop(made.approval_request["id"])
        self._made[made.approval_request["id"]] = made
        self._size += _size(made)
        while self._size > self._most:
            self._drop(next(iter(self._made)))

    def _close(self, owner: str, approval_request_id: str) -> None:
        own = self._open[owner]
        del own[approval_request_id]
        self._number_open -= 1
        if not own:
            del self._open[owner]

    def _drop(self, approval_request_id: str) -> None:
        dropped = self._made.pop(approval_request_id, None)
        self._size -= 0 if dropped is None else _size(dropped)


def _size(made: MadeCall) -> int:
    return _NOTE_BYTES + 4 * (len(made.text) + len(made.approval_request["arguments"]))
