"""Chooses which session with a server serves which caller.

A caller gets the main session unless there is a reason against it, a session of its own if the server's questions must
reach that client and no other, or one that it borrows. The session is open: a sleeping server is woken, a lost session
opened again. It sends no client's requests.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from anyio.abc import TaskGroup

from gateway.config.gateway_config import UpstreamConfig
from gateway.errors import UpstreamUnavailable
from gateway.proxy.caller import Caller, ClientSession
from gateway.proxy.shares import ShareRule
from gateway.proxy.upstream.session.negotiation import NoCommonEra, Terms
from gateway.proxy.upstream.session.session import least_severe
from gateway.proxy.upstream.supervision.listing import Listing
from gateway.proxy.upstream.supervision.session_member import Opener, SessionMember, tell_level
from gateway.proxy.upstream.supervision.session_pool import Pool
from gateway.proxy.upstream.supervision.supervisor import Supervisor

ASKABLE: Final = frozenset({"elicitation", "roots", "sampling"})
"""The capabilities of a client that mean that it can be asked."""
_SET_LEVEL: Final = "logging/setLevel"


class Selector:
    """The sessions of one server."""

    def __init__(self, config: UpstreamConfig, supervisor: Supervisor, opener: Opener, rule: ShareRule) -> None:
        """`rule`: how many of the sessions one principal may have."""
        self._config = config
        self._rule = rule
        self._supervisor = supervisor
        self._opener = opener
        self._pool: Pool | None = None
        self._handshake = config.protocol != "modern"
        """Whether sessions of the handshake era can be opened; learned by trying."""

    def begin(self, tasks: TaskGroup) -> None:
        """Run the sessions besides the main one in these tasks."""
        self._pool = Pool(self._config, self._opener, tasks, self._rule)
        tasks.start_soon(self._pool.sweep)

    def close(self) -> None:
        """End all sessions besides the main one."""
        if self._pool is not None:
            self._pool.close()

    def __len__(self) -> int:
        return (0 if self._supervisor.main is None else 1) + (0 if self._pool is None else len(self._pool))

    def at_once(self, caller: Caller, method: str) -> SessionMember | None:
        """Return what `for_call` would, if nothing must be waited for; else None."""
        main, session = self._supervisor.main, caller.session
        if main is None or session is None or session is self._supervisor.adopted:
            return main
        if session.log_level is not None or self.own(session) is not None or self._needs_own(session, method):
            return None
        return main

    async def for_call(self, caller: Caller, method: str) -> SessionMember:
        """Return the session for this caller's request; if the request needs one of its own, that is opened. Raises
        `UpstreamUnavailable`: it can't be opened."""
        main = self._supervisor.main or await self._supervisor.want()
        session = caller.session
        if session is None or session is self._supervisor.adopted:
            return main
        member = self._living_own(session) or main
        if member is main and self._needs_own(session, method):
            try:
                member = await self._living_pool().own(session, Terms(("handshake",), session.capabilities))
            except NoCommonEra:
                if not main.session.modern:
                    raise
                # The server speaks only the modern era; its questions come as rounds, which need no session.
                self._handshake = False
        await tell_level(member, session.log_level)
        return member

    async def for_lists(self, caller: Caller) -> SessionMember:
        """Return the session whose lists this caller sees: its own if that is open (none is opened), else the main one.

        Raises as `for_call` does.
        """
        return self.aside(caller) or self._supervisor.main or await self._supervisor.want()

    def aside(self, caller: Caller) -> SessionMember | None:
        """The session besides the main one that this caller's calls use, if it is open."""
        main = self._supervisor.main
        if caller.session is not None:
            own = self._living_own(caller.session)
            return None if own is main else own
        if main is None or self._pool is None or not self._asks_aside(main, caller):
            return None
        return self._pool.lent(self._borrowed(caller))

    @asynccontextmanager
    async def lease(self, caller: Caller, wanted: SessionMember | None = None) -> AsyncGenerator[SessionMember, None]:
        """Borrow a handshake-era session for this caller's exclusive use (see `bridges`). `wanted`: use this one if it
        still exists. Raises as `for_call` does."""
        await self._supervisor.want()
        async with self._living_pool().lease(self._borrowed(caller), caller, wanted) as member:
            yield member

    def members(self) -> list[SessionMember]:
        """The open sessions besides the main one."""
        return [] if self._pool is None else self._pool.members()

    def lends(self, member: SessionMember) -> bool:
        """Whether this is one of the sessions that callers borrow."""
        return self._pool is not None and self._pool.lends(member)

    def may_list_more(self, caller: Caller) -> bool:
        """Whether the main session's lists are known to be incomplete for this caller: it announced capabilities that
        the server was not told of there, but can be told of.
        """
        main, session = self._supervisor.last, caller.session
        if main is None or (ASKABLE & caller.capabilities.keys()) <= main.announced:
            return False
        if main.session.modern:
            return True
        if session is None:
            return self._asks_aside(main, caller)
        return session is not self._supervisor.adopted and self._needs_own(session, "tools/call")

    def listing(self, member: SessionMember, caller: Caller) -> Listing:
        """The lists of this session, as the server has them for a caller with these capabilities."""
        askable = ASKABLE & caller.capabilities.keys()
        return member.listing_for({each: caller.capabilities[each] for each in sorted(askable)})

    @asynccontextmanager
    async def open_aside(self, caller: Caller) -> AsyncGenerator[None, None]:
        """Have a session open, while the context lasts, on which the server is told of this caller's capabilities (see
        `may_list_more`). Raises as `for_call` does.
        """
        if caller.session is not None:
            await self.for_call(caller, "tools/call")
            yield
        elif await self.bridges(caller):
            async with self.lease(caller):
                yield
        else:
            # A modern server is told in each request.
            yield

    async def bridges(self, caller: Caller) -> bool:
        """Whether the server may send requests to this caller, which can answer them only in a further round.

        Raises as `for_call` does.
        """
        if not caller.modern or ASKABLE.isdisjoint(caller.capabilities):
            return False
        return self._asks_aside(self._supervisor.main or await self._supervisor.want(), caller)

    def has_own(self, caller: Caller) -> bool:
        """Whether the caller has a session of its own: pushes on it are the caller's, and it can subscribe there."""
        member = None if caller.session is None else self.own(caller.session)
        return member is not None and not member.session.modern

    async def is_modern(self, caller: Caller) -> bool:
        """Whether this caller's requests are sent in the modern era. Raises as `for_call` does."""
        return (await self.for_lists(caller)).session.modern

    def level_for(self, caller: Caller, wanted: str) -> str:
        """The log level to ask the server for, so that others that share the session get no fewer messages."""
        own = None if caller.session is None else self.own(caller.session)
        member = own or self._supervisor.main
        if member is None:
            return wanted
        level = wanted if member is own else least_severe(wanted, member.told_level)
        member.told_level = level
        return level

    def own(self, session: ClientSession) -> SessionMember | None:
        """The client's own session, if it is open."""
        if session is self._supervisor.adopted:
            return self._supervisor.main
        return None if self._pool is None else self._pool.find(session)

    def release(self, session: ClientSession) -> None:
        """End the session of a client that has disconnected."""
        if self._pool is not None:
            self._pool.release(session)

    def suspect(self, member: SessionMember | None) -> None:
        """Find out whether the server is alive, because a call on this session (None: on none) got no answer."""
        if member is None or member is self._supervisor.main or self._pool is None:
            self._supervisor.maintenance.suspect()
        else:
            self._pool.suspect(member)

    def _asks_aside(self, main: SessionMember, caller: Caller) -> bool:
        return (
            caller.modern
            and not main.session.modern
            and self._config.sessions != "shared"
            and not ASKABLE.isdisjoint(caller.capabilities)
        )

    def _needs_own(self, session: ClientSession, method: str) -> bool:
        """Whether this request needs a session of the client's own to be opened."""
        if self._config.sessions == "shared" or not self._handshake:
            return False
        if self._config.sessions == "per_client":
            return method != _SET_LEVEL
        return method == "tools/call" and not ASKABLE.isdisjoint(session.capabilities)

    def _living_own(self, session: ClientSession) -> SessionMember | None:
        member = self.own(session)
        return member if member is not None and member.alive else None

    def _borrowed(self, caller: Caller) -> Terms:
        return Terms(("handshake",), caller.capabilities)

    def _living_pool(self) -> Pool:
        if self._pool is None:
            name = self._config.name
            raise UpstreamUnavailable(f"server {name!r} is not available: it has not been started", server=name)
        return self._pool
