"""The requests that run in one conversation, and who of their callers hears what the server ties to none of them.

Such a push belongs to the only caller there is, and to nobody where it may be of more. A request that its caller gave
up counts until the server answers it: a server need not heed a cancellation, and what it still says of that call is not
for whoever calls next. It knows no transport.
"""

from collections.abc import Callable
from typing import Any, Final

from gateway.proxy.caller import ANYBODY, NOBODY, Caller, ClientSession, Principal

SEVERAL: Final = Principal("several callers")
"""Pays for what may be of more than one principal."""
_MOST: Final = 256
"""Requests that were given up and got no answer, of which we know whose they were."""
Deliver = Callable[[str, dict[str, Any], "Running"], None]


class Running:
    """One request in flight: the `Pending` that the transport is given for it."""

    __slots__ = ("_deliver", "_requests", "caller", "client", "number", "token")

    def __init__(self, caller: Caller, requests: "Requests", deliver: Deliver) -> None:
        self.caller = caller
        self.client: ClientSession | None = None
        """Whose it was, once it is given up."""
        self.number: int | None = None
        self.token: object = None
        self._requests = requests
        self._deliver = deliver

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """The server pushed something on this request's own stream."""
        self._deliver(method, params, self)

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The server asks something on this request's own stream."""
        return await self.caller.asked(method, params)

    def given_up(self) -> None:
        """Its caller waits no longer, and the server was told."""
        self._requests.give_up(self)

    def answered(self) -> None:
        """The server answered after that."""
        self._requests.given_up.discard(self)


class Requests:
    """All requests of clients that one server works on, in one conversation."""

    def __init__(self) -> None:
        """There is none."""
        self.running: set[Running] = set()
        self.given_up: set[Running] = set()
        self._lost_count = False
        """More were given up than are remembered."""
        self._first: Principal | None = None
        self._several = False
        """Whether more than one principal ever called here."""

    def begin(self, request: Running) -> None:
        """This one runs from now on."""
        self.running.add(request)
        principal = request.caller.principal
        if self._first is None:
            self._first = principal
        elif self._first is not principal and self._first.name != principal.name:
            self._several = True

    def give_up(self, request: Running) -> None:
        """This one's caller is gone; the server may still work on it."""
        if request not in self.running:
            return
        if len(self.given_up) >= _MOST:
            self._lost_count = True
            return
        request.client = request.caller.session
        self.given_up.add(request)

    def only_caller(self) -> Caller | None:
        """Whom a push must be for that names no request; None: it may be for several, or for nobody."""
        if len(self.running) != 1 or self._lost_count:
            return None
        caller = next(iter(self.running)).caller
        if not self.given_up:
            return caller
        same = caller.session is not None and all(each.client is caller.session for each in self.given_up)
        return caller if same else None

    def payer(self, audience: Caller | ClientSession) -> Principal:
        """At whose expense the server samples; `audience`: who hears what it says now."""
        if audience is not NOBODY:
            return audience.principal
        return SEVERAL if self._several else self._first or ANYBODY
