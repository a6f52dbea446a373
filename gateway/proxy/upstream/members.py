"""One open session with a server: how it comes about, what belongs to it, and how it ends.

A `Member` is a negotiated session with its lists and the handle that ends it; an `Opener` dials and negotiates one. It
does not know how many there are or whom they serve.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Protocol

import anyio
from pydantic_core import to_json

from gateway.config.model import UpstreamConfig
from gateway.proxy.caller import ClientSession, Nobody, Principal
from gateway.proxy.transport.interface import LinkLost, NoAnswer, PeerError, Transport
from gateway.proxy.upstream.listing import Listing, Screen
from gateway.proxy.upstream.negotiation import Terms, negotiate
from gateway.proxy.upstream.session import ListKind, Session, least_severe
from gateway.proxy.upstream.task_owners import TaskOwners

Connect = Callable[[Session], AbstractAsyncContextManager[Transport]]
"""Opens a transport to the server with the session as its listener."""
PING_TIME: Final = 20.0
"""How long a server gets for the answer to a ping, seconds: it may have one thread, and a call may keep that busy."""

_ABILITIES: Final = 8
"""Sets of abilities for which the lists of one modern session are kept."""
_LEVEL_TIME: Final = 5.0
"""Seconds for telling a new session which log messages its client wants."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class Member:
    """One open session, its lists, and the handle to end it."""

    session: Session
    listing: Listing
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    announced: frozenset[str] = frozenset()
    """Abilities that the server was told of for the whole session: it may list by them."""
    told_level: str | None = None
    """The least severe log message that its server was told is wanted."""
    suspected: bool = False
    """Whether somebody is finding out if it is still there."""
    used: float = field(default_factory=monotonic)
    mourned: bool = False
    """Whether its end was counted as a failure: one death fails many calls, and is one failure."""
    _for_abilities: dict[bytes, Listing] = field(default_factory=dict[bytes, Listing])
    """Those used last come last."""

    @property
    def alive(self) -> bool:
        """Whether a request would go out."""
        transport = self.session.transport
        return transport is not None and not transport.closed.is_set() and not self.leave.is_set()

    def listing_for(self, abilities: Mapping[str, Any]) -> Listing:
        """The lists in the name of clients with these abilities, where each request says for itself what its client
        has. Those for the latest few are kept.
        """
        if not self.session.modern or not abilities:
            return self.listing
        key = to_json(abilities)
        listing = self._for_abilities.pop(key, None)
        if listing is None:
            listing = self.listing.asked_by(Nobody(modern=True, capabilities=abilities))
            if len(self._for_abilities) >= _ABILITIES:
                del self._for_abilities[next(iter(self._for_abilities))]
        self._for_abilities[key] = listing
        return listing

    def forget(self, kind: ListKind) -> None:
        """A list is not what it was, or what may be shown of it."""
        for listing in (self.listing, *self._for_abilities.values()):
            listing.forget(kind)

    def doubt(self) -> None:
        """The lists may have changed without a word."""
        for listing in (self.listing, *self._for_abilities.values()):
            listing.doubt()

    def mourn(self) -> bool:
        """Whether a call that broke off is a failure by itself: not if the connection is over, and another said so."""
        transport = self.session.transport
        if transport is None or not transport.closed.is_set():
            return True
        first, self.mourned = not self.mourned, True
        return first


class Changes(Protocol):
    """Who hears of changes that a session reports."""

    def list_changed(self, kind: ListKind, member: Member) -> None:
        """A list of this session is not what it was."""
        ...

    def listening(self, member: Member) -> None:
        """The server says that it tells of changes from now on: what changed before went untold."""
        ...

    def updated(self, uri: str, member: Member) -> None:
        """A resource changed that this session subscribed to."""
        ...

    async def sample(self, params: dict[str, Any], payer: Principal) -> dict[str, Any]:
        """The server asks for a generation, and no client can be asked for it. Raises `RpcError`."""
        ...


class Opener:
    """Opens sessions with one server."""

    def __init__(
        self,
        config: UpstreamConfig,
        connect: Connect,
        dropped: Callable[[str], None],
        changes: Changes,
        screen: Screen,
        *,
        result_bytes: int,
        time: float,
    ) -> None:
        """`screen`: as `Listing` has it. `time`: seconds for connecting and negotiating."""
        self._screen = screen
        self._config = config
        self._connect = connect
        self._dropped = dropped
        self._changes = changes
        self._bytes = result_bytes
        self._time = time
        # A process takes its tasks with it; a server that is reached by a URL keeps them from session to session.
        self._tasks = None if config.url is None else TaskOwners()

    @asynccontextmanager
    async def opened(
        self, terms: Terms, owner: ClientSession | None = None, *, main: bool = False
    ) -> AsyncGenerator[Member, None]:
        """A negotiated session for as long as the context lasts; leaving it ends the process or the HTTP session.

        `main`: it is for everybody who has none of his own, and workers may share its process.

        Raises:
            UpstreamUnavailable, LinkLost, OSError: it can't be opened.
            TimeoutError: not in time.
        """
        member: Member
        session = Session(
            self._config.name,
            self._dropped,
            owner=owner,
            main=main,
            ids=self._config.ids,
            on_list_changed=lambda kind: self._list_changed(kind, member),
            on_updated=lambda uri: self._changes.updated(uri, member),
            on_listening=lambda: self._changes.listening(member),
            on_sampling=self._changes.sample if self._config.sampling_tokens else None,
            tasks=self._tasks,
        )
        member = Member(session, Listing(session, self._bytes, self._screen))
        async with self._connect(session) as transport:
            with anyio.move_on_after(self._time) as negotiating:
                await negotiate(session, transport, terms)
            if negotiating.cancelled_caught:
                raise TimeoutError(f"it did not answer the handshake within {self._time:g} s (limits.start_timeout)")
            if not session.modern:
                member.announced = frozenset(terms.capabilities or ())
            yield member

    def _list_changed(self, kind: ListKind, member: Member) -> None:
        member.forget(kind)
        self._changes.list_changed(kind, member)


async def tell_level(member: Member, level: str | None) -> None:
    """Say what the client said to an earlier session, or to us. A server that minds logs as it likes."""
    if level is None or member.session.modern or "logging" not in member.session.capabilities:
        return
    if member.told_level == (least := least_severe(level, member.told_level)):
        return
    member.told_level = least
    with anyio.move_on_after(_LEVEL_TIME):
        try:
            await member.session.request("logging/setLevel", {"level": least})
        except (PeerError, NoAnswer, LinkLost):
            return


async def until_over(member: Member) -> None:
    """Wait until the session's connection is over or it is told to leave."""
    transport = member.session.transport
    if transport is None:
        return
    waiting = [asyncio.ensure_future(event.wait()) for event in (transport.closed, member.leave)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


async def why_silent(member: Member, seconds: float) -> NoAnswer | LinkLost | TimeoutError | None:
    """Ask the session whether anyone is there; None: somebody is, even if only to refuse the question."""
    try:
        with anyio.fail_after(seconds):
            await member.session.request("server/discover" if member.session.modern else "ping", {})
    except PeerError:
        return None
    except (NoAnswer, LinkLost, TimeoutError) as error:
        return error
    return None
