"""The handshake of one process with all workers: `initialize` is asked once, and every worker gets its answer.

A process knows one client and is greeted once. Whoever asks while the answer is not there waits for it; a refusal is
everybody's who waits, and who asks later asks anew. Pure.
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
    """It, from the first question on."""

    def __init__(self) -> None:
        """Nobody has asked."""
        self.asked: int | None = None
        """The request that the process has got and not answered."""
        self._waiting: dict[int, None] = {}
        self._answer: LastingResult | None = None
        self._told = False

    def ask(self, number: int) -> bytes | None:
        """A worker's `initialize`: its answer, if there is one. The process is to get it where it is now `asked`."""
        if self._answer is not None:
            return encode_response(number, self._answer)
        self._waiting[number] = None
        if self.asked is None:
            self.asked = number
        return None

    def answer(self, data: bytes) -> list[tuple[int, bytes]]:
        """The process's answer to what it was `asked`: for each request that waits, its own."""
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
        """Those who wait, who wait no longer."""
        waiting, self._waiting, self.asked = list(self._waiting), {}, None
        return waiting

    def tell(self) -> bool:
        """Whether the process is to be told that it is initialized: the first time."""
        told, self._told = self._told, True
        return not told
