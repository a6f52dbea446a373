"""Which session with a server answers which caller.

A caller is given the main session where nothing speaks against it, one of its own where what the server pushes must
reach that client and no other, or one that it borrows. What it is given is open: a sleeping server is woken, a lost
session opened anew. It sends no request of a client. `upstream.py` stands above; `supervisor.py` (the main session) and
`pool.py` (the others) below.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import anyio
from anyio.abc import TaskGroup

from gateway.config.model import UpstreamConfig
from gateway.errors import UpstreamUnavailable
from gateway.proxy.caller import NOBODY, Caller, ClientSession
from gateway.proxy.upstreams.helping import CAPABILITY, Allowance
from gateway.proxy.upstreams.members import Member, Opener
from gateway.proxy.upstreams.negotiation import NoCommonEra, Terms
from gateway.proxy.upstreams.pool import Pool
from gateway.proxy.upstreams.supervisor import Supervisor
from gateway.proxy.wires.wire import LinkLost, NoAnswer, PeerError

ASKABLE: Final = frozenset({"elicitation", "roots", "sampling"})
"""What a client may announce that it can be asked for."""
_LEVEL_TIME: Final = 5.0
"""Seconds for telling a new session which log messages its client wants."""


class Choice:
    """The sessions of one server."""

    def __init__(self, config: UpstreamConfig, supervisor: Supervisor, opener: Opener, allowance: Allowance) -> None:
        self._config = config
        self._supervisor = supervisor
        self._opener = opener
        self._allowance = allowance
        self._pool: Pool | None = None
        self._handshake = config.protocol != "modern"
        """Whether sessions of the handshake era can be had; learned by trying."""

    def begin(self, tasks: TaskGroup) -> None:
        """Sessions besides the main one live in these tasks."""
        self._pool = Pool(self._config, self._opener, tasks)
        tasks.start_soon(self._pool.sweep)

    def close(self) -> None:
        """End all sessions besides the main one."""
        if self._pool is not None:
            self._pool.close()

    def __len__(self) -> int:
        return (0 if self._supervisor.main is None else 1) + (0 if self._pool is None else len(self._pool))

    async def for_call(self, caller: Caller) -> Member:
        """The session for a request of this caller.

        Raises:
            UpstreamUnavailable: it can't be opened.
        """
        main = self._supervisor.main or await self._supervisor.want()
        session = caller.session
        if session is None or session is self._supervisor.adopted or not self._needs_own(main, session):
            return main
        try:
            member = await self._living_pool().own(session, Terms(("handshake",), self._announced(session)))
        except NoCommonEra:
            if not main.session.modern:
                raise
            # It speaks the modern era only; its pushes come as rounds, which need no session.
            self._handshake = False
            return main
        await _tell_level(member, session)
        return member

    async def for_lists(self, caller: Caller) -> Member:
        """The session whose lists this caller sees. Raises as `for_call`."""
        main = self._supervisor.main or await self._supervisor.want()
        if caller is NOBODY:
            return main
        if self._asks_aside(main, caller):
            return await self._living_pool().peek(Terms(("handshake",), self._allowance.help(caller).capabilities))
        return await self.for_call(caller)

    @asynccontextmanager
    async def lease(self, caller: Caller) -> AsyncGenerator[Member, None]:
        """A session of the handshake era for this caller alone (see `bridges`). Raises as `for_call`."""
        await self._supervisor.want()
        async with self._living_pool().lease(
            Terms(("handshake",), self._allowance.help(caller).capabilities)
        ) as member:
            yield member

    async def bridges(self, caller: Caller) -> bool:
        """Whether the server may push requests to this caller that only a new round of its own can carry.

        Raises as `for_call`.
        """
        if not caller.modern or ASKABLE.isdisjoint(caller.capabilities):
            return False
        return self._asks_aside(self._supervisor.main or await self._supervisor.want(), caller)

    async def has_own(self, caller: Caller) -> bool:
        """Whether what the server pushes on this caller's session is the caller's, and it can subscribe there.

        Raises as `for_call`.
        """
        session = (await self.for_call(caller)).session
        return session.owner is not None and not session.modern

    async def is_modern(self, caller: Caller) -> bool:
        """Whether this caller's requests go out in the modern era. Raises as `for_call`."""
        return (await self.for_call(caller)).session.modern

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
            self._supervisor.tender.suspect()
        else:
            self._pool.suspect(member)

    def _asks_aside(self, main: Member, caller: Caller) -> bool:
        return (
            caller.modern
            and not main.session.modern
            and self._config.sessions != "shared"
            and not ASKABLE.isdisjoint(caller.capabilities)
        )

    def _needs_own(self, main: Member, session: ClientSession) -> bool:
        if self._config.sessions == "shared" or not self._handshake:
            return False
        if self._config.sessions == "per_client":
            return True
        offered = main.session.capabilities
        resources: object = offered.get("resources")
        subscribes = isinstance(resources, dict) and cast(dict[str, Any], resources).get("subscribe") is True
        pushes = "logging" in offered or subscribes
        return pushes or not ASKABLE.isdisjoint(session.capabilities)

    def _announced(self, session: ClientSession) -> Mapping[str, Any]:
        return {CAPABILITY: {}, **session.capabilities} if self._allowance.open else session.capabilities

    def _living_pool(self) -> Pool:
        if self._pool is None:
            name = self._config.name
            raise UpstreamUnavailable(f"server {name!r} is not available: it is not started", server=name)
        return self._pool


async def _tell_level(member: Member, session: ClientSession) -> None:
    """Say once what the client said to an earlier session, or to us. A server that minds logs as it likes."""
    if session.log_level is None or member.told_level or "logging" not in member.session.capabilities:
        return
    member.told_level = True
    with anyio.move_on_after(_LEVEL_TIME):
        try:
            await member.session.request("logging/setLevel", {"level": session.log_level})
        except (PeerError, NoAnswer, LinkLost):
            return
