"""The two ways in which a request gets no answer, whatever it runs over."""


class NoAnswer(Exception):
    """There will be no usable answer to this request, but the connection lives: too long, malformed, a bad status."""


class LinkLost(Exception):
    """The connection ended before the answer came. `sent`: the server may have begun to act on the request.

    Over a pipe that is the end of everything. Over HTTP each request has a connection of its own, and others go on.
    """

    def __init__(self, cause: str, *, sent: bool = True) -> None:
        super().__init__(cause)
        self.sent = sent
