"""What all workers share of one process: its handshake, what they want of it together, and what it says unasked."""

import re
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Final

from gateway.protocol.eras import PROGRESS, SUBSCRIPTION_KEY, meta_of
from gateway.protocol.mending import BrokenAnswer, mend_message
from gateway.protocol.messages import (
    INTERNAL_ERROR,
    Failure,
    LastingResult,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    encode_failure,
    encode_response,
    parse_message,
)
from gateway.proxy.transport.server_link import CANCELLED
from gateway.proxy.transport.stdio.host_protocol import SHARED
from gateway.proxy.upstream.session.session import UPDATED, least_severe
from gateway.workers.stdio.seats import Seats

# The handshake of one process with all workers: `initialize` is asked once, and every worker gets its answer.
#
# A process knows one client and is greeted once. Workers that ask before the answer arrives wait for it. A refusal goes
# to all that wait; the next worker that asks causes a new request. Pure.


class Greeting:
    """The handshake of one process."""

    def __init__(self) -> None:
        self.asked: int | None = None
        """The request that was sent to the process and is not answered yet."""
        self._waiting: dict[int, None] = {}
        self._answer: LastingResult | None = None
        self._told = False

    def ask(self, number: int) -> bytes | None:
        """Take a worker's `initialize`; returns the answer if known. If it is now `asked`, send it to the process."""
        if self._answer is not None:
            return encode_response(number, self._answer)
        self._waiting[number] = None
        if self.asked is None:
            self.asked = number
        return None

    def answer(self, data: bytes) -> list[tuple[int, bytes]]:
        """Take the process's answer to the request it was `asked`; returns one for each request that waits."""
        message = parse_message(data)
        if isinstance(message, Malformed):
            message = mend_message(data, message)
        if isinstance(message, Response):
            self._answer = answer = LastingResult.of(message.result)
            return [(number, encode_response(number, answer)) for number in self.settle()]
        error = {
            "code": INTERNAL_ERROR,
            "message": message.detail if isinstance(message, BrokenAnswer) else "no answer",
        }
        if isinstance(message, Failure):
            error = message.error
        return [(number, encode_failure(number, error)) for number in self.settle()]

    def settle(self) -> list[int]:
        """Return the requests that wait, and forget them."""
        waiting, self._waiting, self.asked = list(self._waiting), {}, None
        return waiting

    def tell(self) -> bool:
        """Whether the process still has to be told that it is initialized; True only once."""
        told, self._told = self._told, True
        return not told


# What all workers together want of a process: subscriptions to resources, and a log level.
#
# In the handshake era both belong to the process's only client, which here stands for all workers. A subscription ends
# with the last worker that wants it; of the log levels, the one that lets the most through is used. Pure.


class Interests:
    """What the workers at one process want to be told."""

    def __init__(self, seats: Seats) -> None:
        self._seats = seats
        self._subscribers: dict[str, set[int]] = {}

    def subscribe(self, number: int, uri: object) -> None:
        """Subscribe a worker to a resource."""
        if isinstance(uri, str):
            self._subscribers.setdefault(uri, set()).add(number)

    def unsubscribe(self, number: int, uri: object) -> bool:
        """Unsubscribe a worker. Returns whether the process has to be told, because no subscriber is left."""
        if not isinstance(uri, str) or uri not in self._subscribers:
            return True
        self._subscribers[uri].discard(number)
        if self._subscribers[uri]:
            return False
        del self._subscribers[uri]
        return True

    def leave(self, number: int) -> list[str]:
        """Unsubscribe a worker that leaves. Returns the resources that have no subscribers left."""
        its = [uri for uri, numbers in self._subscribers.items() if number in numbers]
        return [uri for uri in its if self.unsubscribe(number, uri)]

    def subscribers(self, uri: object) -> list[int]:
        """The workers that are subscribed to a resource."""
        return sorted(self._subscribers.get(uri, ())) if isinstance(uri, str) else []

    def level(self, number: int, level: object) -> str | None:
        """Note the log level that a worker asks for. Returns the one that lets through what every worker wants.

        None for a level that is not a string.
        """
        if not isinstance(level, str):
            return None
        self._seats[number].want_level(level)
        others = [seat.level for seat in self._seats.all() if seat.level is not None]
        return reduce(least_severe, others, level)


# What a process says unasked: which workers hear it, and which one answers.
#
# Changes of what it offers go to all workers. Progress, and what belongs to a subscription, goes to its owner. Anything
# else goes to the only worker whose clients it can be meant for. If it may be meant for clients of several workers, a
# notification goes to nobody, and a question is marked, so that no client is asked. Pure.

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
