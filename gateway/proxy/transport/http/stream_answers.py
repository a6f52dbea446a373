"""Answers that a server sends on its own stream although it was asked by a POST, which it only accepted (HTTP 202).

Turns messages of that stream into results of requests. An answer may come before the POST has been accepted, so the
latest few that nobody awaits yet are kept. It sends nothing.
"""

import asyncio
from typing import Any, Final

from gateway.protocol.mending import BrokenAnswer, number_of
from gateway.protocol.messages import Failure, Response
from gateway.proxy.transport.interface import LinkLost, NoAnswer, PeerError

_KEPT: Final = 16

Answer = Response | Failure | BrokenAnswer


class StreamAnswers:
    """The answers on the stream of one session."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._early: dict[int, Answer] = {}

    def take(self, message: Answer) -> None:
        """Give an answer to whoever awaits it, or keep it for a moment."""
        number = number_of(message.id)
        if number is None:
            return
        if (future := self._waiting.get(number)) is None:
            self._early[number] = message
            if len(self._early) > _KEPT:
                del self._early[next(iter(self._early))]
        elif not future.done():
            future.set_result(message)

    def lose(self, lost: LinkLost) -> None:
        """Fail whoever waits."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(lost)

    async def result(self, number: int) -> dict[str, Any]:
        """Return the result of this request, which has been sent.

        Raises:
            PeerError, NoAnswer, LinkLost: see `Transport.request`.
        """
        message = self._early.pop(number, None)
        if message is None:
            future = self._waiting[number] = asyncio.get_running_loop().create_future()
            try:
                message = await future
            finally:
                del self._waiting[number]
        if isinstance(message, Response):
            return message.result
        raise PeerError(message.error) if isinstance(message, Failure) else NoAnswer(message.detail)
