"""The handshake of one process with all workers: `initialize` is asked once, and every worker gets its answer.

A process knows one client and is greeted once. Workers that ask before the answer has come wait for it. A refusal goes
to all that wait; the next worker that asks causes a new request. Pure.
"""

from gateway.protocol.mending import BrokenAnswer, mend_message
from gateway.protocol.messages import (
    INTERNAL_ERROR,
    Failure,
    LastingResult,
    Malformed,
    Response,
    encode_failure,
    encode_response,
    parse_message,
)


class Greeting:
    """The handshake of one process."""

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self.asked: int | None = None
        """The request that the process has got and not answered."""
        self._waiting: dict[int, None] = {}
        self._answer: LastingResult | None = None
        self._told = False

    def ask(self, number: int) -> bytes | None:
        """Take a worker's `initialize`; gives the answer if it is known. What is now `asked` goes to the process."""
        if self._answer is not None:
            return encode_response(number, self._answer)
        self._waiting[number] = None
        if self.asked is None:
            self.asked = number
        return None

    def answer(self, data: bytes) -> list[tuple[int, bytes]]:
        """Take the process's answer to what it was `asked`; gives one for each request that waits."""
        message = parse_message(data)
        if isinstance(message, Malformed):
            message = mend_message(data, message)
        if isinstance(message, Response):
            self._answer = answer = LastingResult(message.result)
            return [(number, encode_response(number, answer)) for number in self.settle()]
        error = {
            "code": INTERNAL_ERROR,
            "message": message.detail if isinstance(message, BrokenAnswer) else "no answer",
        }
        if isinstance(message, Failure):
            error = message.error
        return [(number, encode_failure(number, error)) for number in self.settle()]

    def settle(self) -> list[int]:
        """Give the requests that wait, and forget them."""
        waiting, self._waiting, self.asked = list(self._waiting), {}, None
        return waiting

    def tell(self) -> bool:
        """Whether the process still has to be told that it is initialized; True only once."""
        told, self._told = self._told, True
        return not told
