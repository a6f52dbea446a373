"""What goes on beside a session that is up: listing anew, subscribing, asking whether it is still there, dozing off.

Runs the tasks that one life of a server needs, and ends them with it. What it learns it tells: lists that changed, a
server that hangs, one that nobody needs. It opens nothing and decides no restart.
"""

import asyncio
import math
from collections.abc import Callable, Collection
from time import monotonic
from typing import Final, Protocol

import anyio

from gateway.config.model import LimitsConfig, UpstreamConfig
from gateway.errors import UpstreamUnavailable
from gateway.observe.escape import escape_text
from gateway.observe.logs import get_logger
from gateway.proxy.transport.interface import LinkLost, NoAnswer, PeerError, SessionForgotten
from gateway.proxy.upstream.failures import describe_failure
from gateway.proxy.upstream.listing import KINDS
from gateway.proxy.upstream.members import PING_TIME, Member, until_over, why_silent
from gateway.proxy.upstream.session import ListKind
from gateway.proxy.upstream.subscription import Follower

_PING_EVERY: Final = 15.0
LISTING_PAUSE: Final = 1.0
"""Seconds between two listings of one server, however often it says that something changed."""
_REST: Final = 20
"""Times as long as taking its lists over took passes before the next listing: everybody else waits for that."""
_LONG_CALL: Final = 1.0
"""Seconds between two looks whether a server is still busy that was to be stopped."""


class SessionKeeper(Protocol):
    """Who decides what becomes of a session."""

    def lose(self, member: Member, cause: str, *, at_once: bool = False) -> None:
        """It is of no use any more. `at_once`: the server is there and only forgot it."""
        ...

    def stop_idle(self, member: Member) -> None:
        """Nobody needed it for a while."""
        ...


class Maintenance:
    """Tends the sessions of one server, one after the other."""

    def __init__(
        self,
        config: UpstreamConfig,
        limits: LimitsConfig,
        follower: Follower,
        on_change: Callable[[Collection[ListKind]], None],
        is_busy: Callable[[], bool],
    ) -> None:
        """`on_change`: these lists changed, as the server says."""
        self._config = config
        self._limits = limits
        self._follower = follower
        self._on_change = on_change
        self._is_busy = is_busy
        self._log = get_logger("gateway.proxy").bind(server=config.name)
        self._changed = anyio.Event()
        self._changed_lists: set[ListKind] = set()
        self._suspected = anyio.Event()
        self._used = 0.0

    def used(self) -> None:
        """Somebody needs the server now."""
        self._used = asyncio.get_running_loop().time()

    def suspect(self) -> None:
        """A call got no answer: find out whether the server is there at all."""
        self._suspected.set()

    def changed(self, kind: ListKind | None = None) -> None:
        """List anew, soon. `kind`: the list that the server says has changed."""
        if kind is not None:
            self._changed_lists.add(kind)
        self._changed.set()

    async def tend(self, member: Member, keeper: SessionKeeper) -> None:
        """Do all this until the session is over."""
        self.used()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._refresh, member)
            tasks.start_soon(self._watch, member, keeper)
            tasks.start_soon(self._follower.follow, member)
            if self._config.idle_stop:
                tasks.start_soon(self._stop_idle, member, keeper)
            await until_over(member)
            tasks.cancel_scope.cancel()

    async def _refresh(self, member: Member) -> None:
        """List anew whenever the server says that something changed; many such words are one.

        At most one listing a pause: a server may say so after every listing.
        """
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            kinds, self._changed_lists = self._changed_lists, set()
            took = 0.0
            try:
                with anyio.fail_after(self._limits.start_timeout):
                    await list_all(member)
            except (PeerError, NoAnswer, LinkLost, UpstreamUnavailable, TimeoutError) as error:
                self._log.warning("upstream did not list again", cause=describe_failure(error, self._config))
            else:
                began = monotonic()
                self._on_change(kinds)
                took = monotonic() - began
            await anyio.sleep(max(LISTING_PAUSE, _REST * took))

    async def _watch(self, member: Member, keeper: SessionKeeper) -> None:
        """Ask whether it is there, after a call broke off or got no answer: a server can hang with its pipes open.

        Over HTTP also now and then while idle, because there nothing tells of a death. A busy one is left in peace: it
        may have one thread, and that one is ours.
        """
        idle = _PING_EVERY if self._config.command is None else math.inf
        while True:
            with anyio.move_on_after(idle) as nothing_happened:
                await self._suspected.wait()
            if nothing_happened.cancelled_caught and self._is_busy():
                continue
            self._suspected = anyio.Event()
            silence = await why_silent(member, PING_TIME)
            if isinstance(silence, TimeoutError):
                keeper.lose(member, "it does not answer a ping")
            elif silence is not None:
                cause = describe_failure(silence, self._config)
                keeper.lose(member, cause, at_once=isinstance(silence, SessionForgotten))

    async def _stop_idle(self, member: Member, keeper: SessionKeeper) -> None:
        """End a server that nobody needed for a while: neither for a call nor to hear of a resource."""
        while True:
            left = self._used + self._config.idle_stop - anyio.current_time()
            if left <= 0 and not self._is_busy() and not self._follower.watches:
                keeper.stop_idle(member)
                return
            await anyio.sleep(left if left > 0 else min(self._config.idle_stop, _LONG_CALL))


async def list_all(member: Member) -> None:
    """Tools decide whether a server is up; the rest is asked for by the way, and may fail alone.

    Raises:
        UpstreamUnavailable, PeerError, NoAnswer, LinkLost: it did not list its tools.
    """
    await member.listing.get("tools")
    for kind in KINDS[1:]:
        try:
            await member.listing.get(kind)
        except (PeerError, NoAnswer, UpstreamUnavailable) as error:
            get_logger("gateway.proxy").warning(
                "upstream did not list all that it offers",
                server=member.session.server,
                kind=kind,
                cause=escape_text(str(error), 200),
            )
