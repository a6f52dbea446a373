"""What a server says unasked: its requests, each answered in a task of its own, and what is logged about it."""

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from gateway.errors import RpcError
from gateway.escape import escape_text
from gateway.protocol.lines import LineSplitter, LongLine
from gateway.protocol.messages import INTERNAL_ERROR, Request, RequestId, encode_failure, encode_response
from gateway.proxy.caller import Exchange

# What we log about one server: its standard error, and what it does wrong.
#
# Turns bytes of standard error into one log event for each line, escaped and cut, and passes on our own warnings. Both
# together are limited to some lines a second, and the rest is only counted, so that no server can fill the disk. It
# knows no process and no message.

LINES: Final = 200
"""Lines that are logged in a second, at most."""
_SECOND: Final = 1.0
_LENGTH: Final = 4096


class ServerLog:
    """The bounded log of one server."""

    def __init__(self, log: FilteringBoundLogger, clock: Callable[[], float] = monotonic) -> None:
        """`clock` returns seconds."""
        self._log = log
        self._clock = clock
        self._splitter = LineSplitter(_LENGTH)
        self._since = clock()
        self._said = 0

    def stderr(self, data: bytes) -> None:
        """Log the lines of standard error that `data` completes."""
        for line in self._splitter.feed(data):
            self._say(line)

    def warning(self, event: str, **fields: Any) -> None:
        """Log what the server did wrong; the server's words in the fields must be escaped already."""
        if self._may():
            self._log.warning(event, **fields)

    def close(self) -> None:
        """Log what is left."""
        for line in self._splitter.close():
            self._say(line)
        self._begin_second()

    def _say(self, line: bytes | LongLine) -> None:
        data = line.head if isinstance(line, LongLine) else line
        text = data.decode("utf-8", "backslashreplace").strip()
        if text and self._may():
            self._log.info("upstream stderr", line=escape_text(text, _LENGTH))

    def _may(self) -> bool:
        if self._clock() - self._since >= _SECOND:
            self._begin_second()
        self._said += 1
        return self._said <= LINES

    def _begin_second(self) -> None:
        if self._said > LINES:
            self._log.warning(
                "upstream caused too many log lines; some were dropped", lines_left_out=self._said - LINES
            )
        self._since, self._said = self._clock(), 0


# The requests that a server sends to us, each answered in a task of its own.
#
# Turns a server's request into a call of the exchange that it belongs to, and the result or the refusal into the bytes
# of an answer. The number of open questions is bounded; a question that the server cancels is not answered.

MOST: Final = 64
"""Questions of one server that may wait for answers at a time; more are refused."""
_MOST_AT_ONCE: Final = 64
"""Answers that need no client, and that the server has not read yet."""


class ServerQuestions:
    """The open questions of one server."""

    def __init__(self, send: Callable[[bytes], Coroutine[Any, Any, None]], server_log: ServerLog) -> None:
        """`send` delivers an answer to the server and raises nothing."""
        self._send = send
        self._server_log = server_log
        self._open: dict[RequestId, asyncio.Task[None]] = {}
        self._at_once: set[asyncio.Task[None]] = set()

    def take(self, request: Request, exchange: Exchange) -> None:
        """Start answering it; a `ping` is answered here. Returns at once."""
        if request.method == "ping":
            self._answer_at_once(request, encode_response(request.id, {}))
        elif request.id in self._open:
            self._answer_at_once(
                request, _encoded_error(request.id, "a request with this id is already being answered")
            )
        elif len(self._open) >= MOST:
            self._answer_at_once(
                request, _encoded_error(request.id, f"{MOST} requests are already waiting for answers; ask again later")
            )
        else:
            task = asyncio.get_running_loop().create_task(self._answer(request, exchange))
            self._open[request.id] = task
            task.add_done_callback(lambda _: self._open.pop(request.id, None))

    def refuse(self, request_id: RequestId, code: int, message: str) -> None:
        """Answer a malformed request with an error."""
        self._answer_at_once(
            Request(request_id, "", {}), encode_failure(request_id, {"code": code, "message": message})
        )

    def take_back(self, request_id: object) -> None:
        """Stop answering a request that the server has cancelled."""
        task = self._open.get(request_id) if isinstance(request_id, int | str) else None
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """Stop answering."""
        for task in (*self._open.values(), *self._at_once):
            task.cancel()

    def _answer_at_once(self, request: Request, answer: bytes) -> None:
        if len(self._at_once) >= _MOST_AT_ONCE:
            self._server_log.warning("request of upstream dropped: it does not read answers", method=_shown(request))
            return
        task = asyncio.get_running_loop().create_task(self._send(answer))
        self._at_once.add(task)
        task.add_done_callback(self._at_once.discard)

    async def _answer(self, request: Request, exchange: Exchange) -> None:
        try:
            answer = encode_response(request.id, await exchange.asked(request.method, request.params))
        except RpcError as refusal:
            answer = encode_failure(request.id, refusal.error)
        except Exception:  # noqa: BLE001 - the one boundary: a server always gets an answer, and learns nothing of ours
            self._server_log.warning("request of upstream could not be answered", method=_shown(request), exc_info=True)
            answer = _encoded_error(request.id, "the gateway failed to answer")
        await self._send(answer)


def _shown(request: Request) -> str:
    return escape_text(request.method, 100)


def _encoded_error(request_id: RequestId, message: str) -> bytes:
    return encode_failure(request_id, {"code": INTERNAL_ERROR, "message": message})
