"""One open session with a server: how it is opened, what belongs to it, and how it ends.

A `SessionMember` is a negotiated session with its lists and the handle that ends it; an `Opener` connects and
negotiates one. It does not know how many there are or whom they serve.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Protocol

import anyio
from pydantic_core import to_json

from gateway.config.gateway_config import UpstreamConfig
from gateway.protocol.messages import METHOD_NOT_FOUND
from gateway.proxy.caller import Caller, ClientSession, Nobody
from gateway.proxy.transport.transport_interface import (
    LinkLost,
    MaybeForgotten,
    NoAnswer,
    PeerError,
    SessionForgotten,
    Transport,
    Unfit,
)
from gateway.proxy.upstream.items.item_reader import ItemReader
from gateway.proxy.upstream.session.negotiation import Terms, negotiate
from gateway.proxy.upstream.session.session import ListKind, Session, least_severe
from gateway.proxy.upstream.session.task_owners import TaskOwners
from gateway.proxy.upstream.supervision.listing import Listing, Screen

Connect = Callable[[Session], AbstractAsyncContextManager[Transport]]
"""Opens a transport to the server with the session as its listener."""
PING_TIME: Final = 20.0
"""Seconds a server may take to answer a ping: a call may occupy its only thread."""

_CAPABILITY_SETS: Final = 8
"""Sets of client capabilities for which the lists of one modern session are kept, at most."""
_LEVEL_TIME: Final = 5.0
"""Seconds to tell the server which log messages the client of a new session wants."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class SessionMember:
    """One open session, its lists, and the handle that ends it."""

    session: Session
    listing: Listing
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    told_level: str | None = None
    """The log level that the server was last told; None: none."""
    suspected: bool = False
    """Whether somebody is checking if it is still alive."""
    pinged: bool = True
    """Whether its answers to pings show that it lives."""
    used: float = field(default_factory=monotonic)
    end_counted: bool = False
    """Whether its end was counted as a failure: one death fails many calls, but is one failure."""
    _by_capabilities: dict[bytes, Listing] = field(default_factory=dict[bytes, Listing])
    """Lists by capabilities, the ones used last at the end."""

    @property
    def announced(self) -> frozenset[str]:
        """Client capabilities that the server was told of for the whole session; its lists may depend on them."""
        return self.session.announced

    @property
    def alive(self) -> bool:
        """Whether a request could be sent."""
        transport = self.session.transport
        return transport is not None and not transport.closed.is_set() and not self.leave.is_set()

    def listing_for(self, capabilities: Mapping[str, Any]) -> Listing:
        """The lists for clients with these capabilities, if each request states its client's (modern era); else the
        session's own lists. The lists of the latest few sets are kept.
        """
        if not self.session.modern or not capabilities:
            return self.listing
        key = to_json(capabilities)
        listing = self._by_capabilities.pop(key, None)
        if listing is None:
            listing = self.listing.asked_by(Nobody(modern=True, capabilities=capabilities))
            if len(self._by_capabilities) >= _CAPABILITY_SETS:
                del self._by_capabilities[next(iter(self._by_capabilities))]
        self._by_capabilities[key] = listing
        return listing

    def forget(self, kind: ListKind) -> None:
        """Mark a list as changed: what the server lists, or what may be shown of it."""
        for listing in (self.listing, *self._by_capabilities.values()):
            listing.forget(kind)

    def doubt(self) -> None:
        """Have all lists read again when they are next needed, because they may have changed without notice."""
        for listing in (self.listing, *self._by_capabilities.values()):
            listing.doubt()

    def note_failure(self) -> bool:
        """Note that a call broke off. Return whether it counts as a failure: if the connection is over, only the first
        one does."""
        transport = self.session.transport
        if transport is None or not transport.closed.is_set():
            return True
        first, self.end_counted = not self.end_counted, True
        return first


class Changes(Protocol):
    """Receives what sessions report."""

    def list_changed(self, kind: ListKind, member: SessionMember) -> None:
        """A list of this session has changed."""
        ...

    def listening(self, member: SessionMember) -> None:
        """The server says that it reports changes from now on; earlier changes were not reported."""
        ...

    def updated(self, params: Mapping[str, Any], member: SessionMember) -> None:
        """A resource that this session subscribed to has changed."""
        ...


