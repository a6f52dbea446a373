"""What a process says unasked: which workers hear it, and which one answers.

Changes of what it offers go to all workers. Progress, and what belongs to a subscription, goes to its owner. Anything
else goes to the only worker whose clients it can be meant for. If it may be meant for clients of several workers, a
notification goes to nobody, and a question is marked, so that no client is asked. Pure.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

from gateway.protocol.eras import PROGRESS, SUBSCRIPTION_KEY, meta_of
from gateway.protocol.messages import INTERNAL_ERROR, Notification, Request, RequestId, encode_failure
from gateway.proxy.transport.interface import CANCELLED
from gateway.proxy.transport.stdio.host_protocol import SHARED
from gateway.proxy.upstream.session.session import UPDATED
from gateway.workers.stdio.seats import Seats

_MOST: Final = 1024
"""Questions that are remembered. A worker answers this many at a time and refuses more."""
_LONGEST: Final = 256
"""Characters of the id of a question that is remembered. A question with a longer id is asked and answered like any
other, but can't be cancelled, and isn't refused when its worker leaves."""
_FOR_ALL: Final = re.compile(r"notifications/(?:tasks(?:/.*)?|(?:tools|prompts|resources)/list_changed)")
_GONE: Final = {"code": INTERNAL_ERROR, "message": "the client that was asked is gone"}


class Pushes:
    """What one process says unasked."""

    def __init__(self, seats: Seats, subscribers: Callable[[object], Iterable[int]]) -> None:
        """`subscribers`: returns the workers that subscribed to a resource, as far as they are known."""
        self._seats = seats
        self._subscribers = subscribers
        self._asked: dict[RequestId, int] = {}
        """The number of the worker that is to answer a question, by the question's id."""

    def notified(self, data: bytes, message: Notification) -> list[tuple[int, bytes]]:
        """Return the workers that hear a notification, each with its line."""
        return [(number, data) for number in self._receivers(message)]

    def question(self, data: bytes, message: Request) -> list[tuple[int, bytes]]:
        """Return the worker that is to answer a question, with its line; nothing if there are no workers."""
        audience = self._seats.audience()
        if audience is None:
            return []
        number = audience.seat.number
        if len(str(message.id)) <= _LONGEST:
            number = self._asked.setdefault(message.id, number)
        if len(self._asked) > _MOST:
            del self._asked[next(iter(self._asked))]
        return [(number, data if audience.sole or message.method == "ping" else SHARED + data)]

    def answered(self, question: RequestId | None) -> None:
        """Forget a question that a worker has answered."""
        if question is not None:
            self._asked.pop(question, None)

    def leave(self, number: int) -> list[bytes]:
        """Forget a worker that leaves; returns refusals of the questions that it has not answered."""
        asked = [question for question, other in self._asked.items() if other == number]
        for question in asked:
            del self._asked[question]
        return [encode_failure(question, _GONE) for question in asked]

    def _receivers(self, message: Notification) -> Iterable[int]:
        method, params = message.method, message.params
        if method == CANCELLED:
            question: object = params.get("requestId")
            number = self._asked.get(question) if isinstance(question, int | str) else None
            return () if number is None else (number,)
        if method == PROGRESS:
            return self._owner(params.get("progressToken"))
        if subscription := self._owner(meta_of(params).get(SUBSCRIPTION_KEY)):
            return subscription
        if method == UPDATED and (known := self._subscribers(params.get("uri"))):
            return known
        if method == UPDATED or _FOR_ALL.fullmatch(method):
            return [seat.number for seat in self._seats.all()]
        audience = self._seats.audience()
        return (audience.seat.number,) if audience is not None and audience.sole else ()

    def _owner(self, name: object) -> tuple[int, ...]:
        """The worker that a token or a subscription belongs to, if it has not left."""
        seat = self._seats.of(name) if type(name) is int else None
        return () if seat is None else (seat.number,)
