"""Which session with a server answers which caller.

A caller is given the main session where nothing speaks against it, one of its own where what the server asks must reach
that client and no other, or one that it borrows. What it is given is open: a sleeping server is woken, a lost session
opened anew. It sends no request of a client.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from anyio.abc import TaskGroup

from gateway.config.model import UpstreamConfig
from gateway.errors import UpstreamUnavailable
from gateway.proxy.caller import Caller, ClientSession
from gateway.proxy.shares import ShareRule
from gateway.proxy.upstream.listing import Listing
from gateway.proxy.upstream.members import Member, Opener, tell_level
from gateway.proxy.upstream.negotiation import NoCommonEra, Terms
from gateway.proxy.upstream.pool import Pool
from gateway.proxy.upstream.sampling import CAPABILITY, Allowance
from gateway.proxy.upstream.session import least_severe
from gateway.proxy.upstream.supervisor import Supervisor

ASKABLE: Final = frozenset({"elicitation", "roots", "sampling"})
"""What a client may announce that it can be asked for."""
_SET_LEVEL: Final = "logging/setLevel"


class Selector:
    """The sessions of one server."""

    def __init__(
        self, config: UpstreamConfig, supervisor: Supervisor, opener: Opener, allowance: Allowance, rule: ShareRule
    ) -> None:
        """`rule`: how many of the sessions may be one principal's."""
        self._config = config
        self._rule = rule
        self._supervisor = supervisor
        self._opener = opener
        self._allowance = allowance
        self._pool: Pool | None = None
        self._handshake = config.protocol != "modern"
        """Whether sessions of the handshake era can be had; learned by trying."""

    def begin(self, tasks: TaskGroup) -> None:
        """Sessions besides the main one live in these tasks."""
        self._pool = Pool(self._config, self._opener, tasks, self._rule)
        tasks.start_soon(self._pool.sweep)

    def close(self) -> None:
        """End all sessions besides the main one."""
        if self._pool is not None:
            self._pool.close()

    def __len__(self) -> int:
        return (0 if self._supervisor.main is None else 1) + (0 if self._pool is None else len(self._pool))

    def at_once(self, caller: Caller, method: str) -> Member | None:
        """What `for_call` gives, where nobody has to be asked or told anything for it."""
        main, session = self._supervisor.main, caller.session
        if main is None or session is None or session is self._supervisor.adopted:
            return main
        if session.log_level is not None or self.own(session) is not None or self._needs_own(session, method):
            return None
        return main

    async def for_call(self, caller: Caller, method: str) -> Member:
        """The session for this caller's request; its own is opened where the request needs one.

        Raises:
            UpstreamUnavailable: it can't be opened.
        """
        main = self._supervisor.main or await self._supervisor.want()
        session = caller.session
        if session is None or session is self._supervisor.adopted:
            return main
        member = self._living_own(session) or main
        if member is main and self._needs_own(session, method):
            try:
                member = await self._living_pool().own(session, Terms(("handshake",), self._announced(session)))
            except NoCommonEra:
                if not main.session.modern:
                    raise
                # It speaks the modern era only; its pushes come as rounds, which need no session.
                self._handshake = False
        await tell_level(member, session.log_level)
        return member

    async def for_lists(self, caller: Caller) -> Member:
        """The session whose lists this caller sees: one of its own if it is open, and none is opened for it.

        Raises as `for_call`.
        """
        return self.aside(caller) or self._supervisor.main or await self._supervisor.want()

    def aside(self, caller: Caller) -> Member | None:
        """The session besides the main one that this caller's calls run on, if it is open."""
        main = self._supervisor.main
        if caller.session is not None:
            own = self._living_own(caller.session)
            return None if own is main else own
        if main is None or self._pool is None or not self._asks_aside(main, caller):
            return None
        return self._pool.lent(self._borrowed(caller))

    @asynccontextmanager
    async def lease(self, caller: Caller, wanted: Member | None = None) -> AsyncGenerator[Member, None]:
        """A session of the handshake era for this caller alone (see `bridges`); `wanted`: that one, if it is still
        there. Raises as `for_call`."""
        await self._supervisor.want()
        async with self._living_pool().lease(self._borrowed(caller), caller.principal, wanted) as member:
            yield member

    def members(self) -> list[Member]:
        """The sessions besides the main one that are open."""
        return [] if self._pool is None else self._pool.members()

    def lends(self, member: Member) -> bool:
        """Whether this is one of the sessions that callers borrow."""
        return self._pool is not None and self._pool.lends(member)

    def may_list_more(self, caller: Caller) -> bool:
        """Whether the main session's lists are known to be incomplete for this caller: it announced abilities that the
        server was not told of there, and can be.
        """
        main, session = self._supervisor.last, caller.session
        if main is None or (ASKABLE & caller.capabilities.keys()) <= main.announced:
            return False
        if main.session.modern:
            return True
        if session is None:
            return self._asks_aside(main, caller)
        return session is not self._supervisor.adopted and self._needs_own(session, "tools/call")

    def listing(self, member: Member, caller: Caller) -> Listing:
        """The lists of this session, as the server has them for this caller."""
        abilities = ASKABLE & caller.capabilities.keys()
        return member.listing_for({each: caller.capabilities[each] for each in sorted(abilities)})

    @asynccontextmanager
    async def open_aside(self, caller: Caller) -> AsyncGenerator[None, None]:
        """While this is entered, a session is open on which the server is told what this caller announced, as far as
        `may_list_more`. Raises as `for_call`.
        """
        if caller.session is not None:
            await self.for_call(caller, "tools/call")
            yield
        elif await self.bridges(caller):
            async with self.lease(caller):
                yield
        else:
            # A modern server is told with each request.
            yield

    async def bridges(self, caller: Caller) -> bool:
        """Whether the server may push requests to this caller that only a new round of its own can carry.

        Raises as `for_call`.
        """
        if not caller.modern or ASKABLE.isdisjoint(caller.capabilities):
            return False
        return self._asks_aside(self._supervisor.main or await self._supervisor.want(), caller)

    def has_own(self, caller: Caller) -> bool:
        """Whether what the server pushes on this caller's session is the caller's, and it can subscribe there."""
        member = None if caller.session is None else self.own(caller.session)
        return member is not None and not member.session.modern

    async def is_modern(self, caller: Caller) -> bool:
        """Whether this caller's requests go out in the modern era. Raises as `for_call`."""
        return (await self.for_lists(caller)).session.modern

    def level_for(self, caller: Caller, wanted: str) -> str:
        """The log level to ask for, so that who shares the session hears no less for it."""
        own = None if caller.session is None else self.own(caller.session)
        member = own or self._supervisor.main
        if member is None:
            return wanted
        level = wanted if member is own else least_severe(wanted, member.told_level)
        member.told_level = level
        return level

    def own(self, session: ClientSession) -> Member | None:
        """The session that stands for this client, if there is one open."""
        if session is self._supervisor.adopted:
            return self._supervisor.main
        return None if self._pool is None else self._pool.find(session)

    def release(self, session: ClientSession) -> None:
        """The client is gone."""
        if self._pool is not None:
            self._pool.release(session)

    def suspect(self, member: Member | None) -> None:
        """A call got no answer on this session (None: it was given none): find out whether anyone is there."""
        if member is None or member is self._supervisor.main or self._pool is None:
            self._supervisor.maintenance.suspect()
        else:
            self._pool.suspect(member)

    def _asks_aside(self, main: Member, caller: Caller) -> bool:
        return (
            caller.modern
            and not main.session.modern
            and self._config.sessions != "shared"
            and not ASKABLE.isdisjoint(caller.capabilities)
        )

    def _needs_own(self, session: ClientSession, method: str) -> bool:
        """Whether a session is to be opened for this request of a client that has none."""
        if self._config.sessions == "shared" or not self._handshake:
            return False
        if self._config.sessions == "per_client":
            return method != _SET_LEVEL
        return method == "tools/call" and not ASKABLE.isdisjoint(session.capabilities)

    def _living_own(self, session: ClientSession) -> Member | None:
        member = self.own(session)
        return member if member is not None and member.alive else None

    def _borrowed(self, caller: Caller) -> Terms:
        return Terms(("handshake",), self._allowance.help(caller).capabilities)

    def _announced(self, session: ClientSession) -> Mapping[str, Any]:
        return {CAPABILITY: {}, **session.capabilities} if self._allowance.open else session.capabilities

    def _living_pool(self) -> Pool:
        if self._pool is None:
            name = self._config.name
            raise UpstreamUnavailable(f"server {name!r} is not available: it is not started", server=name)
        return self._pool
