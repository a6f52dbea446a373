"""The sessions that are open with one server besides its main one: who stands for whom, and when they end.

A handshake-era client that may be asked or told things gets a session of its own (`own`), because in that era nothing
says which client a push is meant for. A modern client of a handshake-era server borrows one that nobody else uses
meanwhile (`lease`), keyed by what the client announced. Sessions are opened on demand, once however many wait, and
end with their client, their server, or after a time without use. It knows no supervision of the server itself.
`choice.py` stands above, `members.py` below.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from pydantic_core import to_json

from gateway.config.model import UpstreamConfig
from gateway.errors import RpcError, UpstreamUnavailable
from gateway.proxy.caller import ClientSession
from gateway.proxy.upstreams.failures import describe_failure
from gateway.proxy.upstreams.members import PING_TIME, Member, Opener, until_over, why_silent
from gateway.proxy.upstreams.negotiation import NoCommonEra, Terms

_MOST: Final = 1000
_SWEEP: Final = 15.0
_IDLE_LEASE: Final = 60.0
_LEASED: Final = 64


class Pool:
    """The sessions besides the main one."""

    def __init__(self, config: UpstreamConfig, opener: Opener, tasks: TaskGroup) -> None:
        """`tasks` run one task a session, and the sweeper."""
        self._config = config
        self._opener = opener
        self._tasks = tasks
        self._own: dict[ClientSession, asyncio.Future[Member]] = {}
        self._lent: dict[bytes, list[Member]] = {}
        self._opening: set[asyncio.Future[Member]] = set()
        """Those to be lent. Who waited for one may be gone, and it is being opened all the same."""

    def __len__(self) -> int:
        return len(self._own) + sum(map(len, self._lent.values()))

    def members(self) -> list[Member]:
        """Every session that is open now."""
        own = [f.result() for f in self._own.values() if f.done() and not f.cancelled() and f.exception() is None]
        return own + [member for members in self._lent.values() for member in members]

    def find(self, session: ClientSession) -> Member | None:
        """The client's own session, if it is open."""
        future = self._own.get(session)
        opened = future is not None and future.done() and not future.cancelled() and future.exception() is None
        return future.result() if future is not None and opened else None

    async def own(self, session: ClientSession, terms: Terms) -> Member:
        """The client's own session, opened now if need be.

        Raises:
            UpstreamUnavailable: it can't be opened.
        """
        future = self._own.get(session)
        if future is not None and future.done() and (future.exception() is not None or not future.result().alive):
            future = None
        if future is None:
            if len(self) >= _MOST:
                raise self._unavailable(f"{_MOST} clients have sessions with it already")
            future = asyncio.get_running_loop().create_future()
            self._own[session] = future
            self._tasks.start_soon(self._hold, future, terms, session)
        member = await asyncio.shield(future)
        member.used = monotonic()
        return member

    @asynccontextmanager
    async def lease(self, terms: Terms) -> AsyncGenerator[Member, None]:
        """A session that nobody else uses while the context lasts, announced with the terms' capabilities.

        Raises:
            UpstreamUnavailable: it can't be opened, or too many are in use.
        """
        key = _key(terms.capabilities)
        free = [member for member in self._lent.get(key, []) if not member.leased and member.alive]
        member = free[0] if free else await self._lend(key, terms)
        member.leased = True
        try:
            yield member
        except RpcError:
            raise
        except BaseException:
            # What the server still does for this call it may push later: the next caller is not to hear it.
            member.leave.set()
            raise
        finally:
            member.leased = False
            member.used = monotonic()

    async def peek(self, terms: Terms) -> Member:
        """A session announced with these capabilities, whoever uses it: for lists, which do no harm to a call."""
        members = [member for member in self._lent.get(_key(terms.capabilities), []) if member.alive]
        member = members[0] if members else await self._lend(_key(terms.capabilities), terms)
        member.used = monotonic()
        return member

    def suspect(self, member: Member) -> None:
        """A call on this session got no answer: find out whether anyone is there, and end it where nobody is."""
        if not member.suspected and member.alive:
            member.suspected = True
            self._tasks.start_soon(self._check, member)

    def release(self, session: ClientSession) -> None:
        """The client is gone: end its session."""
        future = self._own.pop(session, None)
        if future is None:
            return
        if future.done():
            if not future.cancelled() and future.exception() is None:
                future.result().leave.set()
        else:
            future.add_done_callback(_leave_at_once)

    def close(self) -> None:
        """End every session."""
        for session in list(self._own):
            self.release(session)
        for member in self.members():
            member.leave.set()
        self._lent.clear()

    async def sweep(self) -> None:
        """End leased sessions that nobody used for a while, for ever."""
        while True:
            await anyio.sleep(_SWEEP)
            for members in self._lent.values():
                for member in members:
                    if not member.leased and monotonic() - member.used > _IDLE_LEASE:
                        member.leave.set()

    async def _lend(self, key: bytes, terms: Terms) -> Member:
        if sum(map(len, self._lent.values())) + len(self._opening) >= _LEASED and not self._end_idle():
            raise self._unavailable(f"{_LEASED} calls that may ask their clients run on it already")
        future: asyncio.Future[Member] = asyncio.get_running_loop().create_future()
        self._opening.add(future)
        try:
            self._tasks.start_soon(self._hold, future, terms, None)
            member = await future
        except asyncio.CancelledError:
            # It may have come in the very moment in which its borrower went away: nobody else knows of it.
            future.add_done_callback(_leave_at_once)
            raise
        self._opening.discard(future)
        if member.alive:
            # One that ended in this very moment was forgotten before.
            self._lent.setdefault(key, []).append(member)
        return member

    def _end_idle(self) -> bool:
        """Make room: end the leased session that was not used for longest. False: all are in use."""
        idle = [(key, each) for key, members in self._lent.items() for each in members if not each.leased]
        if not idle:
            return False
        key, member = min(idle, key=lambda pair: pair[1].used)
        self._lent[key].remove(member)
        member.leave.set()
        return True

    async def _check(self, member: Member) -> None:
        if await why_silent(member, PING_TIME) is not None:
            member.leave.set()
        member.suspected = False

    async def _hold(self, future: asyncio.Future[Member], terms: Terms, owner: ClientSession | None) -> None:
        """Open a session, hand it out, and keep it until it ends or is told to."""
        member: Member | None = None
        try:
            async with self._opener.opened(terms, owner) as member:
                if future.cancelled():
                    return
                future.set_result(member)
                await until_over(member)
        except NoCommonEra as error:
            _fail(future, NoCommonEra(self._unavailable(error.message).message, server=self._config.name))
        except Exception as error:  # noqa: BLE001 - the one boundary: no failure of one session may reach another
            _fail(future, self._unavailable(describe_failure(error, self._config)))
        finally:
            _fail(future, self._unavailable("the gateway is stopping"))
            self._forget(future, member, owner)

    def _forget(self, future: asyncio.Future[Member], member: Member | None, owner: ClientSession | None) -> None:
        self._opening.discard(future)
        if owner is not None and self._own.get(owner) is future:
            del self._own[owner]
        for key, members in list(self._lent.items()):
            if member in members:
                members.remove(member)
            if not members:
                del self._lent[key]

    def _unavailable(self, cause: str) -> UpstreamUnavailable:
        return UpstreamUnavailable(f"server {self._config.name!r} gave no session: {cause}", server=self._config.name)


def _key(capabilities: Mapping[str, Any] | None) -> bytes:
    return to_json(capabilities or {})


def _leave_at_once(future: asyncio.Future[Member]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().leave.set()


def _fail(future: asyncio.Future[Member], error: UpstreamUnavailable) -> None:
    if not future.done():
        future.set_exception(error)
        # Whoever waited may be gone: an error that nobody takes would be reported as forgotten.
        future.exception()
