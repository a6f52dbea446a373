"""Many workers and one process that speaks MCP over lines: who is to get which line.

Turns lines of the workers and lines of the process into lines for the other side. Lines are not changed: each worker
numbers its requests and progress tokens in a range of its own (`host_protocol.SHIFT`), which tells whose an answer is.
The process knows one client: it is greeted once, and what several workers want of it is merged (`pushes.py`).
Pure: no socket, no process; the clock is given.
"""

import re
from typing import Any, Final, cast

from pydantic_core import from_json

from gateway.protocol.lines import EDGE, LongLine
from gateway.protocol.mending import BrokenAnswer, mend_message, number_of, split_batch
from gateway.protocol.messages import (
    Failure,
    Malformed,
    Notification,
    Request,
    Response,
    RpcMessage,
    encode_notification,
    encode_request,
    encode_response,
    parse_message,
)
from gateway.proxy.transport.server_link import CANCELLED
from gateway.proxy.transport.stdio.host_protocol import MESSAGE, STRANGE, long_line
from gateway.workers.stdio.pushes import Greeting, Interests, Pushes
from gateway.workers.stdio.seats import NEVER_CANCELLED, OURS, Seat, Seats, Turns

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
    """The params of a request that a worker wrote."""
    params: object = from_json(line).get("params")
    return cast("dict[str, Any]", params) if isinstance(params, dict) else {}
