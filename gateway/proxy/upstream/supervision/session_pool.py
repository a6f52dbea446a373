"""The sessions with one server besides its main one: whose they are, and when they end.

A handshake-era client that may be asked gets a session of its own (`own`), because in that era nothing says which
client a question is meant for. A modern client of a handshake-era server borrows one for its exclusive use (`lease`),
chosen by the capabilities that the client announced. Sessions are opened on demand, once for all that wait, and end
with their client, with their server, or after some time without use. Each counts towards its principal's share until it
and its process are gone. It knows nothing about the supervision of the server itself.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from pydantic_core import to_json

from gateway.config.gateway_config import UpstreamConfig
from gateway.errors import RpcError, UpstreamUnavailable
from gateway.proxy.caller import Caller, ClientSession, Principal
from gateway.proxy.shares import OverBound, ShareRule
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer
from gateway.proxy.upstream.session.in_flight import until_answered
from gateway.proxy.upstream.session.negotiation import NoCommonEra, Terms
from gateway.proxy.upstream.supervision.lifecycle import describe_failure
from gateway.proxy.upstream.supervision.session_member import PING_TIME, Opener, SessionMember, until_over, why_silent

_SWEEP: Final = 15.0
_IDLE: Final = 60.0
"""Seconds without use after which a borrowable session ends, or that of a client silent since it was opened."""
_LEASE_TIME: Final = 60.0
"""Seconds to wait for a particular session that another call is using."""


@dataclass(eq=False, slots=True)
class _Held:
    """One session, from before it is open until it is completely gone."""

    opened: asyncio.Future[SessionMember]
    payer: Principal | None
    """The principal whose share it counts towards now; None: it is idle and may be lent to anybody."""
    owner: ClientSession | None
    key: bytes
    """The announced capabilities."""
    heard: int
    """How many times its owner had sent something when it was opened."""
    leased: bool = False
    told_by: Principal | None = None
    """Whose answers its server has had: it is lent to nobody else."""
    returned: asyncio.Event = field(default_factory=asyncio.Event)
    """Set and replaced whenever a lease ends."""
    leaving: bool = False

    @property
    def member(self) -> SessionMember | None:
        done = self.opened.done() and not self.opened.cancelled() and self.opened.exception() is None
        return self.opened.result() if done else None

    @property
    def alive(self) -> bool:
        return not self.leaving and (member := self.member) is not None and member.alive

    def leave(self) -> None:
        """End the session; if it is not open yet, as soon as it is."""
        self.leaving = True
        if self.member is not None:
            self.member.leave.set()


class Pool:
    """The sessions with one server besides the main one."""

    def __init__(self, config: UpstreamConfig, opener: Opener, tasks: TaskGroup, rule: ShareRule) -> None:
        """`tasks` run one task for each session. `rule`: how many sessions one principal may have."""
        self._config = config
        self._opener = opener
        self._tasks = tasks
        self._most = config.most_client_sessions
        setting = f"upstreams.{config.name}.client_sessions"
        self._shares = rule.shares("client_session", self._most, f"sessions with server {config.name!r}", setting)
        self._held: set[_Held] = set()
        self._own: dict[ClientSession, _Held] = {}

    def __len__(self) -> int:
        return sum(held.alive for held in self._held)

    def find(self, session: ClientSession) -> SessionMember | None:
        """The client's own session, if it is open."""
        held = self._own.get(session)
        return None if held is None else held.member

    async def own(self, session: ClientSession, terms: Terms) -> SessionMember:
        """Return the client's own session; open it if necessary. Raises `UpstreamUnavailable`: it can't be opened, or
        too many are open."""
        held = self._own.get(session)
        if held is None or (held.opened.done() and not held.alive):
            held = self._own[session] = self._open(terms, session.principal, session)
        member = await asyncio.shield(held.opened)
        member.used = monotonic()
        return member

    @asynccontextmanager
    async def lease(
        self, terms: Terms, caller: Caller, wanted: SessionMember | None = None
    ) -> AsyncGenerator[SessionMember, None]:
        """Borrow a session that nobody else uses while the context lasts, opened with the capabilities of `terms`.

        Args:
            caller: is asked what the server wants to know meanwhile.
            wanted: use this session, once nobody else does; if it is gone, use another one.

        Raises:
            UpstreamUnavailable: it can't be opened, is not free in time, or too many are in use.
        """
        if wanted is None or (held := await self._once_free(wanted)) is None or not _may_lend(held, caller.principal):
            free = (each for each in self._held if self._is_free(each, _key(terms.capabilities)))
            held = next((each for each in free if _may_lend(each, caller.principal)), None)
        held = self._borrow(held, terms, caller)
        try:
            is_new = not held.opened.done()
            member = await asyncio.shield(held.opened)
            if not is_new:
                await _hand_over(member, caller)
            yield member
        except RpcError:
            raise
        except BaseException:
            # The server may still work on this call and push something later, which the next caller must not get.
            held.leave()
            raise
        finally:
            self._take_back(held)

    def members(self) -> list[SessionMember]:
        """The sessions that are open."""
        return [held.member for held in self._held if held.alive and held.member is not None]

    def lends(self, member: SessionMember) -> bool:
        """Whether this is a session that callers borrow, and is still usable."""
        return any(held.member is member and held.owner is None and held.alive for held in self._held)

    def lent(self, terms: Terms) -> SessionMember | None:
        """An open borrowable session with these capabilities, even if it is in use."""
        key = _key(terms.capabilities)
        return next((held.member for held in self._held if held.owner is None and held.alive and held.key == key), None)

    def suspect(self, member: SessionMember) -> None:
        """Ping on this session, on which a call got no answer, and end it if there is none to the ping either."""
        if not member.suspected and member.alive:
            member.suspected = True
            self._tasks.start_soon(self._check, member)

    def release(self, session: ClientSession) -> None:
        """End the session of a client that has disconnected."""
        held = self._own.pop(session, None)
        if held is not None:
            held.leave()

    def close(self) -> None:
        """End every session."""
        self._own.clear()
        for held in self._held:
            held.leave()

    async def sweep(self) -> None:
        """Keep ending sessions that nobody needs any more, until cancelled."""
        while True:
            await anyio.sleep(_SWEEP)
            for held in list(self._held):
                if held.owner is None and self._is_free(held) and self._age(held) > _IDLE:
                    held.leave()
                elif held.owner is not None and self._is_abandoned(held, held.owner):
                    self.release(held.owner)

    def _is_free(self, held: _Held, key: bytes | None = None) -> bool:
        return held.owner is None and not held.leased and held.alive and key in (None, held.key)

    def _age(self, held: _Held) -> float:
        member = held.member
        return 0.0 if member is None else monotonic() - member.used

    def _is_abandoned(self, held: _Held, owner: ClientSession) -> bool:
        """Whether its client has been idle and has sent nothing since it was opened. Never, if the operator configured
        `per_client`, which means that clients have state there."""
        if self._config.sessions == "per_client" or owner.times_heard != held.heard or self._own.get(owner) is not held:
            return False
        return owner.idle_since is not None and monotonic() - owner.idle_since > _IDLE

    async def _once_free(self, wanted: SessionMember) -> _Held | None:
        """Wait until nobody uses the session; None: it is gone."""
        held = next((each for each in self._held if each.member is wanted), None)
        with anyio.move_on_after(_LEASE_TIME):
            while held is not None and held.leased and held.alive:
                await held.returned.wait()
            return held if held is not None and self._is_free(held) else None
        raise self._unavailable(f"the one that gave this resource has been running another call for {_LEASE_TIME:g} s")

    def _borrow(self, held: _Held | None, terms: Terms, caller: Caller) -> _Held:
        if held is None:
            held = self._open(terms, caller.principal, borrower=caller)
        else:
            self._refuse_over(self._shares.take(caller.principal))
            held.payer = caller.principal
        held.leased = True
        return held

    def _take_back(self, held: _Held) -> None:
        held.leased = False
        held.returned.set()
        held.returned = asyncio.Event()
        if held.member is not None:
            held.member.used = monotonic()
            held.member.session.lend(None)
            if held.member.session.questions.asked:
                held.told_by = held.payer
        if held.alive and held.payer is not None:
            # A session that is ending counts until it has ended.
            self._shares.give_back(held.payer)
            held.payer = None

    def _open(
        self, terms: Terms, payer: Principal, owner: ClientSession | None = None, borrower: Caller | None = None
    ) -> _Held:
        if len(self._held) >= 2 * self._most:
            raise self._unavailable(f"{len(self._held)} sessions with it are open or still ending; call again later")
        self._refuse_over(self._shares.take(payer))
        if len(self._held) >= self._most:
            self._end_idle()
        opened: asyncio.Future[SessionMember] = asyncio.get_running_loop().create_future()
        held = _Held(opened, payer, owner, _key(terms.capabilities), 0 if owner is None else owner.times_heard)
        self._held.add(held)
        self._tasks.start_soon(self._hold, held, terms, borrower)
        return held

    def _refuse_over(self, over: OverBound | None) -> None:
        if over is not None:
            raise self._unavailable(over.message)

    def _end_idle(self) -> None:
        """Make room: end the free session that has been unused for longest. All sessions in use count towards shares,
        and these were not exhausted, so there is a free one."""
        idle = [held for held in self._held if self._is_free(held)]
        if idle:
            max(idle, key=self._age).leave()

    async def _check(self, member: SessionMember) -> None:
        if await why_silent(member, PING_TIME) is not None:
            member.leave.set()
        member.suspected = False

    async def _hold(self, held: _Held, terms: Terms, borrower: Caller | None) -> None:
        """Open a session, hand it out, and hold it until it ends or is told to end."""
        try:
            async with self._opener.opened(terms, held.owner, borrower=borrower) as member:
                await until_answered(member.session, member.announced)
                held.opened.set_result(member)
                if not held.leaving:
                    await until_over(member)
        except NoCommonEra as error:
            _fail(held.opened, NoCommonEra(self._unavailable(error.message).message, server=self._config.name))
        except Exception as error:  # noqa: BLE001 - the one boundary: no failure of one session may reach another
            _fail(held.opened, self._unavailable(describe_failure(error, self._config)))
        finally:
            _fail(held.opened, self._unavailable("the gateway is stopping"))
            self._forget(held)

    def _forget(self, held: _Held) -> None:
        self._held.discard(held)
        if held.payer is not None:
            self._shares.give_back(held.payer)
            held.payer = None
        if held.owner is not None and self._own.get(held.owner) is held:
            del self._own[held.owner]

    def _unavailable(self, cause: str) -> UpstreamUnavailable:
        return UpstreamUnavailable(
            f"no session with server {self._config.name!r} is available: {cause}", server=self._config.name
        )


def _may_lend(held: _Held, principal: Principal) -> bool:
    return held.told_by is None or held.told_by == principal


async def _hand_over(member: SessionMember, caller: Caller) -> None:
    """Lend a session to its next caller. A server that knows a client's roots asks for this one's."""
    member.session.lend(caller)
    if member.session.told_roots:
        # A connection that is over is noticed by the request itself, which may be repeated then.
        with suppress(LinkLost, NoAnswer):
            await member.session.notify("notifications/roots/list_changed")
        await until_answered(member.session, member.announced)


def _key(capabilities: Mapping[str, Any] | None) -> bytes:
    return to_json(capabilities or {})


def _fail(opened: asyncio.Future[SessionMember], error: UpstreamUnavailable) -> None:
    if not opened.done():
        opened.set_exception(error)
        # The waiting callers may be gone, and asyncio would log an error that nobody retrieves.
        opened.exception()
