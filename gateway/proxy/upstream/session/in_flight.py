"""The requests in flight in one conversation: their time limits, who gets pushes, what a server asks at its start."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, Protocol

import anyio

from gateway.deadlines import CallClock
from gateway.protocol.eras import PROGRESS
from gateway.proxy.caller import NOBODY, Caller, ClientSession, ForwardingCaller
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, PeerError

# A question to the caller pauses the call's clock, since a person may be thinking. A report of progress shows that the
# server is at work: it extends the clock.


class TimedCaller(ForwardingCaller):
    """A caller whose questions do not cost the call's time, and whose server's progress extends it."""

    __slots__ = ("_asking", "_clock")

    def __init__(self, caller: Caller, clock: CallClock) -> None:
        """`clock`: the running clock of the call."""
        super().__init__(caller)
        self._clock = clock
        self._asking = 0

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Pass the notification on; progress extends the clock."""
        if method == PROGRESS:
            self._clock.extend()
        super().notified(method, params)

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Pass the question on, with the clock paused."""
        with self.paused():
            return await super().asked(method, params)

    @contextmanager
    def paused(self) -> Generator[None, None, None]:
        """Pause the clock while the context lasts; overlapping questions count as one pause."""
        self._asking += 1
        self._clock.pause()
        try:
            yield
        finally:
            self._asking -= 1
            if self._asking == 0:
                self._clock.resume()


@contextmanager
def all_paused(callers: Iterable[Caller]) -> Generator[None, None, None]:
    """Pause the clocks of all these calls while the context lasts: one of them asks, but it is not known which."""
    with ExitStack() as clocks:
        for caller in callers:
            if isinstance(caller, TimedCaller):
                clocks.enter_context(caller.paused())
        yield


# A push that names no request is for the only caller there is; if it could be for several, nobody gets it. A request
# that its caller gave up still counts until the server answers it: a server may ignore a cancellation, and what it
# pushes for that call is not for the next caller.

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


# A server that guards folders asks for the client's roots when it is initialized. A client that connects to it directly
# sends its first call much later. We open the session for that call, so it would overtake the answer and be refused.

MOST: Final = 5.0
"""Seconds to wait, at most: the client may never answer, or the server never the ping."""
_ROOTS: Final = "roots"
_QUIET: Final = 2
"""Pings in succession without a question after which no more is expected."""
_USE: Final = 0.1
"""Seconds that a server gets to use an answer: some look at the folders first, and answer pings meanwhile."""


class FirstQuestions:
    """The questions of a server, outside of any call, that are not answered yet."""

    def __init__(self) -> None:
        self.asked = 0
        """How many there were."""
        self.new_answers = 0
        """How many were answered otherwise than the one before."""
        self._last: tuple[str, object] | None = None
        self._open = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def one(self) -> Generator[None]:
        """Count a question as open while the context lasts."""
        self.asked += 1
        self._open += 1
        self._none.clear()
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._none.set()

    def note(self, method: str, answer: object) -> None:
        """Note the answer to one."""
        if (method, answer) != self._last:
            self.new_answers += 1
            self._last = method, answer

    async def all_answered(self) -> None:
        """Wait until none is open."""
        await self._none.wait()


class Asking(Protocol):
    """A session, as far as is needed here."""

    questions: FirstQuestions

    async def ping(self) -> None:
        """Send a ping and wait for its answer. Raises as `Transport.request` does."""
        ...


async def until_answered(session: Asking, announced: frozenset[str]) -> None:
    """Wait until the server has had its say and its questions are answered. `announced`: the client's capabilities."""
    if _ROOTS not in announced:
        return
    with anyio.move_on_after(MOST), suppress(PeerError, NoAnswer, LinkLost):
        known_answers, quiet = session.questions.new_answers, 0
        # Servers take messages in their order: what `initialized` makes one ask comes about when it answers a ping, and
        # surely before it answers the next; an answer of the client's is taken before the ping after that is.
        while quiet < _QUIET:
            known = session.questions.asked
            with suppress(PeerError):
                await session.ping()
            await session.questions.all_answered()
            quiet = quiet + 1 if known == session.questions.asked else 0
        if known_answers != session.questions.new_answers:
            await anyio.sleep(_USE)
