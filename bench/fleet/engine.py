"""One engine on paper: slots that work, requests that wait, and a cache of conversations that forgets the oldest.

Knows what it holds of each conversation and of each kind's beginning, which is there as long as one of the kind is. A
request takes a slot for as long as its work takes; it waits in its turn where none is free. No clock: the time is told.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass

from bench.fleet.costs import Costs
from bench.fleet.traces import Conversation


@dataclass(slots=True)
class Request:
    """One request on its way."""

    conversation: Conversation
    turn: int
    prompt: int
    came: float
    gateway: int = 0
    engine: str = ""
    began: float = 0.0
    processed: int = 0
    first: float = 0.0
    """When its first token is there."""

    @property
    def answered(self) -> int:
        """Ids of its answer."""
        return self.conversation.turns[self.turn].answered


class Engine:
    """One engine."""

    def __init__(self, name: str, slots: int, cache: int, costs: Costs) -> None:
        """`cache`: ids that its slots, and what it keeps beside them, hold together."""
        self.name = name
        self.running: set[int] = set()
        self.waiting: deque[Request] = deque()
        self._slots = slots
        self._cache = cache
        self._costs = costs
        self._held: OrderedDict[int, tuple[int, int]] = OrderedDict()
        """Conversation to its kind and its ids, the one that was used last at the end."""
        self._kinds: dict[int, int] = {}
        """How many conversations of each kind are held."""
        self._ids = 0

    @property
    def load(self) -> int:
        """Requests that run or wait."""
        return len(self.running) + len(self.waiting)

    @property
    def has_room(self) -> bool:
        """Whether a slot is free."""
        return len(self.running) < self._slots

    def holds(self, conversation: Conversation) -> int:
        """Ids of a conversation's prompt that it would not process again."""
        if (found := self._held.get(conversation.number)) is not None:
            return found[1]
        return conversation.preamble if conversation.kind in self._kinds else 0

    def begin(self, request: Request, now: float) -> float:
        """Take a request into a slot; gives when it ends."""
        reused = min(self.holds(request.conversation), request.prompt - 1)
        request.began, request.processed = now, request.prompt - reused
        self.running.add(request.conversation.number)
        costs = self._costs
        restored = reused * costs.restore
        request.first = now + costs.request + restored + request.processed * costs.prefill + costs.decode
        self._keep(request.conversation, request.prompt + request.answered)
        return request.first + (request.answered - 1) * costs.decode

    def end(self, request: Request) -> None:
        """A request has been answered."""
        self.running.discard(request.conversation.number)

    def _keep(self, conversation: Conversation, ids: int) -> None:
        self._forget(conversation.number)
        self._held[conversation.number] = (conversation.kind, ids)
        self._kinds[conversation.kind] = self._kinds.get(conversation.kind, 0) + 1
        self._ids += ids
        while self._ids > self._cache and len(self._held) > 1:
            self._forget(next(iter(self._held)))

    def _forget(self, number: int) -> None:
        kind, ids = self._held.pop(number, (-1, 0))
        if ids:
            self._ids -= ids
            self._kinds[kind] -= 1
            if not self._kinds[kind]:
                del self._kinds[kind]
