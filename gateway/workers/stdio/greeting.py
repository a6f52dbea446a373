"""The handshake of one process with all workers: `initialize` is asked once, and every worker gets its answer.

A process knows one client and is greeted once. Workers that ask before the answer arrives wait for it. A refusal goes
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
        """Start with no request from any worker."""
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
