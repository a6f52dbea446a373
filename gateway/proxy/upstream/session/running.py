"""The requests in flight in one conversation, and which of their callers gets pushes that name no request.

Such a push is for the only caller there is; if it could be for several, nobody gets it. A request that its caller gave
up still counts until the server answers it: a server may ignore a cancellation, and what it pushes for that call is not
for the next caller. It knows no transport.
"""

from collections.abc import Callable
from typing import Any, Final

from gateway.proxy.caller import NOBODY, Caller, ClientSession

_MOST: Final = 256
"""Abandoned requests without an answer whose callers are remembered, at most."""
Deliver = Callable[[str, dict[str, Any], "Running"], None]


class Running:
    """One request in flight; the transport gets it as the request's `Pending`."""

    __slots__ = ("_deliver", "_requests", "caller", "client", "number", "token")

    def __init__(self, caller: Caller, requests: "Requests", deliver: Deliver) -> None:
        self.caller = caller
        self.client: ClientSession | None = None
        """The session of its caller, set when it is given up."""
        self.number: int | None = None
        self.token: object = None
        self._requests = requests
        self._deliver = deliver

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Deliver what the server pushed on this request's own stream."""
        self._deliver(method, params, self)

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer what the server asks on this request's own stream."""
        return await self.caller.asked(method, params)

    def given_up(self) -> None:
        """Note that its caller no longer waits; the server was told."""
        self._requests.give_up(self)

    def answered(self) -> None:
        """Note that the server has answered after the request was given up."""
        self._requests.given_up.discard(self)


class Requests:
    """All requests of clients that a server works on in one conversation."""

    def __init__(self) -> None:
        """Start with no requests."""
        self.running: set[Running] = set()
        self.given_up: set[Running] = set()
        self._lost_count = False
        """Whether more requests were given up than are remembered."""

    def begin(self, request: Running) -> None:
        """Note that this request is running."""
        self.running.add(request)

    def give_up(self, request: Running) -> None:
        """Note that this request's caller is gone, though the server may still work on it."""
        if request not in self.running:
            return
        client = request.caller.session
        # What belongs to the caller must not stay in memory as long as the server is silent.
        request.caller = NOBODY
        if len(self.given_up) >= _MOST:
            self._lost_count = True
            return
        request.client = client
        self.given_up.add(request)

    def only_caller(self) -> Caller | None:
        """The caller that a push without a request must be for; None: it may be for several, or for nobody."""
        if len(self.running) != 1 or self._lost_count:
            return None
        caller = next(iter(self.running)).caller
        if not self.given_up:
            return caller
        same = caller.session is not None and all(each.client is caller.session for each in self.given_up)
        return caller if same else None
