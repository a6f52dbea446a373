"""The two ways in which a request gets no answer, regardless of the transport."""


class NoAnswer(Exception):
    """This request gets no usable answer, but others still can: it is too long or malformed, or has a bad status."""


class LinkLost(Exception):
    """The connection ended before the answer arrived. `sent`: whether the server may have begun to act on the request.

    Over a pipe it ends all requests. Over HTTP each request has a connection of its own, and the others go on.
    """

    def __init__(self, cause: str, *, sent: bool = True) -> None:
        super().__init__(cause)
        self.sent = sent
