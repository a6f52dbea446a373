"""Many workers and one process that speaks MCP over lines: who is to get which line.

Turns lines of the workers and lines of the process into lines for the other side. Lines are not changed: each worker
numbers its requests and progress tokens in a range of its own (`hosted.SHIFT`), which tells whose an answer is.
The process knows one client: it is greeted once, and what several workers want of it is merged.
Pure: no socket, no process; the clock is given.
"""

import re
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, Final, cast

from pydantic_core import from_json

from gateway.protocol.eras import PROGRESS, SUBSCRIPTION_KEY, meta_of
from gateway.protocol.lines import EDGE, LongLine
from gateway.protocol.mending import BrokenAnswer, mend_message, number_of, split_batch
from gateway.protocol.messages import (
    INTERNAL_ERROR,
    Failure,
    LastingResult,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    RpcMessage,
    encode_failure,
    encode_notification,
    encode_request,
    encode_response,
    parse_message,
)
from gateway.proxy.transport.stdio.hosted import MESSAGE, SHARED, STRANGE, long_line
from gateway.proxy.transport.transport_interface import CANCELLED
from gateway.proxy.upstream.session.session import UPDATED, least_severe
from gateway.workers.stdio.worker_requests import NEVER_CANCELLED, OURS, Seat, Seats, Turns

# A process knows one client and is greeted once. Workers that ask before the answer arrives wait for it. A refusal goes
# to all that wait; the next worker that asks causes a new request.


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


# In the handshake era subscriptions and the log level belong to the process's only client, which here stands for all
# workers. A subscription ends with the last worker that wants it; of the log levels, the one that lets the most through
# is used.


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


# Changes of what a process offers go to all workers. Progress, and what belongs to a subscription, goes to its owner.
# Anything else goes to the only worker whose clients it can be meant for. If it may be meant for clients of several
# workers, a notification goes to nobody, and a question is marked, so that no client is asked.

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


SERVER: Final = 0
"""The process's number among the receivers of lines; workers' connections count from 1."""
SILENCE: Final = 1.0
"""Seconds without a sign of life after which a worker that leaves takes the process with it."""
_ASKED: Final = re.compile(rb'\{"jsonrpc":"2\.0","id":(\d{1,18}),"method":"([^"\\]{1,200})"')
_CANCELLED: Final = re.compile(
    rb'\{"jsonrpc":"2\.0","method":"notifications/cancelled","params":\{"requestId":(\d{1,18}),'
)
_ANSWER: Final = re.compile(rb'\{"jsonrpc": ?"2\.0", ?"id": ?(\d{1,18}), ?"(?:result|error)":')
"""How most answers begin. Any other is looked at more closely, which takes longer."""
_INITIALIZED: Final = b'{"jsonrpc":"2.0","method":"notifications/initialized"'

To = tuple[int, bytes]
"""The receiver of a line, and the line without its end."""