class Opener:
    """Opens sessions with one server."""

    def __init__(
        self,
        config: UpstreamConfig,
        connect: Connect,
        dropped: Callable[[str], None],
        changes: Changes,
        reader: ItemReader,
        screen: Screen,
        *,
        result_bytes: int,
        time: float,
    ) -> None:
        """`reader`, `screen`: see `Listing`. `time`: seconds for negotiating."""
        self._reader = reader
        self._screen = screen
        self._config = config
        self._connect = connect
        self._dropped = dropped
        self._changes = changes
        self._bytes = result_bytes
        self._time = time
        # The tasks of a process end with it; a server that is reached by URL keeps them across sessions.
        self._tasks = None if config.url is None else TaskOwners()

    @asynccontextmanager
    async def opened(
        self,
        terms: Terms,
        owner: ClientSession | None = None,
        *,
        main: bool = False,
        borrower: Caller | None = None,
    ) -> AsyncGenerator[SessionMember, None]:
        """Open and negotiate a session; leaving the context ends the process or the HTTP session.

        Args:
            main: whether it serves every client without a session of its own; workers may then share its process.
            borrower: for whose request it is opened.

        Raises:
            UpstreamUnavailable, LinkLost, OSError: it can't be opened.
            TimeoutError: it can't be negotiated in time.
        """
        member: SessionMember
        session = Session(
            self._config.name,
            self._dropped,
            owner=owner,
            main=main,
            ids=self._config.ids,
            on_list_changed=lambda kind: self._list_changed(kind, member),
            on_updated=lambda params: self._changes.updated(params, member),
            on_listening=lambda: self._changes.listening(member),
            tasks=self._tasks,
        )
        session.lend(borrower)
        member = SessionMember(session, Listing(session, self._bytes, self._reader, self._screen))
        async with self._connect(session) as transport:
            with anyio.move_on_after(self._time) as negotiating:
                # What the server is told of, it may use at once. That of the modern era is told with each request.
                session.announce(terms.capabilities or ())
                await negotiate(session, transport, terms)
            if negotiating.cancelled_caught:
                late = f"it did not answer the handshake within {self._time:g} s (limits.start_timeout)"
                raise TimeoutError(f"{late}; {transport.unread}" if transport.unread else late)
            if session.modern:
                session.announce(())
            yield member

    def _list_changed(self, kind: ListKind, member: SessionMember) -> None:
        member.forget(kind)
        self._changes.list_changed(kind, member)


async def tell_level(member: SessionMember, level: str | None) -> None:
    """Tell the server the log level that the client set earlier. A refusal is ignored."""
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


async def until_over(member: SessionMember) -> None:
    """Wait until the session's connection is over, or the session is told to end."""
    transport = member.session.transport
    if transport is None:
        return
    waiting = [asyncio.ensure_future(event.wait()) for event in (transport.closed, member.leave)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


async def why_silent(member: SessionMember, seconds: float) -> NoAnswer | LinkLost | TimeoutError | None:
    """Ping the server. Return None if it lives and knows the session; otherwise, why not."""
    try:
        with anyio.fail_after(seconds):
            if member.pinged and await _answers_ping(member.session):
                return None
            if "tools" in member.session.capabilities:
                await member.session.request("tools/list", {})
                # It lists, but its answers to pings say nothing: from now on it is asked for its list instead.
                member.pinged = False
    except (PeerError, MaybeForgotten):
        return SessionForgotten("it has forgotten our session: it refuses even a ping")
    except Unfit:
        return None
    except (NoAnswer, LinkLost, TimeoutError) as error:
        return error
    return None


async def _answers_ping(session: Session) -> bool:
    """Whether the answer to a ping shows that the server knows the session. Raises `LinkLost`."""
    try:
        await session.request("server/discover" if session.modern else "ping", {})
    except PeerError as error:
        # A server need not know the method.
        return session.modern or error.error.get("code") == METHOD_NOT_FOUND
    except MaybeForgotten:
        if "tools" in session.capabilities:
            return False
        raise
    except NoAnswer:
        return False
    return True