class Switch:
    """The lines to and from one process."""

    def __init__(self, concurrency: int) -> None:
        """`concurrency`: how many calls of clients the process gets at a time."""
        self.seats = Seats()
        self.hangs = False
        """Whether a worker left because the process gave it no sign of life."""
        self._greeting = Greeting()
        self._turns = Turns(concurrency)
        self._interests = Interests(self.seats)
        self._pushes = Pushes(self.seats, self._interests.subscribers)
        self._own = 0
        """How many requests the switch itself has sent; their numbers are in no worker's range."""
        self._special = {
            b"initialize": self._initialize,
            b"logging/setLevel": self._set_level,
            b"resources/subscribe": self._subscribe,
            b"resources/unsubscribe": self._unsubscribe,
        }

    def leave(self, number: int, now: float) -> list[To]:
        """Remove a worker that leaves, for whatever reason: nobody waits any more for what it asked."""
        seat = self.seats.leave(number)
        self.hangs = self.hangs or (seat.silent_since is not None and now - seat.silent_since >= SILENCE)
        self._turns.withdraw_all(number)
        ours = (each for each, method in seat.ours.items() if method not in NEVER_CANCELLED)
        out = [(SERVER, _cancellation(each)) for each in (*seat.calls, *ours)]
        for _ in seat.calls:
            out += self._next()
        for uri in self._interests.leave(number):
            self._own += 1
            out.append((SERVER, encode_request(self._own, "resources/unsubscribe", {"uri": uri})))
        return [*out, *((SERVER, refusal) for refusal in self._pushes.leave(number))]

    def from_worker(self, number: int, line: bytes, now: float) -> list[To]:
        """Take a line that a worker wrote."""
        seat = self.seats[number]
        asked = _ASKED.match(line)
        if asked is None:
            return self._told(seat, line)
        request, method = int(asked[1]), asked[2]
        if method in OURS:
            seat.ask(request, method, now)
            special = self._special.get(method)
            return [(SERVER, line)] if special is None else special(seat, request, line)
        if not self._turns.take(request, line):
            return []
        seat.calls[request] = None
        return [(SERVER, line)]

    def from_server(self, line: bytes | LongLine) -> list[To]:
        """Take a line that the process wrote."""
        if isinstance(line, LongLine):
            return self.left_out(line) or self._to_any(long_line(None, line.length))
        data = line if line.startswith(MESSAGE) else line.strip()
        if data.startswith(b"[") and (parts := split_batch(data)):
            return [to for part in parts for to in self.from_server(part)]
        if (answer := _ANSWER.match(data)) is not None:
            number = int(answer[1])
        else:
            number = LongLine(data[:EDGE], data[-EDGE:], len(data)).answered_id()
        # A line may only begin like an answer, as half a batch does: the mark tells the worker that it is the server's.
        shown = data if data.startswith(MESSAGE) else STRANGE + data
        if number is not None and (out := self._answered(number, shown)) is not None:
            return out
        message = parse_message(data)
        return self._strange(data, message) if isinstance(message, Malformed) else self._said(data, message)

    def left_out(self, line: LongLine) -> list[To]:
        """Take a line over the bound, whole or not: whoever waits for it is told."""
        number = line.answered_id()
        if number is not None and number == self._greeting.asked:
            return self._greeted([(each, long_line(each, line.length)) for each in self._greeting.settle()])
        if number is None:
            return []
        return self._answered(number, long_line(number, line.length)) or []

    def _answered(self, number: int, data: bytes) -> list[To] | None:
        """Send the answer to a request to its worker; None: there is no such request."""
        if number == self._greeting.asked:
            return self._greeted(self._greeting.answer(data))
        seat = self.seats.of(number)
        if seat is None:
            return [] if self.seats.bury(number) else None
        ran = number in seat.calls
        if not seat.settle(number):
            return None
        return [(seat.number, data), *(self._next() if ran else ())]

    def _greeted(self, answers: list[To]) -> list[To]:
        """Each worker's own answer to its `initialize`."""
        seats = [(self.seats.of(number), number, answer) for number, answer in answers]
        return [(seat.number, answer) for seat, number, answer in seats if seat is not None and seat.settle(number)]

    def _next(self) -> list[To]:
        """A call has ended, or was given up: send the next one."""
        following = self._turns.end()
        if following is None:
            return []
        number, line = following
        if (seat := self.seats.of(number)) is not None:
            seat.calls[number] = None
        return [(SERVER, line)]

    def _told(self, seat: Seat, line: bytes) -> list[To]:
        """A worker tells the process something, or answers it."""
        if (cancelled := _CANCELLED.match(line)) is not None:
            return self._give_up(seat, int(cancelled[1]), line)
        if line.startswith(_INITIALIZED):
            return [(SERVER, line)] if self._greeting.tell() else []
        message = parse_message(line)
        if isinstance(message, Response | Failure):
            self._pushes.answered(message.id)
        return [(SERVER, line)]

    def _give_up(self, seat: Seat, number: int, line: bytes) -> list[To]:
        if self._turns.withdraw(number):
            return []
        ran = number in seat.calls
        if not seat.give_up(number):
            return []
        return [(SERVER, line), *(self._next() if ran else ())]

    def _initialize(self, seat: Seat, number: int, line: bytes) -> list[To]:
        answer = self._greeting.ask(number)
        if answer is not None:
            return self._greeted([(number, answer)])
        return [(SERVER, line)] if self._greeting.asked == number else []

    def _subscribe(self, seat: Seat, number: int, line: bytes) -> list[To]:
        self._interests.subscribe(seat.number, _params(line).get("uri"))
        return [(SERVER, line)]

    def _unsubscribe(self, seat: Seat, number: int, line: bytes) -> list[To]:
        if self._interests.unsubscribe(seat.number, _params(line).get("uri")):
            return [(SERVER, line)]
        seat.settle(number)
        return [(seat.number, encode_response(number, {}))]

    def _set_level(self, seat: Seat, number: int, line: bytes) -> list[To]:
        params = _params(line)
        level = self._interests.level(seat.number, params.get("level"))
        if level is None or level == params.get("level"):
            return [(SERVER, line)]
        return [(SERVER, encode_request(number, "logging/setLevel", {**params, "level": level}))]

    def _strange(self, data: bytes, refused: Malformed) -> list[To]:
        """Take a line that is not a message under strict JSON-RPC."""
        message = mend_message(data, refused)
        if isinstance(message, BrokenAnswer):
            return self._answered(message.id, data if data.startswith(MESSAGE) else STRANGE + data) or []
        if isinstance(message, Malformed):
            return self._to_any(STRANGE + data) if data else []
        return self._said(data, message)

    def _said(self, data: bytes, message: RpcMessage) -> list[To]:
        if isinstance(message, Notification):
            return self._pushes.notified(data, message)
        if isinstance(message, Request):
            return self._pushes.question(data, message)
        if message.id is None:
            return self._to_any(data)
        number = number_of(message.id)
        return (None if number is None else self._answered(number, data)) or []

    def _to_any(self, data: bytes) -> list[To]:
        """Send a line to any worker, which logs or refuses it."""
        return [(seat.number, data) for seat in self.seats.all()[:1]]


def _cancellation(number: int) -> bytes:
    return encode_notification(CANCELLED, {"requestId": number, "reason": "the client that asked is gone"})


def _params(line: bytes) -> dict[str, Any]:
    params: object = from_json(line).get("params")
    return cast("dict[str, Any]", params) if isinstance(params, dict) else {}
